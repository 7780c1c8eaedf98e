//! The configuration of a token run: a language model generates, is graded, and learns.

use std::path::PathBuf;

use candle_core::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckpointConfig, Fault, RestartConfig, TelemetryConfig};
use crate::actors::token::{GradingConfig, TokenEvaluationConfig};
use crate::generate::EngineConfig;
use crate::learner::token::TokenLearnerConfig;
use crate::ops::Sampling;
use crate::policy::{DecoderConfig, LoraConfig, NamePatterns};
use crate::schedule::ScheduleConfig;

/// Which task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// Registered name; `forebay tasks` lists them.
    pub name: String,
    /// Options of that task.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub options: toml::Table,
    /// Whether a finite task's problems are taken in another order in each pass.
    pub shuffle: bool,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self { name: "reverse".into(), options: toml::Table::new(), shuffle: true }
    }
}

/// The float type of weights, activations and KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// bfloat16, for a learner on a CUDA device. The optimiser keeps the trained parameters in f32: they are what
    /// checkpoints hold, and their roundings are computed with and published. Sums of gradients and log-probabilities
    /// are f32. Generators on the CPU compute in f32 with the rounded weights; teachers and a critic of its own stay in
    /// f32.
    Bf16,
}

impl Precision {
    /// As candle calls it.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}

/// Which language model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face directory or a GGUF file to start from; `~` and `${NAME}` are filled in. Absent: a model from
    /// scratch, with a token for each character of the task.
    pub path: Option<PathBuf>,
    /// Shape of a model from scratch; its vocabulary is that of the task's characters.
    pub decoder: DecoderConfig,
    /// Longest context that is used; absent: all that the model has.
    pub context: Option<usize>,
    /// Low-rank adapters: they alone are trained, beside a value head where there is one. Absent: all parameters are.
    pub adapters: Option<LoraConfig>,
    /// Parameters that are not trained, by patterns over their names such as `"model.embed_tokens.*"`; `*` stands for
    /// any part of a name.
    pub frozen: NamePatterns,
    /// The float type of weights, activations and KV cache.
    pub precision: Precision,
}

/// Which device does what: `cpu`, or `cuda:0`, `cuda:1`, … in a build with the `cuda` feature. A name that is given
/// more than once is the same device: the weights on it are shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenDevicesConfig {
    /// The learner's device; evaluations, a critic of its own and teachers are there too. Reward models grade on the
    /// CPU.
    pub learner: String,
    /// Devices of generation: a generator for each of them, with a KV cache of its own (`generate.engine`). Groups go
    /// to whichever has room.
    pub generation: Vec<String>,
}

impl Default for TokenDevicesConfig {
    fn default() -> Self {
        Self { learner: "cpu".into(), generation: vec!["cpu".into()] }
    }
}

/// How answers are generated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateConfig {
    /// Most tokens that the model may write for an answer, all its turns together.
    pub max_new_tokens: usize,
    /// Sampling temperature.
    pub temperature: f32,
    /// Sample among this many of the most probable tokens only. What each token was sampled among is recorded, and the
    /// update compares policies over the same tokens.
    pub top_k: Option<usize>,
    /// Sample among the fewest most probable tokens only (of the `top_k`) whose probabilities add up to this; recorded
    /// in the same way.
    pub top_p: Option<f32>,
    /// Strings that end an answer, beside the model's own end tokens.
    pub stop: Vec<String>,
    /// CPU threads of each generator on the CPU.
    pub threads: usize,
    /// The engine.
    pub engine: EngineConfig,
    /// Positions of stopped answers whose keys and values are kept in host memory, where the schedule keeps them
    /// (`schedule.resume`); what finds no room is computed again when its answer goes on. Absent: as many as the engines'
    /// caches hold.
    pub host_cache_tokens: Option<usize>,
    /// Give the memory of the KV cache back while the learner learns, and take it again when generation goes on; for
    /// schedules in which they take turns. What stopped answers keep is in host memory by then. Absent: generators on the
    /// learner's CUDA device do.
    pub release_memory: Option<bool>,
    /// Sample with weights rounded to bfloat16, to study a mismatch between generation and training.
    pub bf16_weights: bool,
}

impl Default for GenerateConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: 32,
            temperature: 1.0,
            top_k: None,
            top_p: None,
            stop: Vec::new(),
            threads: 1,
            engine: EngineConfig::default(),
            host_cache_tokens: None,
            release_memory: None,
            bf16_weights: false,
        }
    }
}

impl GenerateConfig {
    /// How training answers are sampled.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        Sampling { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p }
    }
}

/// Learning from demonstrations before reinforcement learning begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupConfig {
    /// Updates at most; 0: no warm-up.
    pub updates: u64,
    /// It ends sooner when the mean loss (nats a token) of its last 5 updates is at or below this, so that models from
    /// different seeds know equally much. Absent: it takes all its updates.
    pub target_loss: Option<f64>,
    /// Demonstrations of an update.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f64,
}

impl Default for WarmupConfig {
    fn default() -> Self {
        Self { updates: 0, target_loss: None, batch: 64, learning_rate: 1e-3 }
    }
}

/// When a token run is complete: at the first of these that is reached. At least one must be given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenStopConfig {
    /// Tokens generated.
    pub tokens: Option<u64>,
    /// Learner updates.
    pub updates: Option<u64>,
    /// Seconds of training, all sessions of a resumed run together.
    pub seconds: Option<f64>,
    /// Mean reward of the last 10 updates.
    pub target_reward: Option<f64>,
    /// Mean reward of the last evaluation (`evaluation.every_updates`): its accuracy, where right is 1 and wrong 0.
    pub target_evaluation: Option<f64>,
}

/// A whole token run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenConfig {
    /// Seed of everything random.
    pub seed: u64,
    /// Published system whose schedule, sizes, objective and advantage hold where nothing else is set; `forebay systems`
    /// lists them.
    pub system: Option<String>,
    /// The task.
    pub task: TaskConfig,
    /// The language model.
    pub model: ModelConfig,
    /// How answers are generated.
    pub generate: GenerateConfig,
    /// How answers are graded.
    pub grading: GradingConfig,
    /// How generation and learning take turns.
    pub schedule: ScheduleConfig,
    /// Learning from demonstrations before reinforcement learning begins.
    pub warmup: WarmupConfig,
    /// How answers become updates.
    pub learner: TokenLearnerConfig,
    /// Which device does what.
    pub devices: TokenDevicesConfig,
    /// When the run is complete.
    pub stop: TokenStopConfig,
    /// Evaluation on problems that are not learned from.
    pub evaluation: TokenEvaluationConfig,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Restarts of failed generators.
    pub supervision: RestartConfig,
    /// Metrics, files and progress.
    pub telemetry: TelemetryConfig,
    /// Deliberate faults, for tests and demonstrations.
    pub faults: Vec<Fault>,
}
