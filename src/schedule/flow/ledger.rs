//! Every trajectory is accounted for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DropCause;

/// Counts of trajectories: submitted = live + paused + buffered + consumed + dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlowLedger {
    /// Launched.
    pub submitted: u64,
    /// Being generated.
    pub live: u64,
    /// Begun and stopped, or waiting to begin anew.
    pub paused: u64,
    /// Ended and not yet learned from: of incomplete groups, being graded, complete, and in the learner's hands.
    pub buffered: u64,
    /// Learned from.
    pub consumed: u64,
    /// Given up, by cause.
    pub dropped: BTreeMap<DropCause, u64>,
}

impl FlowLedger {
    /// Given up in all.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether the counts add up.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.submitted == self.live + self.paused + self.buffered + self.consumed + self.dropped_in_all()
    }
}
