//! Charts of the running system, the same for both workloads: throughput, waiting, lag.

use std::collections::BTreeMap;

use super::chart::{Chart, Mark, Series, bars};
use super::scale::Quantity;
use super::series::{Point, binned};
use crate::telemetry::{LagHistogram, MetricsLine, Record};

const WALL_TIME: &str = "time since the start";

/// Measurements against time.
fn by_time<R: Record>(lines: &[MetricsLine<R>], value: fn(&MetricsLine<R>) -> Option<f64>) -> Vec<Point> {
    binned(lines.iter().map(|line| (line.record.wall_seconds(), value(line))))
}

/// What is produced in a second.
pub(super) fn throughput<R: Record>(
    lines: &[MetricsLine<R>],
    y_label: &'static str,
    name: &'static str,
) -> String {
    Chart {
        title: "Throughput",
        y_label,
        y: Quantity::Number,
        x_label: WALL_TIME,
        x: Quantity::Seconds,
        from_zero: true,
        class: "half",
        span: None,
        series: vec![Series { name, mark: Mark::Line, points: by_time(lines, |line| line.per_second) }],
    }
    .render()
}

/// Who waits for whom: the fraction of the learner's time without experience.
pub(super) fn waiting<R: Record>(lines: &[MetricsLine<R>]) -> String {
    let fractions = lines.iter().zip(lines.iter().skip(1)).map(|(before, line)| {
        let span = line.record.wall_seconds() - before.record.wall_seconds();
        (
            line.record.wall_seconds(),
            (span > 0.0).then(|| (100.0 * line.record.starved_seconds() / span).min(100.0)),
        )
    });
    Chart {
        title: "Learner starved",
        y_label: "% of its time without experience",
        y: Quantity::Number,
        x_label: WALL_TIME,
        x: Quantity::Seconds,
        from_zero: true,
        class: "half",
        span: None,
        series: vec![Series { name: "starved, %", mark: Mark::Line, points: binned(fractions) }],
    }
    .render()
}

/// How long what is learned from stood in the queue; `y_label` says what that is.
pub(super) fn queue_wait<R: Record>(lines: &[MetricsLine<R>], y_label: &'static str) -> String {
    Chart {
        title: "Queue wait",
        y_label,
        y: Quantity::Seconds,
        x_label: WALL_TIME,
        x: Quantity::Seconds,
        from_zero: true,
        class: "half",
        span: None,
        series: vec![Series {
            name: "wait",
            mark: Mark::Line,
            points: by_time(lines, |line| line.record.queue_wait_seconds()),
        }],
    }
    .render()
}

/// How old what was learned from was; `parts` are counted: steps or tokens.
pub(super) fn lag<R: Record>(lines: &[MetricsLine<R>], parts: &str) -> String {
    let mut histogram = LagHistogram::default();
    for line in lines {
        histogram.merge(line.record.lag());
    }
    let total = histogram.total().max(1) as f64;
    let counts: BTreeMap<u64, u64> = histogram.buckets().collect();
    let mut shares = Vec::new();
    // Lags that never occurred get their empty place, so that the horizontal axis is true.
    let mut lag = 0;
    while counts.last_key_value().is_some_and(|(&last, _)| lag <= last) {
        let label = if lag < 32 { lag.to_string() } else { format!("{lag}+") };
        shares.push((label, 100.0 * counts.get(&lag).copied().unwrap_or_default() as f64 / total));
        lag = if lag < 32 { lag + 1 } else { lag.saturating_mul(2) };
        if lag == u64::MAX {
            break;
        }
    }
    bars(
        "half",
        "Lag",
        &format!("% of consumed {parts}"),
        "updates behind when consumed",
        &format!("% of {parts}"),
        &shares,
    )
}
