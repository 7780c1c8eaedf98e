//! What a generator tells of its engine: tokens to the ledger, gauges, and its load to the schedule.

use super::Generator;
use crate::generate::Usage;
use crate::schedule::axes::EngineLoad;

/// Steps of an engine between two looks at its load, where the schedule goes by it.
const STEPS_A_LOAD: u32 = 32;

impl Generator {
    /// Books the tokens that were sampled since the last look.
    pub(super) fn book(&mut self) {
        let (flights, metrics) = (&mut self.flights, &self.metrics);
        for (id, tokens) in self.engine.lengths() {
            if let Some(flight) = flights.get_mut(&id) {
                flight.book(tokens, metrics);
            }
        }
        let usage = self.show();
        self.metrics.preempted.inc_by(usage.preempted - self.seen_preempted);
        let preemptions = usage.preempted - std::mem::replace(&mut self.seen_preempted, usage.preempted);
        self.until_load = self.until_load.saturating_sub(1);
        if self.until_load == 0 || preemptions > 0 {
            self.until_load = STEPS_A_LOAD;
            self.run.plane.observe(
                self.index,
                EngineLoad {
                    active: usage.running as u64,
                    queued: usage.waiting as u64,
                    kv_use: usage.used_pages as f64 / usage.pages.max(1) as f64,
                    preemptions,
                },
            );
        }
    }

    /// Shows what the engine is doing.
    pub(super) fn show(&mut self) -> Usage {
        let (metrics, usage) = (&self.metrics, self.engine.usage());
        metrics.running.set(usage.running as u64);
        metrics.waiting.set(usage.waiting as u64);
        metrics.kv_cache_tokens.set(usage.cached_tokens as u64);
        metrics.kv_cache_capacity.set(usage.capacity_tokens as u64);
        metrics.kv_cache_bytes.set(usage.bytes as u64);
        metrics.kv_loads.inc_by(usage.loads - std::mem::replace(&mut self.seen_loads, usage.loads));
        usage
    }
}
