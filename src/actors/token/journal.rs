//! What the token learner remembers of the run so far, beside what it learned. Part of a checkpoint, and independent
//! of any clock.

use serde::{Deserialize, Serialize};

use crate::actors::standing::{Lags, Scores};
use crate::trajectory::TokenFates;

/// Updates in the running mean of rewards.
const WINDOW: usize = 10;
/// Updates in the running mean of a warm-up's loss.
const WARMUP_WINDOW: usize = 5;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenJournal {
    /// Mean rewards of updates.
    pub rewards: Scores,
    /// Lag of the tokens learned from.
    pub lags: Lags,
    /// Updates of the warm-up that were made.
    pub warmup: u64,
    /// Losses of its last updates.
    pub warmup_losses: Scores,
    /// Whether reinforcement learning has begun.
    pub started: bool,
    /// Updates attempted, applied or not.
    pub attempts: u64,
    /// Mean reward of the initial policy in an evaluation, after a warm-up if there was one; `None` when there was none.
    pub initial_evaluation: Option<f64>,
    /// Fraction of the value targets' variance that values explained at the policy's first update, before anything was
    /// learned from its batch; `None` before it and without values.
    pub initial_explained_variance: Option<f64>,
    /// Whether the policy has been updated.
    pub policy_updated: bool,
    /// What became of the tokens of all updates.
    pub token_fates: TokenFates,
    /// Version at which the next evaluation is due.
    pub next_evaluation: u64,
}

impl Default for TokenJournal {
    fn default() -> Self {
        Self {
            rewards: Scores::new(WINDOW),
            lags: Lags::default(),
            warmup: 0,
            warmup_losses: Scores::new(WARMUP_WINDOW),
            started: false,
            attempts: 0,
            initial_evaluation: None,
            initial_explained_variance: None,
            policy_updated: false,
            token_fates: TokenFates::default(),
            next_evaluation: 0,
        }
    }
}
