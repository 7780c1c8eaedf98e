//! Settings of the learner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::VtraceConfig;
use super::objective::{LossConfig, PpoConfig};
use super::optimizer::OptimizerConfig;
use super::schedule::ScheduleConfig;

/// What is optimised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ObjectiveConfig {
    /// IMPALA: V-trace targets, which correct for the policy lag.
    Vtrace(VtraceConfig),
    /// Advantage actor-critic with n-step returns and no correction, for comparison.
    ActorCritic(ActorCriticConfig),
    /// PPO: clipped surrogate and generalised advantage estimation.
    Ppo(PpoSettings),
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self::Vtrace(VtraceConfig::default())
    }
}

/// Settings of the plain actor-critic objective.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActorCriticConfig {
    /// Rewards in a return before it bootstraps; absent: up to the end of the unroll.
    pub n_step: Option<usize>,
}

/// Settings of PPO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PpoSettings {
    /// Lambda of the advantage estimation.
    pub gae_lambda: f64,
    /// Passes over each batch.
    pub epochs: usize,
    /// Parts that each pass is cut into, by whole columns (environments).
    pub minibatches: usize,
    /// The surrogate.
    pub surrogate: PpoConfig,
}

impl Default for PpoSettings {
    fn default() -> Self {
        Self { gae_lambda: 0.95, epochs: 4, minibatches: 4, surrogate: PpoConfig::default() }
    }
}

/// How experience becomes updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Unrolls in a batch.
    pub batch_unrolls: usize,
    /// What is optimised.
    pub objective: ObjectiveConfig,
    /// Discount of a step (gamma).
    pub discount: f64,
    /// Weights of the parts of the loss, and how it is summed.
    pub loss: LossConfig,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// Learning rate and its course.
    pub schedule: ScheduleConfig,
    /// Largest global norm of a gradient; larger ones are scaled down. Absent: no bound.
    pub clip_norm: Option<f64>,
    /// Divide rewards by the running standard deviation of the discounted return.
    pub normalize_rewards: bool,
    /// Unrolls older than this many updates are dropped instead of learned from. Absent: no bound.
    pub max_lag: Option<u64>,
    /// CPU threads of the learner's operators.
    pub threads: usize,
    /// Every so many updates the log-probabilities of one unroll are recomputed under the versions that sampled it
    /// and compared. 0: never.
    pub check_every: u64,
}

impl Default for LearnerConfig {
    fn default() -> Self {
        Self {
            batch_unrolls: 1,
            objective: ObjectiveConfig::default(),
            discount: 0.99,
            loss: LossConfig::default(),
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            clip_norm: Some(40.0),
            normalize_rewards: false,
            max_lag: None,
            threads: 1,
            check_every: 0,
        }
    }
}
