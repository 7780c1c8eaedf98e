//! Every Prometheus instrument of a control run, as typed handles: no string is looked up where experience flows.
//!
//! Who sets what: actors hold an [`ActorMetrics`]; whoever drives the learner calls [`Metrics::record_update`],
//! [`Metrics::record_episode`] and [`Metrics::observe_ledger`]; the server refreshes the process figures on each
//! scrape. Labels are bounded: actors, kinds, roles and reasons are as many as the configuration says. Counters
//! begin at zero in each process, except those taken from the ledger, which a resumed run continues.

mod learner;

use prometheus::{
    Counter, CounterVec, GaugeVec, Histogram, IntCounter, IntCounterVec, Registry, TextEncoder,
};

use self::learner::LearnerMetrics;
use super::process::process_usage;
use super::record::UpdateRecord;
use super::reference::{CountGauge, CountGaugeVec, Description, LateGauge, Registrar};
use crate::trajectory::{Amount, DropReason, EpisodeEnd, LedgerSnapshot};

/// All instruments of a control run on a registry of their own.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// For the reference in the documentation.
    descriptions: Vec<Description>,
    /// Value of the label `env`.
    env: String,

    env_steps: IntCounterVec,
    blocked_seconds: CounterVec,
    actor_lag: CountGaugeVec,

    /// Episodes that ended.
    pub episodes: IntCounter,
    /// Lengths of ended episodes, in steps.
    pub episode_length: Histogram,

    /// Unrolls in the queue.
    pub queue_depth: CountGauge,
    /// Unrolls that the queue can hold.
    pub queue_capacity: CountGauge,
    /// Time an unroll stood in the queue, in seconds.
    pub queue_wait_seconds: Histogram,
    /// Updates published between an unroll's behaviour version and its arrival in the queue.
    pub lag_in_flight: Histogram,
    /// Updates published while an unroll stood in the queue.
    pub lag_in_queue: Histogram,

    learner: LearnerMetrics,
    busy_fraction: GaugeVec,
    overlap_efficiency: LateGauge,
    restarts: IntCounterVec,

    dropped_unrolls: IntCounterVec,
    dropped_env_steps: IntCounterVec,
    ledger_unrolls: CountGaugeVec,
    ledger_env_steps: CountGaugeVec,

    resident_memory: CountGauge,
    cpu_seconds: Counter,
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
        r.gauges(
            "build_info",
            "Always 1; the labels tell the version and the features.",
            &["version", "features"],
        )
        .with_label_values(&[env!("CARGO_PKG_VERSION"), FEATURES])
        .set(1);
        Self {
            env: env.to_owned(),
            env_steps: r.counters("env_steps_total", "Environment steps taken.", &["actor", "env"]),
            episodes: r
                .counters("episodes_total", "Episodes that ended.", &["env"])
                .with_label_values(&[env]),
            episode_length: r
                .histograms("episode_length_steps", "Lengths of ended episodes.", &["env"], &LENGTH_BUCKETS)
                .with_label_values(&[env]),

            queue_depth: r.gauge("queue_depth", "Unrolls in the queue."),
            queue_capacity: r.gauge("queue_capacity", "Unrolls that the queue can hold."),
            queue_wait_seconds: r.histogram(
                "queue_wait_seconds",
                "Time an unroll stood in the queue.",
                &SECOND_BUCKETS,
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
                "Updates published between an unroll's behaviour version and its arrival in the queue.",
                &LAG_BUCKETS,
            ),
            lag_in_queue: r.histogram(
                "lag_in_queue_updates",
                "Updates published while an unroll stood in the queue.",
                &LAG_BUCKETS,
            ),

            learner: LearnerMetrics::declare(&mut r, env),

            busy_fraction: r.float_gauges(
                "busy_fraction",
                "Fraction of its time that the role computed instead of waiting.",
                &["role"],
            ),
            overlap_efficiency: r.late_gauge(
                "overlap_efficiency",
                "Time of the slower of rollout and update, divided by the time of a whole round; 1 is full overlap.",
                &[],
            ),
            restarts: r.counters("restarts_total", "Actors restarted after a failure.", &["kind"]),

            dropped_unrolls: r.counters("dropped_unrolls_total", "Unrolls lost.", &["reason"]),
            dropped_env_steps: r.counters("dropped_env_steps_total", "Environment steps lost.", &["reason"]),
            ledger_unrolls: r.gauges("ledger_unrolls", "Unrolls by what became of them.", &["state"]),
            ledger_env_steps: r.gauges(
                "ledger_env_steps",
                "Environment steps by what became of them.",
                &["state"],
            ),

            resident_memory: r.gauge("resident_memory_bytes", "Memory of the process in RAM (Linux only)."),
            cpu_seconds: r.second_counter(
                "cpu_seconds_total",
                "Processor time of all threads of the process (Linux only).",
            ),

            descriptions: r.descriptions,
            registry: r.registry,
        }
        .with_known_reasons()
    }

    /// Makes every reason visible from the start, so that a first loss is a change and not a new series.
    fn with_known_reasons(self) -> Self {
        for reason in DropReason::ALL {
            let _ = self.dropped_unrolls.with_label_values(&[reason.as_str()]);
            let _ = self.dropped_env_steps.with_label_values(&[reason.as_str()]);
        }
        self
    }

    /// The instruments of a rollout actor, which keep their values over its restarts.
    #[must_use]
    pub fn actor(&self, actor: u32) -> ActorMetrics {
        let label = actor.to_string();
        ActorMetrics {
            env_steps: self.env_steps.with_label_values(&[&label, &self.env]),
            blocked_seconds: self.blocked_seconds.with_label_values(&[&label]),
            lag: self.actor_lag.with_label_values(&[&label]),
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
        let dropped = ledger.dropped.values().fold(Amount::default(), |sum, amount| Amount {
            unrolls: sum.unrolls + amount.unrolls,
            steps: sum.steps + amount.steps,
        });
        for (state, amount) in [
            ("submitted", ledger.submitted),
            ("live", ledger.live),
            ("buffered", ledger.buffered),
            ("consumed", ledger.consumed),
            ("dropped", dropped),
        ] {
            self.ledger_unrolls.with_label_values(&[state]).set(amount.unrolls);
            self.ledger_env_steps.with_label_values(&[state]).set(amount.steps);
        }
        for (reason, amount) in &ledger.dropped {
            raise_to(&self.dropped_unrolls.with_label_values(&[reason.as_str()]), amount.unrolls);
            raise_to(&self.dropped_env_steps.with_label_values(&[reason.as_str()]), amount.steps);
        }
    }

    /// Counts a restart of an actor of this kind (`rollout`, `inference`, …).
    pub fn record_restart(&self, kind: &str) {
        self.restarts.with_label_values(&[kind]).inc();
    }

    /// Shows which fraction of its time a role computed, over the last interval.
    pub fn set_busy_fraction(&self, role: &str, fraction: f64) {
        self.busy_fraction.with_label_values(&[role]).set(fraction);
    }

    /// Shows max(rollout time, update time) / round time, over the last interval.
    pub fn set_overlap_efficiency(&self, efficiency: f64) {
        self.overlap_efficiency.set(Some(efficiency));
    }

    /// Everything in Prometheus' text format, the figures of the process taken now.
    #[must_use]
    pub fn render(&self) -> String {
        let usage = process_usage();
        if let Some(bytes) = usage.resident_bytes {
            self.resident_memory.set(bytes);
        }
        if let Some(seconds) = usage.cpu_seconds {
            self.cpu_seconds.inc_by((seconds - self.cpu_seconds.get()).max(0.0));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            tracing::warn!("cannot encode metrics: {error}");
            String::new()
        })
    }

    /// Name, type, labels and meaning of every instrument, in the order of their declaration.
    pub(super) fn descriptions(&self) -> &[Description] {
        &self.descriptions
    }
}

/// Upper bounds of the histograms of lengths, in environment steps.
const LENGTH_BUCKETS: [f64; 14] = [
    5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0,
    100_000.0,
];
/// Upper bounds of the histograms of time, in seconds.
const SECOND_BUCKETS: [f64; 14] =
    [0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Which additive features this binary was built with, the label of `build_info`.
const FEATURES: &str = if cfg!(feature = "cuda") { "cuda" } else { "" };
/// Upper bounds of the lag histograms, in updates.
const LAG_BUCKETS: [f64; 12] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0];

/// Brings a counter up to a total that is counted elsewhere.
fn raise_to(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trajectory::Ledger;

    /// The value of a series in the rendered page.
    pub fn value(metrics: &Metrics, series: &str) -> Option<f64> {
        let text = metrics.render();
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

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
}
