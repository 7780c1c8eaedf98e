//! The instruments that a learner update sets, all of them from its [`UpdateRecord`].

use prometheus::{Counter, Histogram, IntCounter, IntCounterVec};

use super::SECOND_BUCKETS;
use crate::telemetry::record::{Field, UpdateRecord};
use crate::telemetry::reference::{CountGauge, LateGauge, Registrar};
use crate::trajectory::DropReason;

/// Gauges of the environment's returns: name, meaning and where the value is found. They carry the label `env`.
const RETURN_GAUGES: [(&str, &str, Field); 4] = [
    ("return_mean", "Mean undiscounted return of the last 100 episodes.", |r| r.return_mean),
    ("return_min", "Least return among the episodes that ended before the last update.", |r| {
        r.episode_return_min
    }),
    ("return_max", "Greatest return among the episodes that ended before the last update.", |r| {
        r.episode_return_max
    }),
    ("evaluation_return", "Mean return of the last evaluation.", |r| r.eval_mean),
];

/// Gauges of the last update: name, meaning and where the value is found.
const UPDATE_GAUGES: [(&str, &str, Field); 11] = [
    ("learning_rate", "Learning rate.", |r| r.learning_rate),
    ("loss", "Total loss.", |r| r.loss),
    ("policy_loss", "Policy-gradient loss.", |r| r.policy_loss),
    ("value_loss", "Value loss.", |r| r.value_loss),
    ("entropy_nats", "Mean entropy of the policy.", |r| r.entropy),
    ("approx_kl_nats", "Approximate divergence of the current from the behaviour policy.", |r| r.approx_kl),
    ("gradient_norm", "Norm of the gradient before clipping.", |r| r.gradient_norm),
    ("rho_clip_fraction", "Fraction of importance ratios cut off at the rho threshold.", |r| {
        r.rho_clip_fraction
    }),
    ("c_clip_fraction", "Fraction of importance ratios cut off at the c threshold.", |r| r.c_clip_fraction),
    (
        "explained_variance",
        "Fraction of the value targets' variance that the values explain, at most 1.",
        |r| r.explained_variance,
    ),
    (
        "log_prob_difference_nats",
        "Greatest difference of a log-probability between rollout and learner under one version, at the last check.",
        |r| r.log_prob_difference,
    ),
];

/// Counters and gauges of the learner.
#[derive(Debug)]
pub(super) struct LearnerMetrics {
    updates: IntCounter,
    skipped_updates: IntCounterVec,
    starved_seconds: Counter,
    update_seconds: Histogram,
    policy_version: CountGauge,
    shown: Vec<(LateGauge, Field)>,
}

impl LearnerMetrics {
    pub fn declare(registrar: &mut Registrar, env: &str) -> Self {
        let mut shown = Vec::new();
        for (name, help, field) in RETURN_GAUGES {
            shown.push((registrar.late_gauge(name, help, &[("env", env)]), field));
        }
        for (name, help, field) in UPDATE_GAUGES {
            shown.push((registrar.late_gauge(name, help, &[]), field));
        }
        let metrics = Self {
            updates: registrar.counter("updates_total", "Completed learner updates."),
            skipped_updates: registrar.counters(
                "skipped_updates_total",
                "Updates that left the parameters as they were.",
                &["reason"],
            ),
            starved_seconds: registrar
                .second_counter("learner_starved_seconds_total", "Time the learner waited for experience."),
            update_seconds: registrar.histogram(
                "update_seconds",
                "Time spent computing an update.",
                &SECOND_BUCKETS,
            ),
            policy_version: registrar
                .gauge("policy_version", "Updates that the published policy is made of."),
            shown,
        };
        metrics.skipped(DropReason::NonFinite);
        metrics.skipped(DropReason::Masked);
        metrics
    }

    /// See [`super::Metrics::record_update`].
    pub fn record(&self, record: &UpdateRecord) {
        let skipped = record.skipped_non_finite + record.skipped_masked;
        self.updates.inc_by(u64::from(skipped == 0));
        self.skipped(DropReason::NonFinite).inc_by(record.skipped_non_finite);
        self.skipped(DropReason::Masked).inc_by(record.skipped_masked);
        self.starved_seconds.inc_by(record.starved_seconds.max(0.0));
        self.update_seconds.observe(record.update_seconds);
        self.policy_version.set(record.update);
        for (gauge, field) in &self.shown {
            gauge.set(field(record));
        }
    }

    /// The counter of one reason, which is visible from its first mention on.
    fn skipped(&self, reason: DropReason) -> IntCounter {
        self.skipped_updates.with_label_values(&[reason.as_str()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::value;
    use crate::telemetry::{Metrics, UpdateRecord};

    #[test]
    fn a_return_is_absent_until_an_episode_ended() {
        let metrics = Metrics::new("cartpole");
        assert_eq!(value(&metrics, "forebay_return_mean{env=\"cartpole\"}"), None);
        metrics.record_update(&UpdateRecord { return_mean: Some(f64::NAN), ..Default::default() });
        assert_eq!(value(&metrics, "forebay_return_mean{env=\"cartpole\"}"), None);
        metrics.record_update(&UpdateRecord { return_mean: Some(21.5), ..Default::default() });
        metrics.record_update(&UpdateRecord::default());
        assert_eq!(value(&metrics, "forebay_return_mean{env=\"cartpole\"}"), Some(21.5));
    }

    #[test]
    fn a_skipped_update_is_counted_by_reason_and_not_as_an_update() {
        let metrics = Metrics::new("cartpole");
        metrics.record_update(&UpdateRecord { update: 1, ..Default::default() });
        metrics.record_update(&UpdateRecord { update: 1, skipped_non_finite: 1, ..Default::default() });
        assert_eq!(value(&metrics, "forebay_updates_total"), Some(1.0));
        assert_eq!(value(&metrics, "forebay_skipped_updates_total{reason=\"non_finite\"}"), Some(1.0));
        assert_eq!(value(&metrics, "forebay_skipped_updates_total{reason=\"masked\"}"), Some(0.0));
        assert_eq!(value(&metrics, "forebay_policy_version"), Some(1.0));
    }
}
