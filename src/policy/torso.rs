//! Torsos: from observations to features.

use candle_core::{Result, Tensor};

use super::config::{ActivationKind, TorsoConfig};
use super::parameters::{Initializer, Layout, ParameterId, Parameters};
use crate::ops::{Activation, activate, conv2d, linear, max_pool2d};

/// Gain that keeps the variance of a ReLU layer (He et al. 2015); also fine before a tanh.
const HIDDEN_GAIN: f32 = std::f32::consts::SQRT_2;

/// A fully connected layer.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    weight: ParameterId,
    bias: ParameterId,
    activation: Activation,
}

impl Dense {
    pub(super) fn new(
        layout: &mut Layout,
        name: &str,
        inputs: usize,
        outputs: usize,
        activation: Activation,
        gain: f32,
    ) -> Self {
        Self {
            weight: layout.add(format!("{name}.weight"), &[outputs, inputs], Initializer::Orthogonal(gain)),
            bias: layout.add(format!("{name}.bias"), &[outputs], Initializer::Constant(0.0)),
            activation,
        }
    }

    /// `[N, inputs]` to `[N, outputs]`.
    pub(super) fn forward(&self, parameters: &Parameters, x: &Tensor) -> Result<Tensor> {
        linear(x, parameters.weight(self.weight), Some(&parameters[self.bias]), self.activation)
    }
}

/// A convolution, channels last.
#[derive(Debug, Clone)]
struct Conv {
    weight: ParameterId,
    bias: ParameterId,
    padding: usize,
    activation: Activation,
}

impl Conv {
    /// A 3x3 convolution with stride 1.
    fn new(
        layout: &mut Layout,
        name: &str,
        [inputs, outputs]: [usize; 2],
        padding: usize,
        activation: Activation,
        gain: f32,
    ) -> Self {
        Self {
            weight: layout.add(
                format!("{name}.weight"),
                &[outputs, 3, 3, inputs],
                Initializer::Orthogonal(gain),
            ),
            bias: layout.add(format!("{name}.bias"), &[outputs], Initializer::Constant(0.0)),
            padding,
            activation,
        }
    }

    fn forward(&self, parameters: &Parameters, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (parameters.weight(self.weight), &parameters[self.bias]);
        conv2d(x, weight, bias, 1, self.padding, self.activation)
    }
}

/// x + conv(relu(conv(relu(x)))).
#[derive(Debug, Clone)]
struct ResidualBlock {
    first: Conv,
    second: Conv,
}

impl ResidualBlock {
    fn new(layout: &mut Layout, name: &str, channels: usize, hidden: Activation) -> Self {
        let shape = [channels; 2];
        Self {
            first: Conv::new(layout, &format!("{name}.0"), shape, 1, hidden, HIDDEN_GAIN),
            second: Conv::new(layout, &format!("{name}.1"), shape, 1, Activation::Identity, 1.0),
        }
    }

    fn forward(&self, parameters: &Parameters, x: &Tensor, hidden: Activation) -> Result<Tensor> {
        let y = self.first.forward(parameters, &activate(x, hidden)?)?;
        x + self.second.forward(parameters, &y)?
    }
}

/// One stage of the deep residual net.
#[derive(Debug, Clone)]
struct Stage {
    entry: Conv,
    blocks: [ResidualBlock; 2],
}

#[derive(Debug, Clone)]
enum Kind {
    Mlp(Vec<Dense>),
    Conv(Box<Conv>, Dense),
    Resnet(Vec<Stage>, Dense),
}

/// From `[N, observation]` to `[N, features]`.
#[derive(Debug, Clone)]
pub(super) struct Torso {
    kind: Kind,
    observation_shape: Vec<usize>,
    activation: Activation,
    pub(super) features: usize,
}

impl Torso {
    pub(super) fn new(
        layout: &mut Layout,
        name: &str,
        config: &TorsoConfig,
        activation: ActivationKind,
        observation_shape: &[usize],
    ) -> Self {
        let activation = match activation {
            ActivationKind::Relu => Activation::Relu,
            ActivationKind::Tanh => Activation::Tanh,
        };
        let dense = |layout: &mut Layout, name: String, inputs, outputs| {
            Dense::new(layout, &name, inputs, outputs, activation, HIDDEN_GAIN)
        };
        let (kind, features) = match config {
            TorsoConfig::Mlp { hidden } => {
                let mut width = observation_shape.iter().product();
                let mut layers = Vec::with_capacity(hidden.len());
                for (i, &outputs) in hidden.iter().enumerate() {
                    layers.push(dense(layout, format!("{name}.{i}"), width, outputs));
                    width = outputs;
                }
                (Kind::Mlp(layers), width)
            }
            TorsoConfig::Conv { channels, hidden } => {
                let [height, width, depth] = image(observation_shape);
                let conv = Conv::new(
                    layout,
                    &format!("{name}.conv"),
                    [depth, *channels],
                    0,
                    activation,
                    HIDDEN_GAIN,
                );
                let flat = (height - 2) * (width - 2) * channels;
                (Kind::Conv(Box::new(conv), dense(layout, format!("{name}.dense"), flat, *hidden)), *hidden)
            }
            TorsoConfig::Resnet { channels, hidden } => {
                let [mut height, mut width, mut depth] = image(observation_shape);
                let mut stages = Vec::with_capacity(channels.len());
                for (i, &outputs) in channels.iter().enumerate() {
                    let shape = [depth, outputs];
                    let stage = format!("{name}.{i}");
                    stages.push(Stage {
                        entry: Conv::new(
                            layout,
                            &format!("{stage}.conv"),
                            shape,
                            1,
                            Activation::Identity,
                            1.0,
                        ),
                        blocks: [0, 1].map(|b| {
                            ResidualBlock::new(layout, &format!("{stage}.block{b}"), outputs, activation)
                        }),
                    });
                    // Pooling 3x3 with stride 2 and padding 1.
                    (height, width, depth) = (height.div_ceil(2), width.div_ceil(2), outputs);
                }
                let flat = height * width * depth;
                (Kind::Resnet(stages, dense(layout, format!("{name}.dense"), flat, *hidden)), *hidden)
            }
        };
        Self { kind, observation_shape: observation_shape.to_vec(), activation, features }
    }

    pub(super) fn forward(&self, parameters: &Parameters, observations: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Mlp(layers) => {
                layers.iter().try_fold(observations.clone(), |x, layer| layer.forward(parameters, &x))
            }
            Kind::Conv(conv, dense) => {
                let y = conv.forward(parameters, &self.images(observations)?)?;
                dense.forward(parameters, &y.flatten_from(1)?)
            }
            Kind::Resnet(stages, dense) => {
                let mut x = self.images(observations)?;
                for stage in stages {
                    x = stage.entry.forward(parameters, &x)?;
                    x = max_pool2d(&x, 3, 2, 1)?;
                    for block in &stage.blocks {
                        x = block.forward(parameters, &x, self.activation)?;
                    }
                }
                dense.forward(parameters, &activate(&x, self.activation)?.flatten_from(1)?)
            }
        }
    }

    fn images(&self, observations: &Tensor) -> Result<Tensor> {
        let [height, width, depth] = image(&self.observation_shape);
        observations.reshape(((), height, width, depth))
    }
}

/// Height, width and channels; a two-dimensional observation has one channel.
fn image(shape: &[usize]) -> [usize; 3] {
    match *shape {
        [height, width, depth] => [height, width, depth],
        [height, width] => [height, width, 1],
        _ => unreachable!("the configuration check refuses convolutions over shape {shape:?}"),
    }
}
