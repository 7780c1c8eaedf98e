//! `metrics.jsonl`, one JSON object a line.
//!
//! Invariants, beside those of every [`LineFile`]:
//! - Which updates a line merges depends on the records alone (on their update or wall time), never on when the
//!   writer was called.
//! - A writer resumed at a [`MetricsPosition`] continues as if it had never stopped: what was written after the
//!   position is removed, and the updates that were waiting for their line wait again.

use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TelemetryError;
use super::line_file::{LineFile, read_lines};
use super::record::{MetricsLine, Record};
use super::update_record::UpdateRecord;
use crate::codec;

/// Name of the metrics' file in a run directory.
pub(super) const METRICS_FILE: &str = "metrics.jsonl";

/// When the waiting updates become a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// As soon as this fraction of a second has passed since the previous line, by the records' wall time.
    PerSecond(NonZeroU32),
    /// Whenever the update is a multiple of this: the same lines in every repetition of a serial run.
    EveryUpdates(NonZeroU64),
}

/// Where a writer stands; kept in a checkpoint. Nothing in it depends on the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MetricsPosition<R = UpdateRecord> {
    /// Lines written.
    pub lines: u64,
    /// Updates that wait for their line, without the figures that depend on the clock.
    pub waiting: Vec<R>,
}

/// Writes `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsWriter<R = UpdateRecord> {
    file: LineFile,
    cadence: Cadence,
    waiting: Vec<R>,
    /// Wall time (seconds) and what was produced, at the last line.
    last_line: Option<(f64, u64)>,
}

impl<R: Record> MetricsWriter<R> {
    /// Starts an empty file, replacing one that is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(run_dir: &Path, cadence: Cadence) -> Result<Self, TelemetryError> {
        let file = LineFile::create(run_dir.join(METRICS_FILE))?;
        Ok(Self { file, cadence, waiting: Vec::new(), last_line: None })
    }

    /// Continues a file from a checkpoint's position.
    ///
    /// # Errors
    /// When the file is missing, shorter than the position says, or cannot be written.
    pub fn resume(
        run_dir: &Path,
        cadence: Cadence,
        position: MetricsPosition<R>,
    ) -> Result<Self, TelemetryError> {
        let MetricsPosition { lines, waiting } = position;
        let (file, last) = LineFile::resume::<MetricsLine<R>>(run_dir.join(METRICS_FILE), lines)?;
        let last_line = last.map(|line| (line.record.wall_seconds(), line.record.produced()));
        Ok(Self { file, cadence, waiting, last_line })
    }

    /// Wall time of the last line (seconds), 0 before the first.
    #[must_use]
    pub fn last_wall_seconds(&self) -> f64 {
        self.last_line.unwrap_or_default().0
    }

    /// Takes one update. Returns the line when this update completed one.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn record(&mut self, record: R) -> Result<Option<MetricsLine<R>>, TelemetryError> {
        let due = match self.cadence {
            Cadence::EveryUpdates(every) => record.update().is_multiple_of(every.get()),
            Cadence::PerSecond(lines) => self
                .last_line
                .is_none_or(|(then, _)| record.wall_seconds() - then >= 1.0 / f64::from(lines.get())),
        };
        self.waiting.push(record);
        if due { self.finish() } else { Ok(None) }
    }

    /// Writes what still waits as a last line. A run that is resumed from an earlier checkpoint takes it back.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn finish(&mut self) -> Result<Option<MetricsLine<R>>, TelemetryError> {
        let Some(record) = R::merge(&self.waiting) else { return Ok(None) };
        let (then, produced_then) = self.last_line.unwrap_or_default();
        let (wall_seconds, produced) = (record.wall_seconds(), record.produced());
        let seconds = wall_seconds - then;
        let line = MetricsLine {
            merged_updates: self.waiting.len() as u64,
            per_second: (seconds > 0.0).then(|| produced.saturating_sub(produced_then) as f64 / seconds),
            record,
        };
        self.file.append(&line)?;
        self.waiting.clear();
        self.last_line = Some((wall_seconds, produced));
        Ok(Some(line))
    }

    /// Where the writer stands, for a checkpoint.
    ///
    /// # Errors
    /// When what was written cannot be made durable, without which the checkpoint could point past the end.
    pub fn position(&self) -> Result<MetricsPosition<R>, TelemetryError> {
        let lines = self.file.durable_lines()?;
        Ok(MetricsPosition { lines, waiting: self.waiting.iter().map(R::without_clock).collect() })
    }
}

/// Reads all lines of a run's `metrics.jsonl`; a last line cut off by a crash is left out.
pub(super) fn read_metrics<R: Record>(run_dir: &Path) -> Result<Vec<MetricsLine<R>>, TelemetryError> {
    read_lines(&run_dir.join(METRICS_FILE), usize::MAX)
}

