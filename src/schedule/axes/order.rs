//! In which order complete groups are learned from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The order of consumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConsumeOrder {
    /// As they were dispatched: the next batch waits for its slowest group. With a lead of η batches this makes lag ≤ η
    /// a theorem.
    Submission,
    /// As they became complete.
    #[default]
    Completion,
    /// Of those that are complete, those dispatched first. This does not bound the lag: a group that ends late is not
    /// waited for.
    OldestReady,
}
