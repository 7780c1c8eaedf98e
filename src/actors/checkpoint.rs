//! The content of a checkpoint: a consistent cut of the run at an update border.
//!
//! `state.bin` holds everything but tensors; parameters and optimiser state are safetensors files of their own.
//! Nothing in a checkpoint depends on a clock: two identical serial runs write the same bytes.

use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::snapshot::RolloutSnapshot;
use crate::codec::Kind;
use crate::learner::LearnerState;
use crate::telemetry::MetricsPosition;
use crate::trajectory::{LedgerSnapshot, Unroll};

/// What the envelope of a [`RunState`] says it holds.
pub const RUN_STATE: Kind = Kind::new(*b"RUNS");
/// Largest [`RunState`] that is read, bytes.
pub const MAX_STATE_BYTES: u64 = 8 << 30;

/// Everything but tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Version, statistics.
    pub learner: LearnerState,
    /// Returns, lag, evaluations.
    pub journal: Journal,
    /// Where `metrics.jsonl` stands.
    pub metrics: MetricsPosition,
    /// The account; what it calls live and buffered is in the fields below, or else lost.
    pub ledger: LedgerSnapshot,
    /// Next episode index of every environment.
    pub next_episodes: Vec<u32>,
    /// Rollout actors in order; `None` for one that did not answer in time.
    pub rollouts: Vec<Option<RolloutSnapshot>>,
    /// Unrolls in the queue and in the batch in formation, oldest first.
    pub queue: Vec<Unroll>,
}

/// Files of a checkpoint.
pub mod files {
    /// [`super::RunState`] in the codec's envelope.
    pub const STATE: &str = "state.bin";
    /// Parameters.
    pub const PARAMETERS: &str = "parameters.safetensors";
    /// Optimiser state.
    pub const OPTIMIZER: &str = "optimizer.safetensors";
}
