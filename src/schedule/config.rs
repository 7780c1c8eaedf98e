//! Which schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to the KV cache of sequences in flight when new weights arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvResume {
    /// It is computed again under the new weights.
    #[default]
    Reprefill,
    /// It is kept: cheap, but the recorded log-probabilities are then those of no single version.
    KeepKv,
}

/// How generation and learning take turns, by `kind`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleConfig {
    /// Generate a batch, learn from it, and again: every token is of the version that learns from it.
    #[default]
    Sync,
    /// While batch t is generated, batch t − 1 is learned from: exactly one update behind.
    OneStep,
    /// Generation and learning go on at once; weights arrive between two tokens.
    Async {
        /// How many batches generation may be ahead of learning (η).
        #[serde(default = "default_lead")]
        lead: u64,
        /// Most groups in flight; absent: as many as the lead admits.
        #[serde(default)]
        max_groups: Option<u64>,
        /// What happens to the KV cache at an update.
        #[serde(default)]
        resume: KvResume,
    },
    /// Any point of the space of schedules, axis by axis; what is not said is as in the synchronous one. `system` fills
    /// this in.
    Axes(AxesTable),
}

/// Axes that are not as in the synchronous schedule, as they are written below `schedule`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AxesTable(
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")] pub toml::Table,
);

fn default_lead() -> u64 {
    2
}
