//! The instruments of a token run.
//!
//! Who sets what: generation actors hold a [`GeneratorMetrics`]; graders call [`TokenMetrics::record_graded`] and
//! [`TokenMetrics::record_grading_error`]; whoever drives the learner calls [`TokenMetrics::record_update`] and
//! [`TokenMetrics::observe_ledger`]; the server refreshes the process figures on each scrape.

use prometheus::{Counter, GaugeVec, Histogram, IntCounter, IntCounterVec};

use super::host_cache::HostCacheMetrics;
use super::label_set::LabelSet;
use super::learner::{LearnerMetrics, UpdateGauge};
use super::learning::LearningMetrics;
use super::ledger::LedgerMetrics;
use super::queue::QueueMetrics;
use super::system::{ProcessMetrics, RoleMetrics, declare_build_info};
use super::{Exposition, LONG_SECOND_BUCKETS, Units};
use crate::telemetry::reference::{CountGauge, CountGaugeVec, Registrar};
use crate::telemetry::{EvaluationPart, TokenRecord};
use crate::trajectory::LedgerSnapshot;

const UNITS: Units =
    Units { one: "a trajectory", many: "trajectories", parts: "tokens", parts_name: "tokens" };

/// Upper bounds of the histogram of response lengths, in tokens.
const LENGTH_BUCKETS: [f64; 14] = [
    8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0, 16_384.0, 32_768.0,
    65_536.0,
];

/// Gauges of the task's rewards. They carry the label `task`.
const REWARD_GAUGES: [UpdateGauge<TokenRecord>; 8] = [
    ("reward_mean", "Mean reward of the trajectories of the last update.", |r| r.reward_mean),
    ("reward_std", "Standard deviation of the rewards of the last update.", |r| r.reward_std),
    ("solved_fraction", "Fraction of the trajectories of the last update with the full reward.", |r| {
        r.solved
    }),
    ("shaped_reward_mean", "Mean of the rewards that were learned from, after rubric and shaping.", |r| {
        r.shaped_reward_mean
    }),
    ("length_reward_mean", "Mean absolute length reward of the last update.", |r| r.length_reward_mean),
    ("overlong_fraction", "Fraction of the trajectories with an overlong penalty.", |r| r.overlong_fraction),
    ("over_budget_fraction", "Fraction of the trajectories over their effort's budget.", |r| {
        r.over_budget_fraction
    }),
    (
        "evaluation_reward_mean",
        "Mean reward of the last evaluation: its accuracy, where right is 1 and wrong 0.",
        |r| r.eval_mean,
    ),
];

/// Gauges of the last update.
const UPDATE_GAUGES: [UpdateGauge<TokenRecord>; 27] = [
    ("learning_rate", "Learning rate.", |r| r.learning_rate),
    ("loss", "Total loss.", |r| r.loss),
    ("update_passes", "Passes that the last update made over its batch.", |r| r.passes),
    (
        "answers_per_problem",
        "Trajectories sampled for each problem of the last update, learned from or not.",
        |r| (r.groups > 0).then(|| r.answers as f64 / r.groups as f64),
    ),
    (
        "generate_estimate_seconds",
        "Running mean of the time that generation computes for the least work of a step, where it is chosen.",
        |r| r.generate_estimate_seconds,
    ),
    (
        "train_estimate_seconds",
        "Running mean of the time of an update of the least work, where it is chosen.",
        |r| r.train_estimate_seconds,
    ),
    ("policy_loss", "Policy-gradient loss.", |r| r.policy_loss),
    ("value_loss", "Value loss.", |r| r.value_loss),
    ("warmup_loss_nats", "Cross-entropy a token of the last warm-up update.", |r| r.warmup_loss),
    ("entropy_nats", "Mean entropy of the policy.", |r| r.entropy),
    ("approx_kl_nats", "Approximate divergence of the current from the behaviour policy.", |r| r.approx_kl),
    ("reference_kl_nats", "Divergence from the reference policy.", |r| r.reference_kl),
    ("teacher_kl_nats", "Divergence from the teachers.", |r| r.teacher_kl),
    (
        "reference_divergence_nats",
        "Mean divergence a token of the policy that sampled from the reference, before any coefficient.",
        |r| r.reference_divergence,
    ),
    ("kl_coefficient", "Coefficient of the reference KL, where a controller moves it.", |r| r.kl_coefficient),
    ("reference_version", "Version that was the reference policy in the last update.", |r| {
        r.reference_version.map(|version| version as f64)
    }),
    ("gradient_norm", "Norm of the gradient before clipping.", |r| r.gradient_norm),
    (
        "explained_variance",
        "Fraction of the value targets' variance that the values explain, at most 1.",
        |r| r.explained_variance,
    ),
    ("explained_variance_updated", "The same after a separate critic learned from the batch.", |r| {
        r.explained_variance_updated
    }),
    ("value_gradient_norm", "Norm of the gradient of a separate critic before clipping.", |r| {
        r.value_gradient_norm
    }),
    ("advantage_mean", "Mean advantage.", |r| r.advantage_mean),
    ("advantage_std", "Standard deviation of the advantages.", |r| r.advantage_std),
    ("truncated_fraction", "Fraction of the responses that were cut off.", |r| r.truncated_fraction),
    ("prompt_length_mean_tokens", "Mean length of the prompts.", |r| r.prompt_length_mean),
    ("turns_mean", "Mean count of the model's turns in a trajectory.", |r| r.turns_mean),
    (
        "log_prob_difference_nats",
        "Greatest difference of a log-probability between rollout and learner under one version, at the last check.",
        |r| r.log_prob_difference,
    ),
    (
        "kept_kv_log_prob_difference_nats",
        "The same for tokens whose KV cache was kept over a weight update.",
        |r| r.kept_kv_log_prob_difference,
    ),
];

