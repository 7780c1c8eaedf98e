//! DeepSeek-V4.1-Flash (arXiv 2609.19969, section 5.2, in translation).
//!
//! Rule: a pool of C places; every sample that ends gives one back, and a group starts whenever G are free, whichever
//! groups they come from. When a batch is complete whose share of old tokens is within ρ, everything pauses at its next
//! token; KV and routing are kept, so that going on computes nothing again. Invariants: C − G < live ≤ C while no cap
//! binds; live_d ≤ cap_d; no gradient beyond the lag mask; state is freed when a sample ends.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, Dispatch, Interrupt, Layout, Resume, RoundEnd, ShortDrop, TokenMask,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "deepseek_v4_1",
    title: "DeepSeek-V4.1-Flash",
    source: "arXiv 2609.19969",
    objective: "ppo",
    advantage: "group mean",
    aggregation: "token_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "mean_baseline" }
loss = { objective = { kind = "ppo" } }
"#,
    reading: "no threshold is public: C is four batches, ρ = 0.5, tokens more than 4 updates old are masked, groups below the lower \
              quartile of lengths are dropped for 5 updates",
    schedule,
    sizes: (16, 16),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Colocated,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Ready { max_old_fraction: 0.5, max_carried: 1.0 },
        interrupt: Interrupt::Token,
        resume: Resume::KeepKvAndRouting,
        admission: AdmissionRules {
            pool: Some(4 * batch * u64::from(group_size)),
            ..AdmissionRules::default()
        },
        consume: ConsumeFilter {
            mask: TokenMask::LagAbove { lag: 4 },
            short_drop: Some(ShortDrop::default()),
            ..ConsumeFilter::default()
        },
        ..FlowSettings::default()
    }
}
