//! The instruments of the queue between the actors and the learner, and of the lag that arises there.

use prometheus::{Counter, CounterVec, Histogram};

use super::{LAG_BUCKETS, Units, capitalised};
use crate::telemetry::reference::{CountGauge, CountGaugeVec, Registrar};

/// Queue and lag; a unit is an unroll or a trajectory.
#[derive(Debug)]
pub struct QueueMetrics {
    /// Units in the queue.
    pub depth: CountGauge,
    /// Units that the queue can hold.
    pub capacity: CountGauge,
    /// Time a unit stood in the queue, in seconds.
    pub wait_seconds: Histogram,
    /// Updates published between a unit's (oldest) behaviour version and its arrival in the queue.
    pub lag_in_flight: Histogram,
    /// Updates published while a unit stood in the queue.
    pub lag_in_queue: Histogram,
    blocked_seconds: CounterVec,
    actor_lag: CountGaugeVec,
}

impl QueueMetrics {
    pub(super) fn declare(r: &mut Registrar, units: &Units, second_bounds: &[f64]) -> Self {
        let Units { one, many, .. } = *units;
        let title = capitalised(many);
        Self {
            depth: r.gauge("queue_depth", format!("{title} in the queue.")),
            capacity: r.gauge("queue_capacity", format!("{title} that the queue can hold.")),
            wait_seconds: r.histogram(
                "queue_wait_seconds",
                format!("Time {one} stood in the queue."),
                second_bounds,
            ),
            blocked_seconds: r.second_counters(
                "producer_blocked_seconds_total",
                "Time an actor waited for room in the queue.",
                &["actor"],
            ),
            actor_lag: r.gauges(
                "actor_lag_updates",
                "Published version minus the version that the actor acts with.",
                &["actor"],
            ),
            lag_in_flight: r.histogram(
                "lag_in_flight_updates",
                format!("Updates published between {one}'s behaviour version and its arrival in the queue."),
                &LAG_BUCKETS,
            ),
            lag_in_queue: r.histogram(
                "lag_in_queue_updates",
                format!("Updates published while {one} stood in the queue."),
                &LAG_BUCKETS,
            ),
        }
    }

    /// Time that this actor waited for room in the queue, in seconds.
    pub(super) fn blocked_seconds(&self, actor: &str) -> Counter {
        self.blocked_seconds.with_label_values(&[actor])
    }

    /// Published version minus the version that this actor acts with.
    pub(super) fn actor_lag(&self, actor: &str) -> CountGauge {
        self.actor_lag.with_label_values(&[actor])
    }
}
