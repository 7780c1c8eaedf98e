//! The networks of the control workload.

use candle_core::{DType, Device, Result, Tensor, Var};
use forebay::ops::{Activation, LstmParameters, activate, conv2d, linear, lstm_unroll, max_pool2d};
use forebay::random::CounterRng;

use super::Pass;

pub(super) fn tensor(shape: &[usize]) -> Result<Tensor> {
    let mut rng = CounterRng::new(1);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| (rng.normal() * 0.05) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

pub(super) fn variable(shape: &[usize]) -> Result<Var> {
    Var::from_tensor(&tensor(shape)?)
}

/// Weight and bias of a fully connected layer or a convolution.
struct Layer {
    weight: Var,
    bias: Var,
}

impl Layer {
    fn new(shape: &[usize]) -> Result<Self> {
        Ok(Self { weight: variable(shape)?, bias: variable(&shape[..1])? })
    }

    fn dense(&self, x: &Tensor, training: bool, activation: Activation) -> Result<Tensor> {
        if training {
            linear(x, &self.weight, Some(&self.bias), activation)
        } else {
            linear(x, &self.weight.detach(), Some(&self.bias.detach()), activation)
        }
    }

    fn convolution(
        &self,
        x: &Tensor,
        training: bool,
        [stride, padding]: [usize; 2],
        activation: Activation,
    ) -> Result<Tensor> {
        if training {
            conv2d(x, &self.weight, &self.bias, stride, padding, activation)
        } else {
            conv2d(x, &self.weight.detach(), &self.bias.detach(), stride, padding, activation)
        }
    }
}

/// With training, also the gradients, from ones for every output.
fn finish(y: &Tensor, training: bool) -> Result<()> {
    if training {
        y.backward()?;
    }
    Ok(())
}

/// 4 - 64 - 64 with ReLU.
pub(super) fn mlp(batch: usize, training: bool) -> Result<Pass> {
    let x = tensor(&[batch, 4])?;
    let layers = [Layer::new(&[64, 4])?, Layer::new(&[64, 64])?];
    Ok(Box::new(move || {
        let y = layers[0].dense(&x, training, Activation::Relu)?;
        finish(&layers[1].dense(&y, training, Activation::Relu)?, training)
    }))
}

/// 10 x 10 x 4, convolution of 16 channels 3 x 3, 128 hidden, six outputs.
pub(super) fn minatar(batch: usize, training: bool) -> Result<Pass> {
    let x = tensor(&[batch, 10, 10, 4])?;
    let convolution = Layer::new(&[16, 3, 3, 4])?;
    let layers = [Layer::new(&[128, 1024])?, Layer::new(&[6, 128])?];
    Ok(Box::new(move || {
        let y = convolution.convolution(&x, training, [1, 0], Activation::Relu)?.flatten_from(1)?;
        let y = layers[0].dense(&y, training, Activation::Relu)?;
        finish(&layers[1].dense(&y, training, Activation::Identity)?, training)
    }))
}

/// 84 x 84 x 4, convolutions 16 of 8 x 8 by 4 and 32 of 4 x 4 by 2, 256 hidden.
pub(super) fn atari_shallow(batch: usize) -> Result<Pass> {
    let x = tensor(&[batch, 84, 84, 4])?;
    let convolutions = [Layer::new(&[16, 8, 8, 4])?, Layer::new(&[32, 4, 4, 16])?];
    let dense = Layer::new(&[256, 9 * 9 * 32])?;
    Ok(Box::new(move || {
        let y = convolutions[0].convolution(&x, true, [4, 0], Activation::Relu)?;
        let y = convolutions[1].convolution(&y, true, [2, 0], Activation::Relu)?;
        finish(&dense.dense(&y.flatten_from(1)?, true, Activation::Relu)?, true)
    }))
}

/// The residual network of IMPALA: three stages of 16, 32 and 32 channels with two blocks each, 256 hidden.
pub(super) fn atari_deep(batch: usize) -> Result<Pass> {
    let x = tensor(&[batch, 84, 84, 4])?;
    let mut stages = Vec::new();
    let mut channels = 4;
    for outputs in [16, 32, 32] {
        let mut layers = vec![Layer::new(&[outputs, 3, 3, channels])?];
        for _ in 0..4 {
            layers.push(Layer::new(&[outputs, 3, 3, outputs])?);
        }
        stages.push(layers);
        channels = outputs;
    }
    let dense = Layer::new(&[256, 11 * 11 * 32])?;
    Ok(Box::new(move || {
        let mut y = x.clone();
        for layers in &stages {
            y = max_pool2d(&layers[0].convolution(&y, true, [1, 1], Activation::Identity)?, 3, 2, 1)?;
            for block in layers[1..].chunks_exact(2) {
                let inner =
                    block[0].convolution(&activate(&y, Activation::Relu)?, true, [1, 1], Activation::Relu)?;
                y = (y + block[1].convolution(&inner, true, [1, 1], Activation::Identity)?)?;
            }
        }
        finish(&dense.dense(&activate(&y, Activation::Relu)?.flatten_from(1)?, true, Activation::Relu)?, true)
    }))
}

/// 32 sequences of 20 steps, 256 inputs, 256 hidden.
pub(super) fn lstm() -> Result<Pass> {
    let (x, state) = (tensor(&[20, 32, 256])?, tensor(&[32, 512])?);
    let weights = [variable(&[1024, 256])?, variable(&[1024, 256])?, variable(&[1024])?];
    let starts = Tensor::zeros((20, 32), DType::U8, &Device::Cpu)?;
    Ok(Box::new(move || {
        let parameters = LstmParameters {
            input_weight: (&weights[0]).into(),
            hidden_weight: (&weights[1]).into(),
            bias: &weights[2],
        };
        finish(&lstm_unroll(&x, &state, &starts, parameters)?.0, true)
    }))
}
