//! The content of a checkpoint: a consistent cut of the run at an update border.
//!
//! `state.bin` holds everything but tensors; parameters and optimiser state are safetensors files of their own.
//! Nothing in a checkpoint depends on a clock: two identical serial runs write the same bytes.

use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::snapshot::RolloutSnapshot;
use crate::learner::LearnerState;
use crate::telemetry::UpdateRecord;
use crate::trajectory::{LedgerSnapshot, Unroll};

/// Everything but tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Version, statistics.
    pub learner: LearnerState,
    /// Returns, lag, evaluations.
    pub journal: Journal,
    /// Updates that wait for their line in `metrics.jsonl`.
    pub waiting_records: Vec<UpdateRecord>,
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
