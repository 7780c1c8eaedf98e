//! Who may start: the admission rule of AReaL (Fu et al. 2025), in groups or samples.
//!
//! capacity = min(max_concurrent − running, (η + version + 1) · B − (accepted + running)). It bounds how far
//! generation is ahead of learning; the lag of a token is bounded by it only when batches form in the order of
//! submission.

use serde::{Deserialize, Serialize};

/// Counts of what was admitted and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    batch: u64,
    lead: u64,
    max_concurrent: Option<u64>,
    version: u64,
    running: u64,
    accepted: u64,
}

impl Admission {
    /// Nothing admitted yet; `batch` units an update, `lead` batches ahead.
    #[must_use]
    pub fn new(batch: u64, lead: u64, max_concurrent: Option<u64>) -> Self {
        Self { batch, lead, max_concurrent, version: 0, running: 0, accepted: 0 }
    }

    /// How many may start now; negative when the bound was lowered.
    #[must_use]
    pub fn capacity(&self) -> i64 {
        let ahead = (self.lead + self.version + 1) * self.batch;
        let room = ahead as i64 - (self.accepted + self.running) as i64;
        let places = self.max_concurrent.map(|most| most as i64 - self.running as i64);
        places.map_or(room, |places| places.min(room))
    }

    /// One starts.
    pub fn start(&mut self) {
        self.running += 1;
    }

    /// One that ran is kept: it counts until it is discarded.
    pub fn accept(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.accepted += 1;
    }

    /// One that ran is not kept: its place is free again.
    pub fn reject(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// One that was accepted will not be learned from after all: its place is free again.
    pub fn discard(&mut self) {
        self.accepted = self.accepted.saturating_sub(1);
    }

    /// The learner completed an update.
    pub fn advance(&mut self) {
        self.version += 1;
    }

    /// Weights alone were recovered at a version: everything before it counts as accepted, nothing runs.
    pub fn recover(&mut self, version: u64) {
        (self.version, self.accepted, self.running) = (version, version * self.batch, 0);
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Admitted and neither accepted nor rejected.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.running
    }

    /// Accepted in all, learned from or still waiting.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Units of a batch.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_the_concurrency_and_every_way_out_bound_what_may_start() {
        let mut admission = Admission::new(4, 1, Some(6));
        let mut room = |change: fn(&mut Admission)| {
            change(&mut admission);
            admission.capacity()
        };
        let start = |admission: &mut Admission| (0..6).for_each(|_| admission.start());
        assert_eq!(room(start), 0, "six places");
        assert_eq!(room(Admission::accept), 1, "a place is free, and two of eight are left");
        assert_eq!(room(Admission::reject), 2);
        assert_eq!(room(|a| (0..4).for_each(|_| a.accept())), 3, "the lead binds: five of eight are taken");
        assert_eq!(room(Admission::advance), 6);
        assert_eq!(room(|a| (0..6).for_each(|_| a.start())), 0);
        assert_eq!(room(|a| (0..6).for_each(|_| a.accept())), 1);
        assert_eq!(room(Admission::discard), 2);
        assert_eq!(room(|a| a.recover(5)), 6, "weights alone: everything before them counts as accepted");
        assert_eq!((admission.accepted(), admission.running()), (20, 0));
    }
}