/// [`codec::write_atomically`] with this module's error.
pub(super) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), TelemetryError> {
    codec::write_atomically(path, content)
        .map_err(|error| TelemetryError::write(path)(io::Error::other(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(update: u64, wall_seconds: f64) -> UpdateRecord {
        let mut record = UpdateRecord {
            update,
            wall_seconds,
            env_steps: update * 100,
            loss: Some(0.1),
            ..Default::default()
        };
        record.add_episode(update as f64 / 3.0, 7);
        record
    }

    fn every(updates: u64) -> Cadence {
        Cadence::EveryUpdates(NonZeroU64::new(updates).unwrap())
    }

    fn read(dir: &Path) -> String {
        std::fs::read_to_string(dir.join(METRICS_FILE)).unwrap()
    }

    #[test]
    fn updates_within_one_interval_share_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let cadence = Cadence::PerSecond(NonZeroU32::new(10).unwrap());
        let mut writer = MetricsWriter::<UpdateRecord>::create(dir.path(), cadence).unwrap();
        for index in 1..=1000 {
            writer.record(update(index, index as f64 / 500.0)).unwrap();
        }
        writer.finish().unwrap();
        let lines = read_metrics::<UpdateRecord>(dir.path()).unwrap();
        assert!((20..=21).contains(&lines.len()), "{} lines in two seconds", lines.len());
        assert_eq!(lines.iter().map(|line| line.merged_updates).sum::<u64>(), 1000);
        assert_eq!(lines.iter().map(|line| line.record.episodes).sum::<u64>(), 1000);
        assert!((lines[5].per_second.unwrap() - 50_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_resumed_file_equals_one_that_was_never_interrupted() {
        let (whole, resumed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut writer = MetricsWriter::<UpdateRecord>::create(whole.path(), every(4)).unwrap();
        (1..=10).for_each(|index| drop(writer.record(update(index, 0.0)).unwrap()));
        writer.finish().unwrap();

        let mut writer = MetricsWriter::<UpdateRecord>::create(resumed.path(), every(4)).unwrap();
        (1..=6).for_each(|index| drop(writer.record(update(index, 0.0)).unwrap()));
        let position = writer.position().unwrap();
        (7..=9).for_each(|index| drop(writer.record(update(index, 0.0)).unwrap()));
        writer.finish().unwrap();
        drop(writer);
        let stored = serde_json::to_string(&position).unwrap();
        let mut writer =
            MetricsWriter::resume(resumed.path(), every(4), serde_json::from_str(&stored).unwrap()).unwrap();
        (7..=10).for_each(|index| drop(writer.record(update(index, 0.0)).unwrap()));
        writer.finish().unwrap();

        assert_eq!(read(whole.path()), read(resumed.path()));
        assert_eq!(read(whole.path()).lines().count(), 3);
    }

    #[test]
    fn a_position_survives_the_binary_envelope_and_holds_no_clock() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = MetricsWriter::<UpdateRecord>::create(dir.path(), every(4)).unwrap();
        (1..=6).for_each(|index| drop(writer.record(update(index, 0.25)).unwrap()));
        let position = writer.position().unwrap();
        let bytes = bincode::serde::encode_to_vec(&position, bincode::config::standard()).unwrap();
        let (back, _): (MetricsPosition, usize) =
            bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).unwrap();
        assert_eq!(back, position);
        assert!(position.waiting.iter().all(|record| record.wall_seconds == 0.0 && record.loss == Some(0.1)));
    }

    #[test]
    fn a_file_shorter_than_its_checkpoint_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = MetricsWriter::<UpdateRecord>::create(dir.path(), every(1)).unwrap();
        writer.record(update(1, 0.0)).unwrap();
        let position = writer.position().unwrap();
        std::fs::write(dir.path().join(METRICS_FILE), "").unwrap();
        let error = MetricsWriter::resume(dir.path(), every(1), position).unwrap_err();
        assert!(matches!(error, TelemetryError::Position { actual: 0, .. }), "{error}");
    }

    #[test]
    fn a_line_torn_by_a_crash_is_left_out_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(METRICS_FILE);
        std::fs::write(&path, "{\"update\":1}\n{\"upda").unwrap();
        assert_eq!(read_metrics::<UpdateRecord>(dir.path()).unwrap().len(), 1);
        std::fs::write(&path, "{\"update\":1}\n{\"upda\n").unwrap();
        assert!(
            read_metrics::<UpdateRecord>(dir.path())
                .unwrap_err()
                .to_string()
                .contains("metrics.jsonl, line 2")
        );
    }
}
