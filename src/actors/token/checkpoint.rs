//! The content of a token run's checkpoint: a consistent cut at an update border.

use serde::{Deserialize, Serialize};

use super::journal::TokenJournal;
use super::plane::PlaneSnapshot;
use crate::codec::Kind;
use crate::learner::token::TokenLearnerState;
use crate::schedule::Balance;
use crate::telemetry::{MetricsPosition, TokenRecord};
use crate::trajectory::{LedgerSnapshot, Version};

/// What the envelope of a [`TokenRunState`] says it holds.
pub const TOKEN_RUN_STATE: Kind = Kind::new(*b"TOKS");

/// Everything but tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenRunState {
    /// Version, skips.
    pub learner: TokenLearnerState,
    /// Rewards, lag, evaluations.
    pub journal: TokenJournal,
    /// Where `metrics.jsonl` stands.
    pub metrics: MetricsPosition<TokenRecord>,
    /// Answers written to `samples.jsonl`.
    pub samples: u64,
    /// Versions before the learner's that are still generated with, the latest first; each has a file of its own.
    pub older_versions: Vec<Version>,
    /// The account; what it calls live and buffered is in the fields below, or else lost.
    pub ledger: LedgerSnapshot,
    /// Schedule, next problem, everything in flight, and what waits for the learner.
    pub plane: PlaneSnapshot,
    /// Times that generation and learning take, and what was chosen by them.
    pub balance: Balance,
}

/// Files of a checkpoint beside those that every run has.
pub mod files {
    /// Parameters of the reference policy, where there is one.
    pub const REFERENCE: &str = "reference.safetensors";

    /// Shape and parameters of a critic with a trunk of its own, where there is one.
    pub const CRITIC: &str = super::super::critic::FILE;

    /// State of its optimiser.
    pub const CRITIC_OPTIMIZER: &str = "critic-optimizer.safetensors";

    /// Parameters of a version before the learner's.
    #[must_use]
    pub fn older(version: crate::trajectory::Version) -> String {
        format!("version-{version}.safetensors")
    }
}
