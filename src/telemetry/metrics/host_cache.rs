//! Keys and values of stopped answers in host memory.

use crate::telemetry::reference::{CountGauge, Registrar};

/// How full it is, and what found no room.
#[derive(Debug)]
pub struct HostCacheMetrics {
    /// Positions whose keys and values are kept.
    pub tokens: CountGauge,
    /// Trajectories that were stopped and found no room for theirs.
    pub refused: CountGauge,
}

impl HostCacheMetrics {
    pub(super) fn declare(r: &mut Registrar) -> Self {
        Self {
            tokens: r.gauge(
                "host_cache_tokens",
                "Positions of stopped trajectories whose keys and values are kept in host memory.".to_owned(),
            ),
            refused: r.gauge(
                "host_cache_refused",
                "Trajectories whose keys and values found no room there since the process began.".to_owned(),
            ),
        }
    }
}
