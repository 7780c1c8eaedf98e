//! IMPALA (Espeholt et al., arXiv 1802.01561; scalable_agent).
//!
//! Rule: actors copy weights, unroll n steps, push into a bounded queue and block while it is full; the learner takes
//! batches of unrolls. Nothing is interrupted: weights change between unrolls. Invariants: an unroll has one version;
//! in flight + blocked ≤ actors; at most a queue and the actors' own wait.

use super::System;
use crate::schedule::axes::{AdmissionRules, Dispatch, Layout, RoundEnd};
use crate::schedule::flow::FlowSettings;

pub(super) const SYSTEM: System = System {
    name: "impala",
    title: "IMPALA",
    source: "arXiv 1802.01561",
    objective: "vtrace (control)",
    advantage: "v-trace",
    aggregation: "sum",
    gamma: 0.99,
    learner: "",
    reading: "the queue holds one batch; two actors for every unroll of a batch",
    schedule,
    sizes: (32, 1),
};

fn schedule(batch: u64, group_size: u32) -> FlowSettings {
    FlowSettings {
        batch,
        group_size,
        layout: Layout::Decoupled,
        dispatch: Dispatch::Unroll,
        round_end: RoundEnd::Streaming,
        admission: AdmissionRules { pool: Some(2 * batch), buffer: Some(batch), ..AdmissionRules::default() },
        ..FlowSettings::default()
    }
}
