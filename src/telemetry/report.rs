//! `report.html`: a run on one page, without scripts or files beside it.
//!
//! It is made from the files of the run directory alone, so it can be made again at any time, also of a run that was
//! interrupted or killed. What the two workloads show is in `control` and `token`; the rest serves both.

mod chart;
mod control;
mod ledger;
mod page;
mod samples;
mod scale;
mod series;
mod system;
mod token;
mod token_corrections;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::page::{Content, Page};
use super::line_file::read_first_line;
use super::run_files::{METRICS_FILE, read_metrics, write_atomically};
use super::samples::read_samples;
use super::{Record, RunSummary, TelemetryError, TokenRecord, TokenSummary};

/// Most samples of a model's writing on the page.
const SAMPLES: usize = 20;

/// Writes `report.html` from the files of a run directory: `metrics.jsonl`, `summary.json`, `config.toml` and, of a
/// token run, `samples.jsonl`; all but the first where they are there (a run that was killed has no summary). Returns
/// the path of the page.
///
/// # Errors
/// When `metrics.jsonl` is missing, a file is damaged, or the page cannot be written.
pub fn write_report(run_dir: &Path) -> Result<PathBuf, TelemetryError> {
    let content = content(run_dir)?;
    let config_path = run_dir.join("config.toml");
    let config = optional(std::fs::read_to_string(&config_path).map_err(TelemetryError::read(&config_path)))?;
    let resolved = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    let name = resolved.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = run_dir.join("report.html");
    write_atomically(&path, Page { name, content, config }.render().as_bytes())?;
    Ok(path)
}

/// What the run's workload shows. The summary tells which one it is, and without one the first line of metrics.
fn content(run_dir: &Path) -> Result<Content, TelemetryError> {
    match optional(RunSummary::read(run_dir))? {
        Some(RunSummary::Control(summary)) => Ok(control::content(&read_metrics(run_dir)?, Some(&summary))),
        Some(RunSummary::Token(summary)) => token_content(run_dir, Some(&summary)),
        None if holds_tokens(run_dir)? => token_content(run_dir, None),
        None => Ok(control::content(&read_metrics(run_dir)?, None)),
    }
}

fn token_content(run_dir: &Path, summary: Option<&TokenSummary>) -> Result<Content, TelemetryError> {
    Ok(token::content(&read_metrics(run_dir)?, summary, &read_samples(run_dir, SAMPLES)?))
}

/// Whether the metrics are those of a token run.
fn holds_tokens(run_dir: &Path) -> Result<bool, TelemetryError> {
    let first = read_first_line::<Map<String, Value>>(&run_dir.join(METRICS_FILE))?;
    Ok(first.is_some_and(|line| line.contains_key(TokenRecord::PRODUCED)))
}

/// `None` when the file is not there.
fn optional<T>(result: Result<T, TelemetryError>) -> Result<Option<T>, TelemetryError> {
    match result {
        Err(TelemetryError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Text as HTML content or attribute value.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
