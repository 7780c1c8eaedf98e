//! A small configuration with one field of every kind, for the tests of this folder.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sample {
    /// Seed of everything random.
    pub seed: u64,
    /// Where the learning happens.
    pub learner: Learner,
    /// Greatest lag, in updates.
    pub max_lag: Option<u32>,
    /// Layer widths | from the input.
    #[schemars(length(min = 1))]
    pub widths: Vec<usize>,
    /// Bounds of the observation.
    pub range: (f64, f64),
    /// Options of the environment, free.
    pub options: BTreeMap<String, serde_json::Value>,
    /// Evaluations, by name.
    pub evaluations: BTreeMap<String, Evaluation>,
    /// Stages, in order.
    pub stages: Vec<Evaluation>,
    /// An evaluation at the end.
    pub last: Option<Evaluation>,
    /// Where metrics go.
    pub sink: Sink,
}

/// The learner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Learner {
    /// Discount.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f32,
    /// Whether to normalise advantages.
    pub normalise: bool,
    /// How parameters move.
    pub optimizer: Optimizer,
    /// When to start.
    pub mode: Mode,
}

/// Update rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Optimizer {
    /// With moments.
    Adam {
        /// Step size.
        #[serde(default = "learning_rate")]
        learning_rate: f64,
        /// Decay of the moments.
        #[serde(default)]
        betas: Option<(f64, f64)>,
    },
    /// Plain.
    Sgd(Sgd),
    /// Parameters stay as they are.
    Frozen,
}

fn learning_rate() -> f64 {
    3e-4
}

/// Plain gradient descent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Sgd {
    /// Step size.
    pub learning_rate: f64,
    /// Bits of precision.
    #[serde(default)]
    pub bits: u8,
}

/// When learning starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// At once.
    Eager,
    /// When the queue is full.
    WhenFull,
}

/// One evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Evaluation {
    /// Episodes to play.
    pub episodes: u32,
    /// Environment, when another.
    pub env: Option<String>,
}

/// A place for metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sink {
    /// Nowhere.
    Off,
    /// A file.
    File(FileSink),
}

/// A file for metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSink {
    /// Its name.
    pub path: String,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            seed: 0,
            learner: Learner::default(),
            max_lag: None,
            widths: vec![64, 64],
            range: (-1.0, 1.0),
            options: BTreeMap::new(),
            evaluations: BTreeMap::new(),
            stages: Vec::new(),
            last: None,
            sink: Sink::Off,
        }
    }
}

impl Default for Learner {
    fn default() -> Self {
        Self {
            gamma: 0.99,
            normalise: true,
            optimizer: Optimizer::Adam { learning_rate: learning_rate(), betas: None },
            mode: Mode::Eager,
        }
    }
}
