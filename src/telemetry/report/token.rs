//! What the page shows of a token run.
//!
//! Horizontal axes count update attempts, those of a supervised warm-up included: in a warm-up nothing is generated,
//! so against tokens it would have no width.

use super::chart::{Chart, Mark, Series, Span};
use super::ledger::{Words, ledger};
use super::page::{Charts, Content, Tile, number};
use super::samples::samples;
use super::scale::Quantity;
use super::series::{Point, binned};
use super::{system, token_corrections};
use crate::telemetry::format::{duration, si};
use crate::telemetry::{MetricsLine, Sample, TokenRecord, TokenSummary};
use crate::trajectory::LedgerSnapshot;

pub(super) type Line = MetricsLine<TokenRecord>;
pub(super) type Value = fn(&TokenRecord) -> Option<f64>;

const AGAINST: &str = "updates";

/// Everything that is particular to the workload.
pub(super) fn content(lines: &[Line], summary: Option<&TokenSummary>, written: &[Sample]) -> Content {
    Content {
        ending: summary.map(|summary| (summary.status, summary.cause.clone())),
        tiles: summary.map_or_else(|| lines.last().map(last_tiles).unwrap_or_default(), tiles),
        charts: Charts {
            wide: learning_curve(lines),
            half: [
                system::throughput(lines, "tokens a second", "tokens/s"),
                system::waiting(lines),
                response_length(lines),
                truncation(lines),
                system::lag(lines, "tokens"),
                system::queue_wait(lines, "time a trajectory stood in the queue"),
            ]
            .concat(),
            small: learner(lines),
        },
        against: AGAINST,
        ledger: summary.map(|summary| {
            let words = Words { units: "Trajectories", parts: "Tokens" };
            let books = LedgerSnapshot::from(summary.ledger.clone());
            ledger(words, &books, &summary.restarts, summary.status)
        }),
        samples: samples(written),
    }
}

/// The key figures of a run that ended.
fn tiles(summary: &TokenSummary) -> Vec<Tile> {
    let errors = match summary.grading_errors {
        0 => String::new(),
        1 => "1 grading error".into(),
        count => format!("{count} grading errors"),
    };
    let evaluated = summary.eval_initial.map(|initial| format!("mean reward, {initial:.2} at the start"));
    vec![
        ("Reward", number(summary.reward_mean), "last 10 updates".into()),
        ("Evaluation", number(summary.eval_mean), evaluated.unwrap_or("mean reward".into())),
        ("Tokens", si(summary.tokens as f64), format!("{} epochs", si(summary.epochs))),
        ("Tokens a second", si(summary.tokens_per_second), "whole run".into()),
        ("Wall time", duration(summary.wall_seconds), String::new()),
        ("Updates", si(summary.updates as f64), errors),
        ("Lag", number(summary.lag_mean), format!("updates, at most {}", summary.lag_max)),
    ]
}

/// The key figures as far as the last line tells them.
fn last_tiles(MetricsLine { record, per_second, .. }: &Line) -> Vec<Tile> {
    vec![
        ("Reward", number(record.reward_mean), "last line".into()),
        ("Tokens", si(record.tokens as f64), String::new()),
        ("Tokens a second", number(*per_second), "last line".into()),
        ("Wall time", duration(record.wall_seconds), String::new()),
        ("Updates", si(record.update as f64), String::new()),
        ("Lag", number(record.lag_mean), "updates, last line".into()),
    ]
}

/// Each line with the update attempts up to and with it.
fn with_attempts(lines: &[Line]) -> impl Iterator<Item = (f64, &TokenRecord)> {
    lines.iter().scan(0, |attempts, line| {
        *attempts += line.merged_updates.max(1);
        Some((*attempts as f64, &line.record))
    })
}

/// Measurements against update attempts.
fn by_update(lines: &[Line], value: Value) -> Vec<Point> {
    binned(with_attempts(lines).map(|(attempts, record)| (attempts, value(record))))
}

/// The supervised part of the run, which comes before everything else.
fn warm_up(lines: &[Line]) -> Option<Span> {
    let last = with_attempts(lines).filter(|(_, record)| record.warmup_loss.is_some()).last()?;
    Some(Span { until: last.0, name: "warm-up" })
}

