//! The instruments that a learner update sets, all of them from its [`Record`].

use prometheus::{Counter, Histogram, IntCounter, IntCounterVec};

use crate::telemetry::merge::Field;
use crate::telemetry::record::Record;
use crate::telemetry::reference::{CountGauge, LateGauge, Registrar};
use crate::trajectory::DropReason;

/// A gauge of the last update: name, meaning and where the value is found.
pub(super) type UpdateGauge<R> = (&'static str, &'static str, Field<R>);

/// Counters and gauges of the learner.
#[derive(Debug)]
pub(super) struct LearnerMetrics<R> {
    updates: IntCounter,
    skipped_updates: IntCounterVec,
    starved_seconds: Counter,
    update_seconds: Histogram,
    policy_version: CountGauge,
    shown: Vec<(LateGauge, Field<R>)>,
}

impl<R: Record> LearnerMetrics<R> {
    /// `scores` are labelled with what the run learns, such as `("env", "cartpole")`; `gauges` have no label.
    pub fn declare(
        r: &mut Registrar,
        learned: (&str, &str),
        scores: &[UpdateGauge<R>],
        gauges: &[UpdateGauge<R>],
        second_bounds: &[f64],
    ) -> Self {
        let mut shown = Vec::new();
        for &(name, help, field) in scores {
            shown.push((r.late_gauge(name, help, &[learned]), field));
        }
        for &(name, help, field) in gauges {
            shown.push((r.late_gauge(name, help, &[]), field));
        }
        let metrics = Self {
            updates: r.counter("updates_total", "Completed learner updates."),
            skipped_updates: r.counters(
                "skipped_updates_total",
                "Updates that left the parameters as they were.",
                &["reason"],
            ),
            starved_seconds: r
                .second_counter("learner_starved_seconds_total", "Time the learner waited for experience."),
            update_seconds: r.histogram("update_seconds", "Time spent computing an update.", second_bounds),
            policy_version: r.gauge("policy_version", "Updates that the published policy is made of."),
            shown,
        };
        // Visible from the start, so that the first one is a change and not a new series.
        for (reason, _) in R::default().skipped() {
            metrics.skipped(reason);
        }
        metrics
    }

    /// Shows one update: its counters are added, its values shown, absent values leave what was shown.
    pub fn record(&self, record: &R) {
        let skipped = record.skipped();
        self.updates.inc_by(u64::from(skipped.iter().all(|(_, count)| *count == 0)));
        for (reason, count) in skipped {
            self.skipped(reason).inc_by(count);
        }
        self.starved_seconds.inc_by(record.starved_seconds().max(0.0));
        self.update_seconds.observe(record.update_seconds());
        self.policy_version.set(record.update());
        for (gauge, field) in &self.shown {
            gauge.set(field(record));
        }
    }

    /// The counter of one reason, which is visible from its first mention on.
    fn skipped(&self, reason: DropReason) -> IntCounter {
        self.skipped_updates.with_label_values(&[reason.as_str()])
    }
}
