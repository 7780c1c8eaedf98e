//! What went wrong in a run and was survived: restarts by kind of actor, threads left behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Incidents {
    restarts: Mutex<BTreeMap<String, u64>>,
    detached: AtomicU64,
}

impl Incidents {
    /// Counts a restart of an actor of this kind.
    pub fn restarted(&self, kind: &str) {
        *self.restarts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind.into()).or_default() += 1;
    }

    /// Restarts by kind.
    #[must_use]
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.restarts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a thread that did not end in time and was left behind.
    pub fn detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// Threads that were left behind.
    #[must_use]
    pub fn left_behind(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }
}
