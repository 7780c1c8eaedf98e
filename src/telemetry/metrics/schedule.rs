//! What a token run's schedule has in flight.

use crate::telemetry::reference::{CountGauge, Registrar};

/// Trajectories by where they are, and how many may be.
#[derive(Debug)]
pub struct ScheduleMetrics {
    /// Being generated.
    pub live: CountGauge,
    /// Stopped, to go on later.
    pub paused: CountGauge,
    /// Complete groups that wait for the learner.
    pub ready: CountGauge,
    /// Free places of the pool.
    pub credit: CountGauge,
    /// Most that may be generated at once.
    pub target_concurrency: CountGauge,
    /// Positions of those that were stopped whose keys and values are kept.
    pub host_cache_tokens: CountGauge,
    /// Those that were stopped and found no room for theirs.
    pub host_cache_refused: CountGauge,
}

impl ScheduleMetrics {
    pub(super) fn declare(r: &mut Registrar) -> Self {
        Self {
            host_cache_tokens: r.gauge(
                "host_cache_tokens",
                "Positions of stopped trajectories whose keys and values are kept in host memory.".to_owned(),
            ),
            host_cache_refused: r.gauge(
                "host_cache_refused",
                "Trajectories whose keys and values found no room there since the process began.".to_owned(),
            ),
            live: r.gauge("live_trajectories", "Trajectories that are being generated.".to_owned()),
            paused: r.gauge("paused_trajectories", "Trajectories that were stopped, to go on later.".to_owned()),
            ready: r.gauge("ready_groups", "Complete groups that wait for the learner.".to_owned()),
            credit: r.gauge("free_places", "Places of the pool that no trajectory holds.".to_owned()),
            target_concurrency: r.gauge(
                "target_concurrency",
                "Most trajectories that may be generated at once: the pool, or what throttle and concurrency leave of it.".to_owned(),
            ),
        }
    }
}
