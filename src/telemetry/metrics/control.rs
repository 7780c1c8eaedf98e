//! The instruments of a control run.
//!
//! Who sets what: actors hold an [`ActorMetrics`]; whoever drives the learner calls [`Metrics::record_update`],
//! [`Metrics::record_episode`] and [`Metrics::observe_ledger`]; the server refreshes the process figures on each
//! scrape.

use prometheus::{Counter, Histogram, IntCounter, IntCounterVec};

use super::learner::{LearnerMetrics, UpdateGauge};
use super::ledger::LedgerMetrics;
use super::queue::QueueMetrics;
use super::system::{ProcessMetrics, RoleMetrics, declare_build_info};
use super::{Exposition, SECOND_BUCKETS, Units};
use crate::telemetry::UpdateRecord;
use crate::telemetry::reference::{CountGauge, Registrar};
use crate::trajectory::{EpisodeEnd, LedgerSnapshot};

const UNITS: Units =
    Units { one: "an unroll", many: "unrolls", parts: "environment steps", parts_name: "env_steps" };

/// Upper bounds of the histograms of lengths, in environment steps.
const LENGTH_BUCKETS: [f64; 14] = [
    5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0,
    100_000.0,
];

/// Gauges of the environment's returns: name, meaning and where the value is found. They carry the label `env`.
const RETURN_GAUGES: [UpdateGauge<UpdateRecord>; 4] = [
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
const UPDATE_GAUGES: [UpdateGauge<UpdateRecord>; 13] = [
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
    ("clip_fraction_low", "Fraction of importance ratios cut off at the lower threshold.", |r| {
        r.clip_fraction_low
    }),
    ("clip_fraction_high", "Fraction of importance ratios cut off at the upper threshold.", |r| {
        r.clip_fraction_high
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

/// All instruments of a control run on a registry of their own.
#[derive(Debug)]
pub struct Metrics {
    instruments: Registrar,
    /// Value of the label `env`.
    env: String,
    env_steps: IntCounterVec,
    /// Episodes that ended.
    pub episodes: IntCounter,
    /// Lengths of ended episodes, in steps.
    pub episode_length: Histogram,
    /// The queue of unrolls, and their lag.
    pub queue: QueueMetrics,
    learner: LearnerMetrics<UpdateRecord>,
    /// Roles and restarts.
    pub roles: RoleMetrics,
    ledger: LedgerMetrics,
    process: ProcessMetrics,
}

/// The instruments of one rollout actor. Clones share their values.
#[derive(Debug, Clone)]
pub struct ActorMetrics {
    /// Environment steps taken.
    pub env_steps: IntCounter,
    /// Time spent waiting for room in the queue, in seconds.
    pub blocked_seconds: Counter,
    /// Published version minus the version that the actor acts with.
    pub lag: CountGauge,
}

impl Metrics {
    /// Fresh instruments. `env` is the registered name of the environment, the value of the label `env`.
    #[must_use]
    pub fn new(env: &str) -> Self {
        let mut r = Registrar::new();
        declare_build_info(&mut r);
        Self {
            env: env.to_owned(),
            env_steps: r.counters("env_steps_total", "Environment steps taken.", &["actor", "env"]),
            episodes: r
                .counters("episodes_total", "Episodes that ended.", &["env"])
                .with_label_values(&[env]),
            episode_length: r
                .histograms("episode_length_steps", "Lengths of ended episodes.", &["env"], &LENGTH_BUCKETS)
                .with_label_values(&[env]),
            queue: QueueMetrics::declare(&mut r, &UNITS, &SECOND_BUCKETS),
            learner: LearnerMetrics::declare(
                &mut r,
                ("env", env),
                &RETURN_GAUGES,
                &UPDATE_GAUGES,
                &SECOND_BUCKETS,
            ),
            roles: RoleMetrics::declare(&mut r),
            ledger: LedgerMetrics::declare(&mut r, &UNITS),
            process: ProcessMetrics::declare(&mut r),
            instruments: r,
        }
    }

    /// The instruments of a rollout actor, which keep their values over its restarts.
    #[must_use]
    pub fn actor(&self, actor: u32) -> ActorMetrics {
        let label = actor.to_string();
        ActorMetrics {
            env_steps: self.env_steps.with_label_values(&[&label, &self.env]),
            blocked_seconds: self.queue.blocked_seconds(&label),
            lag: self.queue.actor_lag(&label),
        }
    }

    /// Counts an episode that ended.
    pub fn record_episode(&self, episode: &EpisodeEnd) {
        self.episodes.inc();
        self.episode_length.observe(f64::from(episode.length));
    }

    /// Shows one learner update: its counters are added, its values shown, absent values leave what was shown.
    pub fn record_update(&self, record: &UpdateRecord) {
        self.learner.record(record);
    }

    /// Shows the ledger: the figures of every state, and the drops as counters that never disagree with it.
    pub fn observe_ledger(&self, ledger: &LedgerSnapshot) {
        self.ledger.observe(ledger);
    }

    /// Everything that is declared here.
    pub(in crate::telemetry) fn instruments(&self) -> &Registrar {
        &self.instruments
    }
}

impl Exposition for Metrics {
    fn render(&self) -> String {
        self.process.refresh();
        self.instruments.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::value;
    use super::*;
    use crate::trajectory::{DropReason, Ledger};

    #[test]
    fn drop_counters_follow_the_ledger_without_counting_twice() {
        let (metrics, ledger) = (Metrics::new("cartpole"), Ledger::default());
        for _ in 0..2 {
            let mut ticket = ledger.begin();
            ticket.step(5);
            ticket.discard(DropReason::ActorRestart);
            metrics.observe_ledger(&ledger.snapshot());
            metrics.observe_ledger(&ledger.snapshot());
        }
        assert_eq!(value(&metrics, "forebay_dropped_unrolls_total{reason=\"actor_restart\"}"), Some(2.0));
        assert_eq!(value(&metrics, "forebay_dropped_env_steps_total{reason=\"actor_restart\"}"), Some(10.0));
        assert_eq!(value(&metrics, "forebay_ledger_env_steps{state=\"dropped\"}"), Some(10.0));
        assert_eq!(value(&metrics, "forebay_dropped_unrolls_total{reason=\"stale\"}"), Some(0.0));
    }

    #[test]
    fn an_actors_handles_survive_its_restart() {
        let metrics = Metrics::new("cartpole");
        metrics.actor(3).env_steps.inc_by(10);
        metrics.actor(3).env_steps.inc_by(5);
        assert_eq!(value(&metrics, "forebay_env_steps_total{actor=\"3\",env=\"cartpole\"}"), Some(15.0));
    }

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
