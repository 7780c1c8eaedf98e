//! Kimi k1.5, partial rollouts (Kimi Team, arXiv 2501.12599).
//!
//! Rule: in each round an answer writes at most C tokens; unfinished ones pause and go on first in the next. When all
//! have stopped, complete groups are learned from. Invariants: tokens of a round ≤ C · live; no older token has a
//! gradient; segments concatenate to the answer. The reference of the square is the policy with which the round began.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, Dispatch, Interrupt, Layout, RepetitionStop, RoundEnd, TokenMask,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "kimi_k1_5",
    title: "Kimi k1.5",
    source: "arXiv 2501.12599",
    objective: "k15",
    advantage: "group mean",
    aggregation: "group_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "mean_baseline" }
loss = { objective = { kind = "k15", level = "token" }, aggregation = "group_mean" }
refresh_reference = 1
"#,
    reading: "C is a quarter of the longest answer (8192 of 32k); 8 answers a prompt; resuming computes the prefix again; \
              old tokens are masked, with the token form of the loss; the repetition rule",
    schedule,
    sizes: (32, 8),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Colocated,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Budget { tokens: 8192 },
        interrupt: Interrupt::Token,
        admission: AdmissionRules { pool: Some(batch * u64::from(group_size)), ..AdmissionRules::default() },
        consume: ConsumeFilter { mask: TokenMask::Old, ..ConsumeFilter::default() },
        repetition: Some(RepetitionStop::default()),
        ..FlowSettings::default()
    }
}
