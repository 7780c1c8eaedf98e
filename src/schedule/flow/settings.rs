//! One point of the space of schedules, with the sizes it is used with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, ConsumeOrder, Dispatch, Interrupt, Layout, OnUpdate, RepetitionStop,
    Resume, RoundEnd, SourceConfig, WeightPush,
};
use crate::schedule::{KvResume, ScheduleConfig};

/// A schedule. The default is the synchronous one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowSettings {
    /// Groups of a batch (B, or N).
    pub batch: u64,
    /// Members of a group (G, or K).
    pub group_size: u32,
    /// Whether generation and learning share devices.
    pub layout: Layout,
    /// What is dispatched at once.
    pub dispatch: Dispatch,
    /// When the learner's turn comes.
    pub round_end: RoundEnd,
    /// Where generation can be stopped.
    pub interrupt: Interrupt,
    /// What becomes of an answer in flight when the weights change.
    pub on_update: OnUpdate,
    /// What an interrupted answer keeps.
    pub resume: Resume,
    /// Who may start.
    pub admission: AdmissionRules,
    /// What of the finished work is learned from.
    pub consume: ConsumeFilter,
    /// In which order.
    pub order: ConsumeOrder,
    /// When generators take up new weights.
    pub push: WeightPush,
    /// Early stop of answers that repeat themselves.
    pub repetition: Option<RepetitionStop>,
    /// Where prompts come from; empty: one source.
    pub sources: Vec<SourceConfig>,
    /// Whether a problem can be tried more than once: several answers, and anew after a loss.
    pub repeatable: bool,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            batch: 32,
            group_size: 8,
            layout: Layout::Colocated,
            dispatch: Dispatch::Batch { groups: 0 },
            round_end: RoundEnd::Batch,
            interrupt: Interrupt::None,
            on_update: OnUpdate::Carry,
            resume: Resume::Reprefill,
            admission: AdmissionRules::default(),
            consume: ConsumeFilter::default(),
            order: ConsumeOrder::Completion,
            push: WeightPush::Immediate,
            repetition: None,
            sources: Vec::new(),
            repeatable: true,
        }
    }
}

impl FlowSettings {
    /// Trajectories of a batch.
    #[must_use]
    pub fn batch_trajectories(&self) -> u64 {
        self.batch * u64::from(self.group_size)
    }

    /// Whether nothing is generated while the learner learns.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.layout == Layout::Colocated || self.round_end.pauses()
    }

    /// Places in the pool; where there is no rule, as many as a batch has.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.admission.pool.unwrap_or_else(|| self.batch_trajectories())
    }

    /// Whether groups take places of a pool that is counted here.
    #[must_use]
    pub fn counts_places(&self) -> bool {
        self.admission.pool.is_some()
            || matches!(
                self.round_end,
                RoundEnd::Budget { .. } | RoundEnd::Fraction { .. } | RoundEnd::Ready { .. }
            )
    }

    /// The sources, at least one.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceConfig> {
        let of_one = || SourceConfig { quota: Some(self.batch), ..SourceConfig::default() };
        if self.sources.is_empty() { vec![of_one()] } else { self.sources.clone() }
    }

    /// The point of this space that a schedule of `schedule.kind` is, for B groups a batch of G members each. Axes have
    /// to be laid over it.
    #[must_use]
    pub fn of_kind(kind: &ScheduleConfig, batch: u64, group_size: u32, forced_lag: Option<u64>) -> Self {
        let plain = Self { batch, group_size, ..Self::default() };
        let decoupled = |lead: u64, push| Self {
            layout: Layout::Decoupled,
            admission: AdmissionRules { lead: Some(lead), ..AdmissionRules::default() },
            push,
            ..plain.clone()
        };
        match (kind, forced_lag) {
            (_, Some(lag)) => decoupled(lag, WeightPush::Behind { lag }),
            (ScheduleConfig::Sync | ScheduleConfig::Axes(_), None) => plain,
            (ScheduleConfig::OneStep, None) => decoupled(1, WeightPush::Boundary),
            (ScheduleConfig::Async { lead, max_groups, resume }, None) => {
                let streaming = Self {
                    dispatch: Dispatch::Prompt,
                    round_end: RoundEnd::Streaming,
                    interrupt: Interrupt::Token,
                    resume: match resume {
                        KvResume::Reprefill => Resume::Reprefill,
                        KvResume::KeepKv => Resume::KeepKv,
                    },
                    ..decoupled(*lead, WeightPush::Immediate)
                };
                let pool = max_groups.map(|groups| groups * u64::from(group_size));
                Self { admission: AdmissionRules { pool, ..streaming.admission }, ..streaming }
            }
        }
    }
}
