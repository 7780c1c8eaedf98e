//! `report.html`: a run on one page, without scripts or files beside it.
//!
//! It is made from the files of the run directory alone, so it can be made again at any time, also of a run that was
//! interrupted or killed.

mod chart;
mod page;
mod scale;
mod series;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use self::chart::{Chart, Mark, Series, bars};
use self::page::Page;
use self::scale::Quantity;
use self::series::binned;
use super::run_files::{read_metrics, write_atomically};
use super::{LagHistogram, MetricsLine, UpdateRecord};
use super::{Summary, TelemetryError};

/// Writes `report.html` from the files of a run directory: `metrics.jsonl`, `summary.json` and `config.toml`, the
/// latter two where they are there (a run that was killed has no summary). Returns the path of the page.
///
/// # Errors
/// When `metrics.jsonl` is missing, a file is damaged, or the page cannot be written.
pub fn write_report(run_dir: &Path) -> Result<PathBuf, TelemetryError> {
    let lines = read_metrics::<UpdateRecord>(run_dir)?;
    let summary = optional(Summary::read(run_dir))?;
    let config_path = run_dir.join("config.toml");
    let config = optional(std::fs::read_to_string(&config_path).map_err(TelemetryError::read(&config_path)))?;
    let resolved = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    let page = Page {
        name: resolved.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        last_line: lines.last(),
        summary,
        config,
        charts: charts(&lines),
    };
    let path = run_dir.join("report.html");
    write_atomically(&path, page.render().as_bytes())?;
    Ok(path)
}

/// `None` when the file is not there.
fn optional<T>(result: Result<T, TelemetryError>) -> Result<Option<T>, TelemetryError> {
    match result {
        Err(TelemetryError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The charts of the page, in three groups of one size each.
#[derive(Debug, Default)]
struct Charts {
    wide: String,
    half: String,
    small: String,
}

fn charts(lines: &[MetricsLine]) -> Charts {
    Charts {
        wide: learning_curve(lines),
        half: [throughput(lines), waiting(lines), lag(lines), queue_wait(lines)].concat(),
        small: learner(lines),
    }
}

const WALL_TIME: &str = "time since the start";

/// Measurements against environment steps.
fn by_steps(lines: &[MetricsLine], value: fn(&UpdateRecord) -> Option<f64>) -> Vec<series::Point> {
    binned(lines.iter().map(|line| (line.record.env_steps as f64, value(&line.record))))
}

/// Measurements against time.
fn by_time(lines: &[MetricsLine], value: fn(&MetricsLine) -> Option<f64>) -> Vec<series::Point> {
    binned(lines.iter().map(|line| (line.record.wall_seconds, value(line))))
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
        series: vec![
            series("training, last 100 episodes", Mark::Line, |r| r.return_mean),
            series("training, episodes as they ended", Mark::FaintLine, |r| r.episode_return_mean),
            series("evaluation", Mark::Dots, |r| r.eval_mean),
        ],
    }
    .render()
}

fn throughput(lines: &[MetricsLine]) -> String {
    Chart {
        title: "Throughput",
        y_label: "environment steps a second",
        y: Quantity::Number,
        x_label: WALL_TIME,
        x: Quantity::Seconds,
        from_zero: true,
        class: "half",
        series: vec![Series {
            name: "steps/s",
            mark: Mark::Line,
            points: by_time(lines, |line| line.per_second),
        }],
    }
    .render()
}

/// Who waits for whom: the fraction of the learner's time without experience.
fn waiting(lines: &[MetricsLine]) -> String {
    let fractions = lines.iter().zip(lines.iter().skip(1)).map(|(before, line)| {
        let span = line.record.wall_seconds - before.record.wall_seconds;
        (
            line.record.wall_seconds,
            (span > 0.0).then(|| (100.0 * line.record.starved_seconds / span).min(100.0)),
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
        series: vec![Series { name: "starved, %", mark: Mark::Line, points: binned(fractions) }],
    }
    .render()
}

fn queue_wait(lines: &[MetricsLine]) -> String {
    Chart {
        title: "Queue wait",
        y_label: "time an unroll stood in the queue",
        y: Quantity::Seconds,
        x_label: WALL_TIME,
        x: Quantity::Seconds,
        from_zero: true,
        class: "half",
        series: vec![Series {
            name: "wait",
            mark: Mark::Line,
            points: by_time(lines, |line| line.record.queue_wait_seconds),
        }],
    }
    .render()
}

fn lag(lines: &[MetricsLine]) -> String {
    let mut histogram = LagHistogram::default();
    for line in lines {
        histogram.merge(&line.record.lag);
    }
    let total = histogram.total().max(1) as f64;
    let counts: std::collections::BTreeMap<u64, u64> = histogram.buckets().collect();
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
    bars("half", "Lag", "% of consumed steps", "updates behind when consumed", "% of steps", &shares)
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
        small("Ratios clipped, rho", "fraction", |r| r.rho_clip_fraction),
        small("Ratios clipped, c", "fraction", |r| r.c_clip_fraction),
        small("Learning rate", "", |r| r.learning_rate),
    ]
    .concat()
}

/// Text as HTML content or attribute value.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::summary::tests::example;

    /// A run directory with a few lines of metrics.
    fn run_directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let lines: String = (1..=20_u64)
            .map(|update| {
                let mut record = UpdateRecord {
                    update,
                    env_steps: update * 1_000,
                    wall_seconds: update as f64,
                    return_mean: Some(update as f64),
                    loss: Some(1.0 / update as f64),
                    ..Default::default()
                };
                record.add_lag(update % 3, 80);
                MetricsLine { record, merged_updates: 1, per_second: Some(1e3) }.to_json() + "\n"
            })
            .collect();
        std::fs::write(dir.path().join("metrics.jsonl"), lines).unwrap();
        dir
    }

    fn report(dir: &Path) -> String {
        std::fs::read_to_string(write_report(dir).unwrap()).unwrap()
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_beside_it() {
        let dir = run_directory();
        example().write(dir.path()).unwrap();
        std::fs::write(dir.path().join("config.toml"), "name = \"<tag>\"\n").unwrap();
        let html = report(dir.path());
        assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
        for part in
            ["Learning curve", "Throughput", "Lag", "completed", "reached stop.env_steps", "&lt;tag&gt;"]
        {
            assert!(html.contains(part), "{part} is missing");
        }
        for outside in ["<script", "http://", "https://", "url(", "@import", "src=", "NaN"] {
            assert!(!html.contains(outside), "{outside} should not be there");
        }
        assert_eq!(
            html.matches("<svg class=\"chart\"").count(),
            html.matches("role=\"img\" aria-label=").count()
        );
    }

    #[test]
    fn a_run_without_summary_gets_a_page_that_says_so() {
        let dir = run_directory();
        let html = report(dir.path());
        assert!(html.contains("no summary") && html.contains("20.0k"), "{html}");
    }

    #[test]
    fn a_run_that_wrote_no_line_gets_a_page() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
        assert!(report(dir.path()).contains("Nothing was measured"));
    }

    #[test]
    fn a_directory_that_is_no_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            write_report(dir.path()).unwrap_err().to_string().contains("is this the directory of a run?")
        );
    }
}
