//! Kimi K3 (arXiv 2607.24653).
//!
//! Rule: N prompts of K answers keep NK in flight; when ⌈λNK⌉ have ended in a round and a group is complete, the rest
//! pauses, KV in a pool in host memory; paused ones go on first, and groups are added while there is room. A throttle
//! follows the engines' memory. Invariants: live ≤ NK and ≤ the throttle's limit; nothing fresh while something paused
//! waits; groups intact.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, Dispatch, Interrupt, Layout, Refill, Resume, RoundEnd, ThrottleConfig,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "kimi_k3",
    title: "Kimi K3",
    source: "arXiv 2607.24653",
    objective: "k3",
    advantage: "group mean",
    aggregation: "prompt_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "mean_baseline" }
loss = { objective = { kind = "k3" }, aggregation = "prompt_mean" }
"#,
    reading: "λ = 0.8; at least one complete group ends a round; KV is kept across versions; the throttle's rule",
    schedule,
    sizes: (32, 8),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    let pool = batch * u64::from(group_size);
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Colocated,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Fraction { lambda: 0.8, min_ready: 1, refill: Refill::Continuous },
        interrupt: Interrupt::Token,
        resume: Resume::ExternalKv { kv_across_versions: true },
        admission: AdmissionRules {
            pool: Some(pool),
            throttle: Some(ThrottleConfig {
                start: pool,
                least: u64::from(group_size),
                most: pool,
                ..ThrottleConfig::default()
            }),
            ..AdmissionRules::default()
        },
        ..FlowSettings::default()
    }
}
