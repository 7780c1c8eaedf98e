//! APRIL, active partial rollouts (Zhou et al., arXiv 2509.18521; slime).
//!
//! Rule: a round submits N' ≥ N groups, ends when N are complete, and recycles the rest whole, in the order in which
//! they were drawn; the next round draws from them first. Invariants: batches of exactly N groups, none split; the
//! buffer has fewer than N' groups unless groups were filtered; with N' = N and answers of one length it is the
//! synchronous schedule; nothing that was generated is thrown away.

use super::System;
use crate::schedule::axes::{Dispatch, Interrupt, Layout, RoundEnd};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "april",
    title: "APRIL",
    source: "arXiv 2509.18521",
    objective: "grpo",
    advantage: "group, standardised",
    aggregation: "token_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "grpo" }
loss = { objective = { kind = "grpo" }, aggregation = "token_mean" }
"#,
    reading: "groups that complete after the N-th wait in the buffer, where published code drops some; old tokens are learned from",
    schedule,
    sizes: (32, 8),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Colocated,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Groups { submit: 2 * batch },
        interrupt: Interrupt::Token,
        ..FlowSettings::default()
    }
}