/// A chart against update attempts, of several series: name, how it is drawn, value.
pub(super) fn chart(
    lines: &[Line],
    class: &'static str,
    title: &'static str,
    y_label: &'static str,
    series: &[(&'static str, Mark, Value)],
) -> Chart {
    Chart {
        title,
        y_label,
        y: Quantity::Number,
        x_label: if class == "small" { "" } else { AGAINST },
        x: Quantity::Number,
        from_zero: class == "half",
        class,
        span: None,
        series: series
            .iter()
            .map(|&(name, mark, value)| Series { name, mark, points: by_update(lines, value) })
            .collect(),
    }
}

fn learning_curve(lines: &[Line]) -> String {
    let series: [(_, _, Value); 3] = [
        ("reward, training", Mark::Line, |r| r.reward_mean),
        ("solved, training", Mark::FaintLine, |r| r.solved),
        ("evaluation", Mark::Dots, |r| r.eval_mean),
    ];
    let chart = chart(lines, "wide", "Learning curve", "mean reward, and fraction solved", &series);
    Chart { span: warm_up(lines), ..chart }.render()
}

fn response_length(lines: &[Line]) -> String {
    let series: [(_, _, Value); 2] = [
        ("mean", Mark::Line, |r| r.response_length_mean),
        ("longest", Mark::FaintLine, |r| r.response_length_max.map(|length| length as f64)),
    ];
    chart(lines, "half", "Response length", "tokens", &series).render()
}

fn truncation(lines: &[Line]) -> String {
    let percent: Value = |r| r.truncated_fraction.map(|fraction| 100.0 * fraction);
    chart(lines, "half", "Truncated", "% of responses cut off", &[("cut off, %", Mark::Line, percent)])
        .render()
}

fn learner(lines: &[Line]) -> String {
    let small = |title, y_label, series: &[(&'static str, Mark, Value)]| {
        chart(lines, "small", title, y_label, series).render()
    };
    let one = |title, y_label, value: Value| small(title, y_label, &[(title, Mark::Line, value)]);
    [
        one("Warm-up loss", "nats a token", |r| r.warmup_loss),
        one("Policy loss", "", |r| r.policy_loss),
        one("Value loss", "", |r| r.value_loss),
        one("Entropy", "nats", |r| r.entropy),
        one("Approximate KL", "nats", |r| r.approx_kl),
        one("KL from the reference", "nats", |r| r.reference_kl),
        one("KL from the teachers", "nats", |r| r.teacher_kl),
        one("Reference KL coefficient", "where it is controlled", |r| r.kl_coefficient),
        small(
            "Work of a step",
            "",
            &[
                ("passes", Mark::Line, |r| r.passes),
                ("answers a problem", Mark::FaintLine, |r| {
                    (r.groups > 0).then(|| r.answers as f64 / r.groups as f64)
                }),
            ],
        ),
        one("Gradient norm", "before clipping", |r| r.gradient_norm),
        token_corrections::charts(lines),
        one("Groups without contrast", "for each that is learned from", |r| {
            (r.groups > 0).then(|| r.zero_variance_groups as f64 / r.groups as f64)
        }),
        one("Advantage", "standard deviation", |r| r.advantage_std),
        small(
            "Advantage extremes",
            "",
            &[("greatest", Mark::Line, |r| r.advantage_max), ("least", Mark::FaintLine, |r| r.advantage_min)],
        ),
        one("Reward learned from", "after shaping", |r| r.shaped_reward_mean),
        small(
            "Answers penalised",
            "fraction",
            &[
                ("over budget", Mark::Line, |r| r.over_budget_fraction),
                ("overlong", Mark::FaintLine, |r| r.overlong_fraction),
            ],
        ),
        small(
            "Rubric",
            "",
            &[
                ("pass rate", Mark::Line, |r| r.pass_rate),
                ("GAR factor", Mark::FaintLine, |r| r.gar_lambda_mean),
            ],
        ),
        small(
            "Critic",
            "of value targets",
            &[
                ("explained variance", Mark::Line, |r| r.explained_variance),
                ("bias", Mark::FaintLine, |r| r.value_bias),
            ],
        ),
        one("Learning rate", "", |r| r.learning_rate),
    ]
    .concat()
}
