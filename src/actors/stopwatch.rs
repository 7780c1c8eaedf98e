//! Accumulated time, readable from other threads: how long a role was busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clones share their total.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch(Arc<AtomicU64>);

impl Stopwatch {
    /// Runs `work` and adds the time it took.
    pub fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        let since = Instant::now();
        let result = work();
        self.add(since.elapsed());
        result
    }

    /// Adds time measured elsewhere.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The total.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
