//! What the page shows of a control run.

use super::chart::{Chart, Mark, Series};
use super::ledger::{Words, ledger};
use super::page::{Charts, Content, Tile, number};
use super::scale::Quantity;
use super::series::{Point, binned};
use super::system;
use crate::telemetry::format::{duration, si};
use crate::telemetry::{MetricsLine, Summary, UpdateRecord};

/// Everything that is particular to the workload.
pub(super) fn content(lines: &[MetricsLine], summary: Option<&Summary>) -> Content {
    Content {
        ending: summary.map(|summary| (summary.status, summary.cause.clone())),
        tiles: summary.map_or_else(|| lines.last().map(last_tiles).unwrap_or_default(), tiles),
        charts: Charts {
            wide: learning_curve(lines),
            half: [
                system::throughput(lines, "environment steps a second", "steps/s"),
                system::waiting(lines),
                system::lag(lines, "steps"),
                system::queue_wait(lines, "time an unroll stood in the queue"),
            ]
            .concat(),
            small: learner(lines),
        },
        against: "environment steps",
        ledger: summary.map(|summary| {
            let words = Words { units: "Unrolls", parts: "Steps" };
            ledger(words, &summary.ledger, &summary.restarts, summary.status)
        }),
        samples: String::new(),
    }
}

/// The key figures of a run that ended.
fn tiles(summary: &Summary) -> Vec<Tile> {
    vec![
        ("Return", number(summary.return_mean), "last 100 episodes".into()),
        ("Evaluation", number(summary.eval_mean), "mean return".into()),
        ("Environment steps", si(summary.env_steps as f64), String::new()),
        ("Steps a second", si(summary.steps_per_second), "whole run".into()),
        ("Wall time", duration(summary.wall_seconds), String::new()),
        ("Updates", si(summary.updates as f64), String::new()),
        ("Lag", number(summary.lag_mean), format!("updates, at most {}", summary.lag_max)),
    ]
}

/// The key figures as far as the last line tells them.
fn last_tiles(MetricsLine { record, per_second, .. }: &MetricsLine) -> Vec<Tile> {
    vec![
        ("Return", number(record.return_mean), "last 100 episodes".into()),
        ("Environment steps", si(record.env_steps as f64), String::new()),
        ("Steps a second", number(*per_second), "last line".into()),
        ("Wall time", duration(record.wall_seconds), String::new()),
        ("Updates", si(record.update as f64), String::new()),
        ("Lag", number(record.lag_mean), "updates, last line".into()),
    ]
}

/// Measurements against environment steps.
fn by_steps(lines: &[MetricsLine], value: fn(&UpdateRecord) -> Option<f64>) -> Vec<Point> {
    binned(lines.iter().map(|line| (line.record.env_steps as f64, value(&line.record))))
}

fn learning_curve(lines: &[MetricsLine]) -> String {
    let series = |name, mark, value| Series { name, mark, points: by_steps(lines, value) };
    Chart {
        title: "Learning curve",
        y_label: "undiscounted return",
        y: Quantity::Number,
        x_label: "environment steps",
        x: Quantity::Number,
        from_zero: false,
        class: "wide",
        span: None,
        series: vec![
            series("training, last 100 episodes", Mark::Line, |r| r.return_mean),
            series("training, episodes as they ended", Mark::FaintLine, |r| r.episode_return_mean),
            series("evaluation", Mark::Dots, |r| r.eval_mean),
        ],
    }
    .render()
}

fn learner(lines: &[MetricsLine]) -> String {
    let small = |title, y_label, value| {
        Chart {
            title,
            y_label,
            y: Quantity::Number,
            x_label: "",
            x: Quantity::Number,
            from_zero: false,
            class: "small",
            span: None,
            series: vec![Series { name: title, mark: Mark::Line, points: by_steps(lines, value) }],
        }
        .render()
    };
    [
        small("Policy loss", "", |r| r.policy_loss),
        small("Value loss", "", |r| r.value_loss),
        small("Entropy", "nats", |r| r.entropy),
        small("Approximate KL", "nats", |r| r.approx_kl),
        small("Gradient norm", "before clipping", |r| r.gradient_norm),
        small("Explained variance", "of value targets", |r| r.explained_variance),
        small("Ratio", "mean", |r| r.ratio_mean),
        small("Advantage", "standard deviation", |r| r.advantage_std),
        small("Ratios clipped, high", "fraction", |r| r.clip_fraction_high),
        small("Ratios clipped, low", "fraction", |r| r.clip_fraction_low),
        small("Ratios clipped, rho", "fraction", |r| r.rho_clip_fraction),
        small("Ratios clipped, c", "fraction", |r| r.c_clip_fraction),
        small("Learning rate", "", |r| r.learning_rate),
    ]
    .concat()
}