/// All instruments of a token run on a registry of their own.
#[derive(Debug)]
pub struct TokenMetrics {
    instruments: Registrar,
    generation: Generation,
    trajectories: IntCounterVec,
    consumed_groups: IntCounterVec,
    sources: LabelSet,
    /// Lengths of graded responses, in tokens.
    pub response_length: Histogram,
    /// Time that grading a trajectory took, in seconds.
    pub grading_seconds: Histogram,
    grading_errors: IntCounterVec,
    /// Keys and values of stopped trajectories.
    pub host_cache: HostCacheMetrics,
    /// The queue of trajectories, and their lag.
    pub queue: QueueMetrics,
    learner: LearnerMetrics<TokenRecord>,
    learning: LearningMetrics,
    evaluation: Evaluation,
    group_grading_errors: IntCounterVec,
    zero_variance_groups: IntCounter,
    rubric: Rubric,
    /// Roles and restarts.
    pub roles: RoleMetrics,
    ledger: LedgerMetrics,
    process: ProcessMetrics,
}

/// What the last evaluation found of each source, at each effort.
#[derive(Debug)]
struct Evaluation {
    accuracy: GaugeVec,
    reward_mean: GaugeVec,
}

impl Evaluation {
    fn declare(r: &mut Registrar) -> Self {
        const LABELS: &[&str] = &["source", "effort"];
        Self {
            accuracy: r.float_gauges(
                "evaluation_source_accuracy",
                "Share of right answers in the last evaluation, of the first 32 sources; without efforts that label is empty.",
                LABELS,
            ),
            reward_mean: r.float_gauges(
                "evaluation_source_reward_mean",
                "Mean reward in the last evaluation, of the first 32 sources; without efforts that label is empty.",
                LABELS,
            ),
        }
    }
}

/// What a rubric did.
#[derive(Debug)]
struct Rubric {
    pass_rate: GaugeVec,
    groups: IntCounterVec,
    confirmed_hacks: IntCounter,
}

impl Rubric {
    fn declare(r: &mut Registrar) -> Self {
        Self {
            pass_rate: r.float_gauges(
                "pass_rate",
                "Tracked pass rate that the last update went by, of the first 32 sources.",
                &["source"],
            ),
            groups: r.counters(
                "rubric_groups_total",
                "Groups learned from with a rubric: by GRS, by GAR, or with plain advantages since a score was missing.",
                &["grading"],
            ),
            confirmed_hacks: r.counter(
                "confirmed_hacks_total",
                "Trajectories learned from that were confirmed to be hacks, with reward 0.",
            ),
        }
    }

