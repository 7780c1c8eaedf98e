//! What the plane shows of itself.

use std::sync::Arc;

use super::open::HostCache;
use super::{FlightFigures, GroupCounts, Plane};
use crate::actors::parameter_bus::Published;
use crate::env::task::PromptPosition;
use crate::learner::token::advantage::PassRates;

impl Plane {
    /// Why the run cannot go on.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        self.lock().fatal.clone()
    }

    /// What became of groups so far.
    #[must_use]
    pub fn counts(&self) -> GroupCounts {
        self.lock().counts
    }

    /// What is in flight now, and the most that was since this was asked before.
    #[must_use]
    pub fn flight(&self) -> FlightFigures {
        let mut state = self.lock();
        let ledger = state.scheduler.ledger();
        let in_flight = ledger.live + ledger.paused;
        let ready = state.ready.values().chain(state.batch.iter().flatten());
        FlightFigures {
            live: ledger.live,
            paused: ledger.paused,
            ready: ready.map(|ready| ready.group.members.len() as u64).sum(),
            most: std::mem::replace(&mut state.most_in_flight, in_flight),
            credit: self.settings.counts_places().then(|| state.scheduler.credit()),
            limit: Some(state.scheduler.limit()).filter(|limit| *limit < u64::MAX),
        }
    }

    /// Passes over the task's problems, the unfinished one as a fraction; 0 when there is no end to them.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        let PromptPosition { epoch, taken, len } = self.lock().prompts.position();
        f64::from(epoch) + len.map_or(0.0, |len| f64::from(taken) / f64::from(len.max(1)))
    }

    /// Positions whose keys and values are kept with members that were stopped, and how many members found no room for
    /// theirs since the process began.
    #[must_use]
    pub fn host_cache(&self) -> (usize, u64) {
        let HostCache { used, refused, .. } = self.lock().cache;
        (used, refused)
    }

    /// Whether the learner has a batch, or is to take one.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.lock().scheduler.is_learning()
    }

    /// Complete groups that wait for the learner.
    #[must_use]
    pub fn ready_groups(&self) -> usize {
        let state = self.lock();
        state.ready.len() + state.batch.as_ref().map_or(0, Vec::len)
    }

    /// Pass rates of the problems' sources, by which groups are judged now.
    #[must_use]
    pub fn pass_rates(&self) -> PassRates {
        self.lock().tracked.pass_rates.folded()
    }

    /// Versions before the latest that generators use or will be told to use, oldest last.
    #[must_use]
    pub fn older_versions(&self) -> Vec<Arc<Published>> {
        self.lock().history.iter().skip(1).cloned().collect()
    }

    /// How many versions back tokens of the learner's batches may be, where that is bounded.
    #[must_use]
    pub fn greatest_lag(&self) -> u64 {
        self.settings.consume.max_head_lag.or(self.settings.admission.lead).unwrap_or(0)
    }

    /// Number of generators that share the work.
    #[must_use]
    pub fn generators(&self) -> usize {
        self.lock().orders.len()
    }
}
