//! Settings of the token learner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::{ShapingConfig, TokenAdvantageConfig};
use super::loss::TokenLossConfig;
use crate::learner::optimizer::{AdamwConfig, OptimizerConfig};
use crate::learner::schedule::{ScheduleConfig, ScheduleKind};
use crate::policy::Checkpointing;

/// The value head and its loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// Weight of the value loss.
    pub coefficient: f64,
    /// How far a value may move from its old one before its gradient stops; absent: as far as it likes.
    pub clip: Option<f64>,
    /// Whether an answer that was cut off is worth what the critic says of its last token, instead of its reward alone.
    pub bootstrap_truncated: bool,
}

impl Default for CriticConfig {
    fn default() -> Self {
        Self { coefficient: 0.5, clip: None, bootstrap_truncated: false }
    }
}

/// One effort that answers are asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffortConfig {
    /// What it is called.
    pub name: String,
    /// How the model is told: put in front of a text prompt, or of a conversation as a message of the system's.
    #[serde(default)]
    pub instruction: String,
    /// How many times its base budget an answer of this effort may take (`learner.shaping.effort_budget`).
    #[serde(default = "one")]
    pub tau: f64,
}

fn one() -> f64 {
    1.0
}

/// Which answers to a problem are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// All of its group.
    #[default]
    Group,
    /// Those of the same effort: subgroups with means of their own.
    Effort,
}

/// How answers become updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenLearnerConfig {
    /// Problems in a batch; one group of answers each.
    pub prompts: usize,
    /// Answers to each problem.
    pub group_size: usize,
    /// Efforts that they are asked for, member by member in turn; none: the problem is asked as it is.
    pub efforts: Vec<EffortConfig>,
    /// What is minimised.
    pub loss: TokenLossConfig,
    /// What is learned from rewards.
    pub advantage: TokenAdvantageConfig,
    /// Which answers to a problem are compared with each other.
    pub compare: Compare,
    /// What changes rewards before they become advantages.
    pub shaping: ShapingConfig,
    /// The value head and its loss, for advantages that need values.
    pub critic: CriticConfig,
    /// Penalty on the divergence from the reference policy inside the reward, per nat; 0: none.
    pub reward_kl: f64,
    /// Passes over each batch.
    pub epochs: usize,
    /// Parts that each pass is cut into, by whole groups.
    pub minibatches: usize,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// Learning rate and its course.
    pub schedule: ScheduleConfig,
    /// Largest global norm of a gradient; larger ones are scaled down. Absent: no bound.
    pub clip_norm: Option<f64>,
    /// Tokens that go through the model at a time, prompts included; bounds memory, not what is learned.
    pub microbatch_tokens: usize,
    /// What is kept of a forward pass for the backward pass.
    pub checkpointing: Checkpointing,
    /// Drop groups whose rewards are all alike, and sample others in their place.
    pub drop_zero_variance: bool,
    /// Leave answers that were cut off out of the loss.
    pub mask_truncated: bool,
    /// Groups with a token older than this many updates are dropped and sampled anew. Absent: no bound.
    pub max_lag: Option<u64>,
    /// Learn from every batch exactly this many updates late, for studies. Absent: as the schedule has it.
    pub forced_lag: Option<u64>,
    /// Run the experts that generation recorded instead of the router's choice (`generate.engine.record_experts`).
    pub replay_experts: bool,
    /// CPU threads of the learner's operators.
    pub threads: usize,
    /// Every so many updates the log-probabilities of a group are recomputed under the versions that sampled it and
    /// compared. 0: never.
    pub check_every: u64,
}

impl Default for TokenLearnerConfig {
    fn default() -> Self {
        Self {
            prompts: 8,
            group_size: 8,
            efforts: Vec::new(),
            loss: TokenLossConfig::default(),
            advantage: TokenAdvantageConfig::default(),
            compare: Compare::default(),
            shaping: ShapingConfig::default(),
            critic: CriticConfig::default(),
            reward_kl: 0.0,
            epochs: 1,
            minibatches: 1,
            optimizer: OptimizerConfig::Adamw(AdamwConfig { weight_decay: 0.0, ..AdamwConfig::default() }),
            schedule: ScheduleConfig { learning_rate: 1e-4, kind: ScheduleKind::Constant, ramp_updates: 10 },
            clip_norm: Some(1.0),
            microbatch_tokens: 1024,
            checkpointing: Checkpointing::default(),
            drop_zero_variance: false,
            mask_truncated: false,
            max_lag: None,
            forced_lag: None,
            replay_experts: false,
            threads: 1,
            check_every: 0,
        }
    }
}

impl TokenLearnerConfig {
    /// The effort that a member of a group is asked for; `None` where there is no choice of efforts.
    #[must_use]
    pub fn effort_of(&self, member: usize) -> Option<&EffortConfig> {
        self.efforts.get(member % self.efforts.len().max(1))
    }
}
