//! What the learner remembers of the run so far, beside what it learned: returns, lag, skipped updates.
//!
//! Everything here is part of a checkpoint and independent of any clock, so that a resumed serial run goes on byte
//! for byte.

use serde::{Deserialize, Serialize};

use super::standing::{Lags, Scores};

/// Episodes in the running mean.
const WINDOW: usize = 100;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// Returns of episodes.
    pub returns: Scores,
    /// Lag of the environment steps learned from.
    pub lags: Lags,
    /// Updates attempted, applied or not.
    pub attempts: u64,
    /// Environment steps at which the next evaluation is due.
    pub next_evaluation: u64,
}

impl Journal {
    /// Nothing remembered yet; the first evaluation is due at this many environment steps.
    #[must_use]
    pub fn new(next_evaluation: u64) -> Self {
        Self { returns: Scores::new(WINDOW), lags: Lags::default(), attempts: 0, next_evaluation }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new(0)
    }
}
