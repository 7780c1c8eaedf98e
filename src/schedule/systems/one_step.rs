//! Asynchronous RLHF (Noukhovitch et al., arXiv 2410.18252).
//!
//! Rule: while batch t is generated under θ_t, batch t − 1 is learned from; both end before t + 1 begins. Invariants:
//! lag 0 in the first update and exactly 1 after; at most one batch waits; a period takes the longer of the two, never
//! their sum.

use super::System;
use crate::schedule::axes::{AdmissionRules, Layout, WeightPush};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "one_step",
    title: "Asynchronous RLHF",
    source: "arXiv 2410.18252",
    objective: "online_dpo",
    advantage: "group pairs (best against worst)",
    aggregation: "seq_mean",
    gamma: 1.0,
    learner: r#"
loss = { objective = { kind = "online_dpo" } }
"#,
    reading: "ties are dropped and replaced; one update a batch",
    schedule,
    sizes: (64, 2),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Decoupled,
        admission: AdmissionRules { lead: Some(1), ..AdmissionRules::default() },
        push: WeightPush::Boundary,
        ..FlowSettings::default()
    }
}
