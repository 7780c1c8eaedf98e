//! How far a token run's policy is from the one that sampled, what of the batch is left out for it, and where gradients go.

use super::chart::Mark;
use super::token::{Line, Value, chart};
use crate::telemetry::TokenRecord;
use crate::trajectory::TokenFate;

/// Fraction of the tokens after the prompts that had this fate; `None` where none had.
fn share(record: &TokenRecord, fate: TokenFate) -> Option<f64> {
    let tokens = record.token_fates.get(fate);
    (tokens > 0).then(|| tokens as f64 / record.token_fates.total() as f64)
}

/// The charts; those without any measurement are left out.
pub(super) fn charts(lines: &[Line]) -> String {
    let small = |title, y_label, series: &[(&'static str, Mark, Value)]| {
        chart(lines, "small", title, y_label, series).render()
    };
    let two =
        |title, y_label, (one, of_one): (&'static str, Value), (other, of_other): (&'static str, Value)| {
            small(title, y_label, &[(one, Mark::Line, of_one), (other, Mark::FaintLine, of_other)])
        };
    let fate = |title, value: Value| small(title, "fraction of tokens", &[(title, Mark::Line, value)]);
    [
        two(
            "Ratios clipped",
            "fraction",
            ("high", |r| r.clip_fraction_high),
            ("low", |r| r.clip_fraction_low),
        ),
        two("Ratio extremes", "", ("greatest", |r| r.ratio_max), ("least", |r| r.ratio_min)),
        two(
            "Ratio bounds",
            "largest ratio by sign of advantage",
            ("positive", |r| r.bound_pos_high),
            ("negative", |r| r.bound_neg_high),
        ),
        two(
            "Weights",
            "mean, and fraction at the cap",
            ("mean", |r| r.weight_mean),
            ("at the cap", |r| r.weight_clamped_fraction),
        ),
        small("Dual clip", "fraction", &[("dual clip", Mark::Line, |r| r.dual_clip_fraction)]),
        two(
            "Pairs",
            "accuracy and margin",
            ("accuracy", |r| r.pair_accuracy),
            ("margin", |r| r.pair_margin_mean),
        ),
        two(
            "Tokens masked",
            "fraction",
            ("off policy", |r| r.masked_fraction),
            ("all reasons", |r| r.learned_fraction().map(|learned| 1.0 - learned)),
        ),
        two(
            "Masked off policy",
            "fraction",
            ("above the bound", |r| r.masked_fraction_high),
            ("below", |r| r.masked_fraction_low),
        ),
        fate("Left out: too old", |r| share(r, TokenFate::Age)),
        fate("Left out: lag mask", |r| share(r, TokenFate::Lag)),
        fate("Left out: cut off", |r| share(r, TokenFate::Truncated)),
        fate("Left out: not graded", |r| share(r, TokenFate::Ungraded)),
        fate("Left out: not chosen", |r| share(r, TokenFate::NotChosen)),
        fate("Left out: sequence gate", |r| share(r, TokenFate::SequenceGate)),
        two(
            "Log-prob difference",
            "nats, greatest",
            ("without lag", |r| r.mismatch_max),
            ("kept KV", |r| r.kept_kv_log_prob_difference),
        ),
        two(
            "Gradient of blocks",
            "norm before clipping",
            ("attention", |r| r.gradient_norm_attention),
            ("feed-forward", |r| r.gradient_norm_feed_forward),
        ),
        two(
            "Gradient of the ends",
            "norm before clipping",
            ("embedding", |r| r.gradient_norm_embedding),
            ("head", |r| r.gradient_norm_head),
        ),
        two(
            "Gradient of norms and routers",
            "norm before clipping",
            ("norms", |r| r.gradient_norm_norm),
            ("routers", |r| r.gradient_norm_router),
        ),
    ]
    .concat()
}
