//! AReaL (Fu et al., arXiv 2505.24298).
//!
//! Rule: generation never waits for learning as long as ⌊(N − 1)/B⌋ ≤ version + η holds for the N-th submission; new
//! weights interrupt decoding, and prefixes are computed again under them. Invariants: submitted ≤ (version + η + 1) B
//! at all times; with η = 0 every token has the version that learns from it. The lead bounds lags only in the order of
//! submission.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, ConsumeOrder, Dispatch, Interrupt, Layout, RoundEnd,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "areal",
    title: "AReaL",
    source: "arXiv 2505.24298",
    objective: "decoupled_ppo",
    advantage: "group, standardised",
    aggregation: "token_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "grpo" }
loss = { objective = { kind = "decoupled_ppo" } }
"#,
    reading: "N counts submissions; η = 4 of the 2 to 8 in use; the oldest complete groups first, and a head lag above 2 η is dropped",
    schedule,
    sizes: (32, 8),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Decoupled,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Streaming,
        interrupt: Interrupt::Token,
        admission: AdmissionRules { lead: Some(4), ..AdmissionRules::default() },
        consume: ConsumeFilter { max_head_lag: Some(8), ..ConsumeFilter::default() },
        order: ConsumeOrder::OldestReady,
        ..FlowSettings::default()
    }
}
