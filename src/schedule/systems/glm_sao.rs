//! GLM-5 and SAO, single rollouts (arXiv 2602.15763, 2607.07508; slime).
//!
//! Rule: a pool of constant size; an answer is ready as soon as it ends, a prompt having only one; weights are pushed
//! every K updates; answers too many updates old are dropped and replaced. Invariants: live ≤ pool; a consumed answer's
//! head lag ≤ τ; ready at once.

use super::System;
use crate::schedule::axes::{
    AdmissionRules, ConsumeFilter, Dispatch, Interrupt, Layout, RoundEnd, WeightPush,
};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "glm_sao",
    title: "GLM-5 / SAO",
    source: "arXiv 2602.15763, 2607.07508",
    objective: "dis",
    advantage: "skip_observation_gae",
    aggregation: "token_mean",
    gamma: 1.0,
    learner: r#"
advantage = { kind = "skip_observation_gae" }
loss = { objective = { kind = "dis" } }
"#,
    reading: "K = 2 and τ = 8; the pool is two batches, the buffer one; resuming computes the prefix again; the closed interval",
    schedule,
    sizes: (128, 1),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    let members = batch * u64::from(group_size);
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Decoupled,
        dispatch: Dispatch::Sample,
        round_end: RoundEnd::Streaming,
        interrupt: Interrupt::Token,
        admission: AdmissionRules {
            pool: Some(2 * members),
            buffer: Some(members),
            ..AdmissionRules::default()
        },
        consume: ConsumeFilter { max_head_lag: Some(8), ..ConsumeFilter::default() },
        push: WeightPush::Every { updates: 2 },
        ..FlowSettings::default()
    }
}
