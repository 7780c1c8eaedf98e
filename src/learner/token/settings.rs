//! Settings of the token learner.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::{ShapingConfig, TokenAdvantageConfig};
use super::kept::Keep;
use super::kl_control::KlControlConfig;
use super::loss::TokenLossConfig;
use crate::learner::optimizer::{AdamwConfig, OptimizerConfig};
use crate::learner::schedule::{ScheduleConfig, ScheduleKind};
use crate::policy::{Checkpointing, Decoder, NamePatterns};
use crate::schedule::{Automatic, Bounds};

/// What the value head stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticTrunk {
    /// The policy's own layers; policy and values are learned in one update.
    #[default]
    Shared,
    /// Layers of its own, which begin as the policy's or come from `learner.critic.path`, with updates of their own.
    Separate,
}

/// Which parameters of a separate value function are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticParameters {
    /// All.
    #[default]
    All,
    /// Those of feed-forward networks or experts, and the value head; embeddings, attention, norms and routers are frozen.
    FeedForward,
}

/// In which order a separate value function and the policy learn from a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpdateOrder {
    /// Value updates, values computed anew, advantages, policy update.
    #[default]
    ValueFirst,
    /// Values, advantages, policy update, value updates.
    PolicyFirst,
}

/// The value function and its loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// What the value head stands on.
    pub trunk: CriticTrunk,
    /// Weight of the value loss beside the policy's, where they share their layers.
    pub coefficient: f64,
    /// How far a value may move from its old one before its gradient stops; absent: as far as it likes.
    pub clip: Option<f64>,
    /// Whether an answer that was cut off is worth what the critic says of its last token, instead of its reward alone.
    pub bootstrap_truncated: bool,
    /// Steps of a separate value function's optimiser for each step of the policy's.
    pub updates: usize,
    /// In which order a separate value function and the policy learn from a batch.
    pub order: UpdateOrder,
    /// Updates at the start of reinforcement learning in which a separate value function learns and the policy does not.
    pub warmup_updates: u64,
    /// Which parameters of a separate value function are trained.
    pub train: CriticParameters,
    /// More of its parameters that are not trained, by patterns over their names such as `"model.layers.0.*"`.
    pub frozen: NamePatterns,
    /// What a separate value function begins as: a directory of `forebay pretrain-value`, or a language model as
    /// `model.path` takes it, of the policy's vocabulary. Absent: the policy's layers when reinforcement learning begins.
    pub path: Option<PathBuf>,
    /// Learning rate of a separate value function, with the course of `learner.schedule`. Absent: the policy's.
    pub learning_rate: Option<f64>,
    /// Optimiser of a separate value function. Absent: one like the policy's.
    pub optimizer: Option<OptimizerConfig>,
}

impl Default for CriticConfig {
    fn default() -> Self {
        Self {
            trunk: CriticTrunk::default(),
            coefficient: 0.5,
            clip: None,
            bootstrap_truncated: false,
            updates: 1,
            order: UpdateOrder::default(),
            warmup_updates: 0,
            train: CriticParameters::default(),
            frozen: NamePatterns::default(),
            path: None,
            learning_rate: None,
            optimizer: None,
        }
    }
}

impl CriticConfig {
    /// Whether a parameter of this name of a separate value function is trained.
    #[must_use]
    pub fn is_trained(&self, name: &str) -> bool {
        let open = self.train == CriticParameters::All || Decoder::is_feed_forward(name);
        open && !self.frozen.matches(name)
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

/// A frozen language model that teaches the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeacherConfig {
    /// Source of the problems that it teaches; absent: those of all sources that have no teacher of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Name of the effort that it teaches; absent: all efforts that have no teacher of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Directory of a run (its newest checkpoint), a folder of its `checkpoints`, a Hugging Face directory or a GGUF file,
    /// of the policy's tokens; `~` and `${NAME}` are filled in.
    pub path: PathBuf,
}

impl TeacherConfig {
    /// What it teaches, in words.
    #[must_use]
    pub fn subject(&self) -> String {
        subject(self.source.as_deref(), self.effort.as_deref())
    }
}

/// A source and an effort in words.
pub(in crate::learner) fn subject(source: Option<&str>, effort: Option<&str>) -> String {
    match (source, effort) {
        (None, None) => "all sources".into(),
        (Some(source), None) => format!("source `{source}`"),
        (None, Some(effort)) => format!("effort `{effort}`"),
        (Some(source), Some(effort)) => format!("source `{source}` at effort `{effort}`"),
    }
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
    /// Which of them are learned from.
    pub keep: Keep,
    /// Settings that are chosen in the course of the run, from the times that generation and learning take: those that
    /// are named here bound the choice. With `--serial`, where a run may not depend on time, the least is taken: one
    /// pass, two answers.
    pub auto: Vec<Automatic>,
    /// Efforts that they are asked for, member by member in turn; none: the problem is asked as it is.
    pub efforts: Vec<EffortConfig>,
    /// What is minimised.
    pub loss: TokenLossConfig,
    /// Frozen models that an objective distils, each of some sources or efforts; the closest one teaches an answer: of its
    /// source and effort, else of its source, else of its effort, else of everything.
    pub teachers: Vec<TeacherConfig>,
    /// What is learned from rewards.
    pub advantage: TokenAdvantageConfig,
    /// Which answers to a problem are compared with each other.
    pub compare: Compare,
    /// What changes rewards before they become advantages.
    pub shaping: ShapingConfig,
    /// The value function and its loss, for advantages that need values.
    pub critic: CriticConfig,
    /// Penalty on the divergence from the reference policy inside the reward, per nat; 0: none.
    pub reward_kl: f64,
    /// Lets the coefficient of the reference KL, in the loss or in the reward, follow a target; it begins at what is set
    /// there. Absent: it stays.
    pub kl_control: Option<KlControlConfig>,
    /// The reference policy becomes the current one after every so many of the policy's updates. Absent: it stays the
    /// policy with which reinforcement learning began.
    pub refresh_reference: Option<u64>,
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
    /// Leave tokens that were sampled more than this many updates ago out of the loss, denominators included; the rest of
    /// their answer stays. Groups without a younger token are dropped. Absent: no bound.
    pub max_token_age: Option<u64>,
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
            keep: Keep::default(),
            auto: Vec::new(),
            efforts: Vec::new(),
            loss: TokenLossConfig::default(),
            teachers: Vec::new(),
            advantage: TokenAdvantageConfig::default(),
            compare: Compare::default(),
            shaping: ShapingConfig::default(),
            critic: CriticConfig::default(),
            reward_kl: 0.0,
            kl_control: None,
            refresh_reference: None,
            epochs: 1,
            minibatches: 1,
            optimizer: OptimizerConfig::Adamw(AdamwConfig { weight_decay: 0.0, ..AdamwConfig::default() }),
            schedule: ScheduleConfig { learning_rate: 1e-4, kind: ScheduleKind::Constant, ramp_updates: 10 },
            clip_norm: Some(1.0),
            microbatch_tokens: 1024,
            checkpointing: Checkpointing::default(),
            drop_zero_variance: false,
            mask_truncated: false,
            max_token_age: None,
            max_lag: None,
            forced_lag: None,
            replay_experts: false,
            threads: 1,
            check_every: 0,
        }
    }
}

