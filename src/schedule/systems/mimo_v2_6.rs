//! MiMo-V2.6 (arXiv 2610.11959, from detailed notes).
//!
//! Rule: a mixer launches groups so that every batch has exactly its quota of each source; a full batch pauses
//! generation; groups whose head lag is above 4 are dropped, and those whose rewards are alike. Invariants: source
//! counts of every batch are the quotas; head lag ≤ 4.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, Dispatch, Interrupt, Layout, MixerConfig, RoundEnd,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "mimo_v2_6",
    title: "MiMo-V2.6",
    source: "arXiv 2610.11959",
    objective: "four_bound",
    advantage: "group mean after rubric scores",
    aggregation: "prompt_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "mean_baseline" }
loss = { objective = { kind = "four_bound" }, aggregation = "prompt_mean" }
"#,
    reading: "devices in common; the lag is that of the oldest token; the pool is two batches; quotas hold strictly",
    schedule,
    sizes: (98, 16),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Colocated,
        dispatch: Dispatch::Mixer(MixerConfig::default()),
        round_end: RoundEnd::Ready { max_old_fraction: 1.0, max_carried: 1.0 },
        interrupt: Interrupt::Token,
        admission: AdmissionRules {
            pool: Some(2 * batch * u64::from(group_size)),
            ..AdmissionRules::default()
        },
        consume: ConsumeFilter { max_head_lag: Some(4), zero_advantage: true, ..ConsumeFilter::default() },
        ..FlowSettings::default()
    }
}