    fn record(&self, record: &TokenRecord) {
        let groups =
            [("grs", record.grs_groups), ("gar", record.gar_groups), ("failed", record.rubric_failures)];
        for (grading, count) in groups {
            self.groups.with_label_values(&[grading]).inc_by(count);
        }
        self.confirmed_hacks.inc_by(record.confirmed_hacks);
    }
}

/// What generation actors tell, each with the label `actor`.
#[derive(Debug)]
struct Generation {
    tokens: IntCounterVec,
    running: CountGaugeVec,
    waiting: CountGaugeVec,
    kv_cache_tokens: CountGaugeVec,
    kv_cache_capacity: CountGaugeVec,
    kv_cache_bytes: CountGaugeVec,
    kv_loads: IntCounterVec,
    interrupted: IntCounterVec,
    preempted: IntCounterVec,
}

/// The instruments of one generation actor. Clones share their values.
#[derive(Debug, Clone)]
pub struct GeneratorMetrics {
    /// Tokens generated.
    pub tokens: IntCounter,
    /// Requests in the running batch.
    pub running: CountGauge,
    /// Requests that wait for room in it.
    pub waiting: CountGauge,
    /// Tokens in the KV cache.
    pub kv_cache_tokens: CountGauge,
    /// Tokens that the KV cache can hold.
    pub kv_cache_capacity: CountGauge,
    /// Memory that the KV cache has now.
    pub kv_cache_bytes: CountGauge,
    /// Trajectories whose keys and values came back from host memory.
    pub kv_loads: IntCounter,
    /// Trajectories interrupted by a weight update or the end of a round.
    pub interrupted: IntCounter,
    /// Trajectories pushed out of the KV cache, and generated on later.
    pub preempted: IntCounter,
    /// Time spent waiting for room in the queue, in seconds.
    pub blocked_seconds: Counter,
    /// Published version minus the version that the actor generates with.
    pub lag: CountGauge,
}

impl Generation {
    fn declare(r: &mut Registrar) -> Self {
        const ACTOR: &[&str] = &["actor"];
        Self {
            tokens: r.counters("tokens_total", "Tokens generated.", ACTOR),
            running: r.gauges("running_requests", "Requests in the running batch.", ACTOR),
            waiting: r.gauges("waiting_requests", "Requests that wait for room in the batch.", ACTOR),
            kv_cache_tokens: r.gauges("kv_cache_tokens", "Tokens in the KV cache.", ACTOR),
            kv_cache_capacity: r.gauges(
                "kv_cache_capacity_tokens",
                "Tokens that the KV cache can hold.",
                ACTOR,
            ),
            kv_cache_bytes: r.gauges(
                "kv_cache_bytes",
                "Memory that the KV cache has now; on the CPU, of the pages that were used.",
                ACTOR,
            ),
            kv_loads: r.counters(
                "kv_loads_total",
                "Trajectories whose keys and values were brought back from host memory.",
                ACTOR,
            ),
            interrupted: r.counters(
                "interrupted_total",
                "Trajectories interrupted by a weight update or the end of a round.",
                ACTOR,
            ),
            preempted: r.counters(
                "preempted_total",
                "Trajectories pushed out of the KV cache, and generated on later.",
                ACTOR,
            ),
        }
    }
}

impl TokenMetrics {
    /// Fresh instruments. `task` is the registered name of the task, the value of the label `task`.
    #[must_use]
    pub fn new(task: &str) -> Self {
        let mut r = Registrar::new();
        declare_build_info(&mut r);
        Self {
            generation: Generation::declare(&mut r),
            trajectories: r.counters(
                "trajectories_total",
                "Trajectories graded, from the first 32 sources by name, from all others as `other`.",
                &["source"],
            ),
            consumed_groups: r.counters(
                "consumed_groups_total",
                "Groups learned from, of the first 32 sources by name, of all others as `other`.",
                &["source"],
            ),
            sources: LabelSet::default(),
            response_length: r.histogram(
                "response_length_tokens",
                "Lengths of graded responses.",
                &LENGTH_BUCKETS,
            ),
            grading_seconds: r.histogram(
                "grading_seconds",
                "Time that grading a trajectory took.",
                &LONG_SECOND_BUCKETS,
            ),
            grading_errors: r.counters(
                "grading_errors_total",
                "Trajectories that could not be graded.",
                &["kind"],
            ),
            evaluation: Evaluation::declare(&mut r),
            group_grading_errors: r.counters(
                "group_grading_errors_total",
                "Groups that a grader of groups could not grade.",
                &["kind"],
            ),
            host_cache: HostCacheMetrics::declare(&mut r),
            queue: QueueMetrics::declare(&mut r, &UNITS, &LONG_SECOND_BUCKETS),
            learner: LearnerMetrics::declare(
                &mut r,
                ("task", task),
                &REWARD_GAUGES,
                &UPDATE_GAUGES,
                &LONG_SECOND_BUCKETS,
            ),
            learning: LearningMetrics::declare(&mut r),
            zero_variance_groups: r.counter(
                "zero_variance_groups_total",
                "Groups whose members all had the same reward, from which nothing can be learned.",
            ),
            rubric: Rubric::declare(&mut r),
            roles: RoleMetrics::declare(&mut r),
            ledger: LedgerMetrics::declare(&mut r, &UNITS),
            process: ProcessMetrics::declare(&mut r),
            instruments: r,
        }
    }