impl TokenLearnerConfig {
    /// Whether there is a value function with layers of its own.
    #[must_use]
    pub fn has_separate_critic(&self) -> bool {
        self.advantage.needs_values() && self.critic.trunk == CriticTrunk::Separate
    }

    /// Whether the policy has a value head on its own layers.
    #[must_use]
    pub fn has_shared_critic(&self) -> bool {
        self.advantage.needs_values() && self.critic.trunk == CriticTrunk::Shared
    }

    /// Whether this setting is chosen in the course of the run.
    #[must_use]
    pub fn is_automatic(&self, setting: Automatic) -> bool {
        self.auto.contains(&setting)
    }

    /// The most of what is chosen in the course of the run.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let of = |setting, most: usize| self.is_automatic(setting).then_some(most as u64);
        Bounds {
            epochs: of(Automatic::Epochs, self.epochs),
            answers: of(Automatic::GroupSize, self.group_size),
        }
    }

    /// Learning rate of a separate value function and its course.
    #[must_use]
    pub fn critic_schedule(&self) -> ScheduleConfig {
        let learning_rate = self.critic.learning_rate.unwrap_or(self.schedule.learning_rate);
        ScheduleConfig { learning_rate, ..self.schedule }
    }

    /// The effort that a member of a group is asked for; `None` where there is no choice of efforts.
    #[must_use]
    pub fn effort_of(&self, member: usize) -> Option<&EffortConfig> {
        self.efforts.get(member % self.efforts.len().max(1))
    }

    /// Which of the teachers teaches answers to problems of a source at an effort; the closest one.
    #[must_use]
    pub fn teacher_of(&self, source: &str, effort: Option<&str>) -> Option<usize> {
        let teaches = |teacher: &TeacherConfig| {
            teacher.source.as_deref().is_none_or(|own| own == source)
                && teacher.effort.as_deref().is_none_or(|own| Some(own) == effort)
        };
        let closeness = |teacher: &TeacherConfig| (teacher.source.is_some(), teacher.effort.is_some());
        let found = self.teachers.iter().enumerate().filter(|(_, teacher)| teaches(teacher));
        found.max_by_key(|(_, teacher)| closeness(teacher)).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_teacher_teaches_and_a_source_counts_more_than_an_effort() {
        let teacher = |source: Option<&str>, effort: Option<&str>| TeacherConfig {
            source: source.map(Into::into),
            effort: effort.map(Into::into),
            path: PathBuf::new(),
        };
        let config = |teachers: Vec<TeacherConfig>| TokenLearnerConfig { teachers, ..Default::default() };
        let all = config(vec![
            teacher(None, None),
            teacher(None, Some("low")),
            teacher(Some("sums"), None),
            teacher(Some("sums"), Some("low")),
        ]);
        assert_eq!(all.teacher_of("sums", Some("low")), Some(3));
        assert_eq!(all.teacher_of("sums", Some("high")), Some(2));
        assert_eq!(all.teacher_of("copy", Some("low")), Some(1));
        assert_eq!(all.teacher_of("copy", Some("high")), Some(0));
        assert_eq!(all.teacher_of("copy", None), Some(0));
        let some = config(vec![teacher(None, Some("low")), teacher(Some("sums"), None)]);
        assert_eq!(some.teacher_of("sums", Some("low")), Some(1));
        assert_eq!((some.teacher_of("copy", Some("high")), some.teacher_of("copy", None)), (None, None));
    }
}
