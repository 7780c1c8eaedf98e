//! Where a run stands, as the status page shows it and `/status.json` tells it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::{ProgressSnapshot, RunOutcome, TokenLedger, TokenProgress};
use crate::trajectory::LedgerSnapshot;

/// What the status page shows of a control run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunStatus {
    /// Name of the run: that of its directory.
    pub run: String,
    /// Registered name of the environment.
    pub env: String,
    /// How the run ended, `None` while it goes on.
    pub outcome: Option<RunOutcome>,
    /// Where it stands.
    pub progress: ProgressSnapshot,
    /// What became of every unroll and step.
    pub ledger: LedgerSnapshot,
    /// Restarts by kind of actor.
    pub restarts: BTreeMap<String, u64>,
}

/// What the status page shows of a token run. The page tells it from a control run by the field `task`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TokenRunStatus {
    /// Name of the run: that of its directory.
    pub run: String,
    /// Registered name of the task.
    pub task: String,
    /// How the run ended, `None` while it goes on.
    pub outcome: Option<RunOutcome>,
    /// Where it stands.
    pub progress: TokenProgress,
    /// What became of every trajectory and token.
    pub ledger: TokenLedger,
    /// Restarts by kind of actor.
    pub restarts: BTreeMap<String, u64>,
}

/// The status as of now, shared between the run and the server.
#[derive(Debug, Default)]
pub struct StatusBoard<S = RunStatus>(Mutex<S>);

impl<S: Clone> StatusBoard<S> {
    /// Replaces the status.
    pub fn set(&self, status: S) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The status as it was last set.
    #[must_use]
    pub fn get(&self) -> S {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