    /// The instruments of a generation actor, which keep their values over its restarts.
    #[must_use]
    pub fn generator(&self, actor: u32) -> GeneratorMetrics {
        let label = actor.to_string();
        let label = label.as_str();
        let of = &self.generation;
        GeneratorMetrics {
            tokens: of.tokens.with_label_values(&[label]),
            running: of.running.with_label_values(&[label]),
            waiting: of.waiting.with_label_values(&[label]),
            kv_cache_tokens: of.kv_cache_tokens.with_label_values(&[label]),
            kv_cache_capacity: of.kv_cache_capacity.with_label_values(&[label]),
            kv_cache_bytes: of.kv_cache_bytes.with_label_values(&[label]),
            kv_loads: of.kv_loads.with_label_values(&[label]),
            interrupted: of.interrupted.with_label_values(&[label]),
            preempted: of.preempted.with_label_values(&[label]),
            blocked_seconds: self.queue.blocked_seconds(label),
            lag: self.queue.actor_lag(label),
        }
    }

    /// Counts a graded trajectory. `source` names the task's data set (a dataset may have thousands: those after the
    /// first 32 that were seen are counted as `other`), `length` is that of the response in tokens, and `seconds` the
    /// time that grading took.
    pub fn record_graded(&self, source: &str, length: usize, seconds: f64) {
        self.trajectories.with_label_values(&[self.sources.label(source)]).inc();
        self.response_length.observe(length as f64);
        self.grading_seconds.observe(seconds);
    }

    /// Counts a trajectory that could not be graded. `kind` is one of the few kinds of failure, never a message.
    pub fn record_grading_error(&self, kind: &str) {
        self.grading_errors.with_label_values(&[kind]).inc();
    }

    /// Shows the tracked pass rate of a source, unless it is one too many.
    pub fn record_pass_rate(&self, source: &str, rate: f64) {
        let label = self.sources.label(source);
        if label == source {
            self.rubric.pass_rate.with_label_values(&[label]).set(rate);
        }
    }

    /// Shows what an evaluation found, but for sources that are one too many.
    pub fn record_evaluation(&self, parts: &[EvaluationPart]) {
        for part in parts {
            let label = self.sources.label(&part.source);
            if label == part.source {
                let labels = [label, part.effort.as_deref().unwrap_or_default()];
                self.evaluation.accuracy.with_label_values(&labels).set(part.accuracy);
                self.evaluation.reward_mean.with_label_values(&labels).set(part.reward_mean);
            }
        }
    }

    /// Counts a group that a grader of groups could not grade, by the kind of failure.
    pub fn record_group_grading_error(&self, kind: &str) {
        self.group_grading_errors.with_label_values(&[kind]).inc();
    }

    /// Shows one learner update: its counters are added, its values shown, absent values leave what was shown.
    pub fn record_update(&self, record: &TokenRecord) {
        self.learner.record(record);
        self.learning.record(record);
        for (source, groups) in &record.sources {
            self.consumed_groups.with_label_values(&[self.sources.label(source)]).inc_by(*groups);
        }
        self.zero_variance_groups.inc_by(record.zero_variance_groups);
        self.rubric.record(record);
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

impl Exposition for TokenMetrics {
    fn render(&self) -> String {
        self.process.refresh();
        self.instruments.encode()
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
