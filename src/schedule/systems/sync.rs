//! Generate a batch, learn from it, and again.
//!
//! Rule: B groups are dispatched; when all have ended and been graded, generation stops until the update is loaded.
//! Invariant: every token is of the version that learns from it.

use super::System;
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "sync",
    title: "Synchronous baseline",
    source: "-",
    objective: "grpo",
    advantage: "group, standardised",
    aggregation: "token_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "grpo" }
loss = { objective = { kind = "grpo" }, aggregation = "token_mean" }
"#,
    reading: "a group that is dropped is replaced within the batch",
    schedule,
    sizes: (32, 8),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings { batch, group_size, ..FlowSettings::default() }
}
