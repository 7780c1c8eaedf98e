//! Settings of the policy network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Non-linearity of hidden layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActivationKind {
    /// max(x, 0).
    #[default]
    Relu,
    /// Hyperbolic tangent.
    Tanh,
}

/// What turns an observation into features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TorsoConfig {
    /// Fully connected layers; image observations are flattened.
    Mlp {
        /// Width of each hidden layer.
        hidden: Vec<usize>,
    },
    /// One 3x3 convolution (stride 1, no padding) and one fully connected layer: the usual MinAtar net.
    Conv {
        /// Output channels of the convolution.
        channels: usize,
        /// Width of the fully connected layer.
        hidden: usize,
    },
    /// The deep residual net of IMPALA (Espeholt et al. 2018): for each stage a 3x3 convolution, max-pooling 3x3
    /// with stride 2, and two residual blocks; then a fully connected layer.
    Resnet {
        /// Channels of each stage (16, 32, 32 in the paper).
        channels: Vec<usize>,
        /// Width of the fully connected layer (256 in the paper).
        hidden: usize,
    },
}

impl TorsoConfig {
    /// The least width or number of channels of any layer.
    #[must_use]
    pub fn least_width(&self) -> usize {
        match self {
            Self::Mlp { hidden } => hidden.iter().copied().min().unwrap_or(1),
            Self::Conv { channels, hidden } => *channels.min(hidden),
            Self::Resnet { channels, hidden } => channels.iter().copied().min().unwrap_or(1).min(*hidden),
        }
    }
}

impl Default for TorsoConfig {
    fn default() -> Self {
        Self::Mlp { hidden: vec![64, 64] }
    }
}

/// Recurrent core between the torso and the heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CoreConfig {
    /// A long short-term memory whose state travels in the unroll.
    Lstm {
        /// Width of the hidden state (the whole state is twice as wide).
        size: usize,
    },
}

/// The network: torso, optional core, heads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// What turns an observation into features.
    pub torso: TorsoConfig,
    /// Non-linearity of the torso's layers.
    pub activation: ActivationKind,
    /// Recurrent core; none by default.
    pub core: Option<CoreConfig>,
    /// Give the network the previous action (one-hot, or the values of a continuous one).
    pub last_action: bool,
    /// Give the network the previous reward.
    pub last_reward: bool,
    /// Use a second torso for the value instead of sharing the policy's. Refused together with a core.
    pub separate_value: bool,
    /// Normalise observations by running mean and variance, which are part of the published parameters.
    pub normalize_observations: bool,
    /// Initial log standard deviation of continuous actions, before squashing.
    pub initial_log_std: f32,
}
