//! How an update of a token run went, in more detail than its losses: what became of the tokens, how far off policy they
//! were, and where the gradient was long.

use prometheus::IntCounterVec;

use super::learner::UpdateGauge;
use crate::telemetry::TokenRecord;
use crate::telemetry::merge::Field;
use crate::telemetry::reference::{LateGauge, Registrar};
use crate::trajectory::TokenFate;

/// Gauges of the last update.
const GAUGES: [UpdateGauge<TokenRecord>; 29] = [
    ("ratio_mean", "Mean importance ratio.", |r| r.ratio_mean),
    ("ratio_max", "Greatest importance ratio.", |r| r.ratio_max),
    (
        "mismatch_nats",
        "Mean difference of recorded log-probabilities from the learner's own, over answers of the version that learns.",
        |r| r.mismatch_mean,
    ),
    ("clip_fraction_low", "Fraction of tokens whose ratio was cut off at the lower threshold.", |r| {
        r.clip_fraction_low
    }),
    ("clip_fraction_high", "Fraction of tokens whose ratio was cut off at the upper threshold.", |r| {
        r.clip_fraction_high
    }),
    ("masked_fraction", "Fraction of tokens masked for being too far off-policy.", |r| r.masked_fraction),
    ("ratio_min", "Least importance ratio.", |r| r.ratio_min),
    (
        "dual_clip_fraction",
        "Fraction of tokens that the second clip, of negative advantages, acted on.",
        |r| r.dual_clip_fraction,
    ),
    ("masked_fraction_low", "Fraction of tokens masked below the objective's lower bound.", |r| {
        r.masked_fraction_low
    }),
    ("masked_fraction_high", "Fraction of tokens masked above the objective's upper bound.", |r| {
        r.masked_fraction_high
    }),
    ("weight_mean", "Mean weight for the behaviour policy, before its cap or mask.", |r| r.weight_mean),
    (
        "weight_clamped_fraction",
        "Fraction of tokens whose weight for the behaviour policy was above its cap.",
        |r| r.weight_clamped_fraction,
    ),
    ("pair_margin_mean_nats", "Mean margin of the preference pairs over the reference policy.", |r| {
        r.pair_margin_mean
    }),
    ("pair_accuracy", "Fraction of the preference pairs with a positive margin.", |r| r.pair_accuracy),
    ("value_bias", "Mean of value minus value target before anything is learned from the batch.", |r| {
        r.value_bias
    }),
    ("advantage_min", "Least advantage.", |r| r.advantage_min),
    ("advantage_max", "Greatest advantage.", |r| r.advantage_max),
    (
        "zero_variance_fraction",
        "Fraction of the groups, dropped ones included, whose members all had the same reward.",
        |r| r.zero_variance_fraction,
    ),
    (
        "live_trajectories",
        "Trajectories that are generated or wait for a generator, after the last update.",
        |r| r.live.map(|count| count as f64),
    ),
    ("paused_trajectories", "Trajectories that were stopped and go on later, after the last update.", |r| {
        r.paused.map(|count| count as f64)
    }),
    ("ready_trajectories", "Trajectories of complete groups that wait for the learner.", |r| {
        r.ready.map(|count| count as f64)
    }),
    (
        "in_flight_most_trajectories",
        "Most trajectories that were begun and not ended since the update before.",
        |r| r.in_flight_max.map(|count| count as f64),
    ),
    ("credit_trajectories", "Free places of the pool, negative beyond it.", |r| {
        r.credit.map(|places| places as f64)
    }),
    (
        "target_concurrency_trajectories",
        "Most trajectories that may be generated at once, where there is a limit.",
        |r| r.concurrency.map(|count| count as f64),
    ),
    (
        "old_token_fraction",
        "Fraction of the tokens of the last update that were sampled by an older version than the one that learned.",
        |r| r.old_token_fraction,
    ),
    (
        "distinct_answer_fraction",
        "Answers that differ from all before them in their group, as a fraction of its answers; mean over groups.",
        |r| r.distinct_answer_fraction,
    ),
    (
        "group_length_spread_tokens",
        "Standard deviation of the lengths of a group's responses; mean over groups.",
        |r| r.group_length_spread,
    ),
    (
        "group_wait_seconds",
        "Time from the first ended answer of a group until the whole of it was graded; mean over groups.",
        |r| r.group_wait_seconds,
    ),
    (
        "expert_disagreement",
        "Fraction of the experts used in generation that the routers would not choose in the update; where experts are \
         replayed.",
        |r| r.expert_disagreement,
    ),
];

/// Values of the label `block` and where they are found.
const BLOCKS: [(&str, Field<TokenRecord>); 7] = [
    ("embedding", |r| r.gradient_norm_embedding),
    ("attention", |r| r.gradient_norm_attention),
    ("feed_forward", |r| r.gradient_norm_feed_forward),
    ("router", |r| r.gradient_norm_router),
    ("norm", |r| r.gradient_norm_norm),
    ("head", |r| r.gradient_norm_head),
    ("value_head", |r| r.gradient_norm_value_head),
];

/// Values of the labels `advantage` and `side`, and where they are found.
const BOUNDS: [([&str; 2], Field<TokenRecord>); 4] = [
    (["positive", "low"], |r| r.bound_pos_low),
    (["positive", "high"], |r| r.bound_pos_high),
    (["negative", "low"], |r| r.bound_neg_low),
    (["negative", "high"], |r| r.bound_neg_high),
];

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LearningMetrics {
    shown: Vec<(LateGauge, Field<TokenRecord>)>,
    fates: IntCounterVec,
}

impl LearningMetrics {
    pub fn declare(r: &mut Registrar) -> Self {
        let mut shown: Vec<_> =
            GAUGES.into_iter().map(|(name, help, field)| (r.late_gauge(name, help, &[]), field)).collect();
        let blocks = r.late_gauges(
            "block_gradient_norm",
            "Norm of the gradient of one kind of block of the policy, before clipping.",
            &["block"],
        );
        shown.extend(BLOCKS.into_iter().map(|(block, field)| (blocks.labelled(&[block]), field)));
        let bounds = r.late_gauges(
            "ratio_bound",
            "Bound of the ratio by the sign of the advantage, where a controller moves it.",
            &["advantage", "side"],
        );
        shown.extend(BOUNDS.into_iter().map(|(labels, field)| (bounds.labelled(&labels), field)));
        let fates = r.counters(
            "batch_tokens_total",
            "Tokens after the prompts in each pass over a batch: learned from, or left out for a reason.",
            &["fate"],
        );
        // Visible from the start, so that the first one is a change and not a new series.
        for fate in TokenFate::ALL {
            fates.with_label_values(&[fate.as_str()]);
        }
        Self { shown, fates }
    }

    /// Shows one update; absent values leave what was shown.
    pub fn record(&self, record: &TokenRecord) {
        for (gauge, field) in &self.shown {
            gauge.set(field(record));
        }
        for (fate, tokens) in record.token_fates.iter() {
            self.fates.with_label_values(&[fate.as_str()]).inc_by(tokens);
        }
    }
}
