//! The configuration of a run: the modules' own settings, composed.

mod check;
mod critic_check;
mod error;
mod explain;
mod load;
mod off_policy_check;
mod overrides;
mod path;
mod reference;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod sample;
mod schema;
mod stop;
pub mod suggest;
mod system;
mod teacher_check;
mod token;
mod token_check;
mod token_reward_check;
mod token_schedule;
mod token_step_check;
mod workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use check::Contradiction;
pub use error::ConfigError;
pub use load::{Source, load};
pub use overrides::Override;
pub use reference::reference;
pub use token::{
    GenerateConfig, ModelConfig, Precision, TaskConfig, TokenConfig, TokenDevicesConfig, TokenStopConfig,
    WarmupConfig,
};
pub use workload::RunConfig;

pub use crate::actors::{EvaluationConfig, Fault, InferenceConfig, RestartConfig};
pub use crate::codec::CheckpointConfig;
pub use crate::learner::LearnerConfig;
pub use crate::policy::PolicyConfig;
pub use crate::telemetry::TelemetryConfig;

use crate::telemetry::{RunOutcome, Summary};

/// Which environment, and how it is dressed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvConfig {
    /// Registered name; `forebay envs` lists them.
    pub name: String,
    /// Options of that environment.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub options: toml::Table,
    /// Steps after which an episode is truncated; absent: the environment's usual limit, 0: none.
    pub time_limit: Option<u32>,
    /// Observations stacked into one, the newest last. 1: no stacking.
    pub frame_stack: usize,
    /// Rewards are clipped to plus or minus this before the learner sees them; returns are reported unclipped.
    pub reward_clip: Option<f32>,
    /// Longest time a call into an environment may take before the run ends, seconds.
    pub timeout_seconds: f64,
}

impl Default for EnvConfig {
    fn default() -> Self {
        Self {
            name: "CartPole-v1".into(),
            options: toml::Table::new(),
            time_limit: None,
            frame_stack: 1,
            reward_clip: None,
            timeout_seconds: 300.0,
        }
    }
}

/// Where actions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InferenceMode {
    /// Every rollout actor runs the policy itself, on its own CPU thread.
    #[default]
    Local,
    /// An inference actor on each inference device answers all rollout actors in batches.
    Central,
}

/// How experience is generated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Rollout actors, one thread each.
    pub actors: usize,
    /// Environments of each actor, stepped together.
    pub envs_per_actor: usize,
    /// Steps in an unroll (T).
    pub unroll_length: usize,
    /// Where actions come from.
    pub inference: InferenceMode,
    /// With central inference: step half of an actor's environments while the other half waits for its actions.
    pub double_buffer: bool,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            actors: 2,
            envs_per_actor: 32,
            unroll_length: 20,
            inference: InferenceMode::Local,
            double_buffer: true,
        }
    }
}

/// The queue between rollout actors and learner.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Unrolls it can hold; absent: one batch. At least one batch.
    pub capacity: Option<usize>,
}

/// Which device does what: `cpu`, or `cuda:0`, `cuda:1`, … in a build with the `cuda` feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DevicesConfig {
    /// The learner's device.
    pub learner: String,
    /// Devices of central inference; rollout actors are dealt out to them in turn.
    pub inference: Vec<String>,
}

impl Default for DevicesConfig {
    fn default() -> Self {
        Self { learner: "cpu".into(), inference: vec!["cpu".into()] }
    }
}

/// When a run is complete: at the first of these that is reached. At least one must be given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopConfig {
    /// Environment steps taken by all actors together.
    pub env_steps: Option<u64>,
    /// Learner updates.
    pub updates: Option<u64>,
    /// Seconds of training, all sessions of a resumed run together.
    pub seconds: Option<f64>,
    /// Mean return of the last 100 training episodes.
    pub target_return: Option<f64>,
}

impl StopConfig {
    /// The condition that is reached, in words. `score` is the mean return of 100 episodes, once there are so many.
    #[must_use]
    pub fn reached(&self, env_steps: u64, updates: u64, seconds: f64, score: Option<f64>) -> Option<String> {
        stop::first_reached([
            ("env_steps", self.env_steps.map(|limit| limit as f64), Some(env_steps as f64)),
            ("updates", self.updates.map(|limit| limit as f64), Some(updates as f64)),
            ("seconds", self.seconds, Some(seconds)),
            ("target_return", self.target_return, score),
        ])
    }

    /// Whether a run that ended so would stop at once if it went on under these conditions.
    #[must_use]
    pub fn is_complete(&self, summary: &Summary) -> bool {
        let Summary { env_steps, updates, wall_seconds, return_mean, .. } = summary;
        summary.status == RunOutcome::Completed
            && self.reached(*env_steps, *updates, *wall_seconds, *return_mean).is_some()
    }
}

/// Published systems that a control run can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlSystem {
    /// Actors that copy weights between unrolls, a bounded queue, V-trace: what a control run does in any case.
    Impala,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Seed of everything random.
    pub seed: u64,
    /// The system that the run is of, for the record.
    pub system: Option<ControlSystem>,
    /// The environment.
    pub env: EnvConfig,
    /// The network.
    pub policy: PolicyConfig,
    /// How experience is generated.
    pub rollout: RolloutConfig,
    /// How central inference forms batches.
    pub inference: InferenceConfig,
    /// The queue between rollout actors and learner.
    pub queue: QueueConfig,
    /// How experience becomes updates.
    pub learner: LearnerConfig,
    /// Which device does what.
    pub devices: DevicesConfig,
    /// When the run is complete.
    pub stop: StopConfig,
    /// Greedy evaluation.
    pub evaluation: EvaluationConfig,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Restarts of failed actors.
    pub supervision: RestartConfig,
    /// Metrics, files and progress.
    pub telemetry: TelemetryConfig,
    /// Deliberate faults, for tests and demonstrations.
    pub faults: Vec<Fault>,
}
