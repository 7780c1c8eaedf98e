//! `metrics.jsonl`, one JSON object a line.
//!
//! Invariants:
//! - A line is written whole and flushed; the file never holds half a line of a process that still lives.
//! - Which updates a line merges depends on the records alone (on their `update` or `wall_seconds`), never on when
//!   the writer was called.
//! - A writer resumed at a [`MetricsPosition`] continues as if it had never stopped: what was written after the
//!   position is removed, and the updates that were waiting for their line wait again.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TelemetryError;
use super::record::{MetricsLine, UpdateRecord};
use crate::codec;

/// When the waiting updates become a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// As soon as this fraction of a second has passed since the previous line, by `wall_seconds`.
    PerSecond(NonZeroU32),
    /// Whenever `update` is a multiple of this: the same lines in every repetition of a serial run.
    EveryUpdates(NonZeroU64),
}

/// Where a writer stands; kept in a checkpoint. Nothing in it depends on the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MetricsPosition {
    /// Lines written.
    pub lines: u64,
    /// Updates that wait for their line, without the figures that depend on the clock.
    pub waiting: Vec<UpdateRecord>,
}

/// Writes `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
    cadence: Cadence,
    lines: u64,
    waiting: Vec<UpdateRecord>,
    /// `wall_seconds` and `env_steps` of the last line.
    last_line: Option<(f64, u64)>,
}

impl MetricsWriter {
    /// The file's name in a run directory.
    pub const FILE: &'static str = "metrics.jsonl";

    /// Starts an empty file, replacing one that is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(run_dir: &Path, cadence: Cadence) -> Result<Self, TelemetryError> {
        let path = run_dir.join(Self::FILE);
        let file = File::create(&path).map_err(TelemetryError::write(&path))?;
        Ok(Self { path, file, cadence, lines: 0, waiting: Vec::new(), last_line: None })
    }

    /// Continues a file from a checkpoint's position.
    ///
    /// # Errors
    /// When the file is missing, shorter than the position says, or cannot be written.
    pub fn resume(
        run_dir: &Path,
        cadence: Cadence,
        position: MetricsPosition,
    ) -> Result<Self, TelemetryError> {
        let MetricsPosition { lines, waiting } = position;
        if lines == 0 {
            return Ok(Self { waiting, ..Self::create(run_dir, cadence)? });
        }
        let path = run_dir.join(Self::FILE);
        let text = std::fs::read_to_string(&path).map_err(TelemetryError::read(&path))?;
        let kept: Vec<&str> =
            text.split_inclusive('\n').filter(|line| line.ends_with('\n')).take(lines as usize).collect();
        if (kept.len() as u64) < lines {
            return Err(TelemetryError::Position { path, expected: lines, actual: kept.len() as u64 });
        }
        let last_line = kept.last().map(|line| parse_line(&path, kept.len(), line)).transpose()?;
        let last_line = last_line.map(|line| (line.record.wall_seconds, line.record.env_steps));
        let bytes = kept.iter().map(|line| line.len() as u64).sum();
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
            Ok(file)
        };
        let file = open().map_err(TelemetryError::write(&path))?;
        Ok(Self { path, file, cadence, lines, waiting, last_line })
    }

    /// `wall_seconds` of the last line, 0 before the first.
    #[must_use]
    pub fn last_wall_seconds(&self) -> f64 {
        self.last_line.unwrap_or_default().0
    }

    /// Takes one update. Returns the line when this update completed one.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn record(&mut self, record: UpdateRecord) -> Result<Option<MetricsLine>, TelemetryError> {
        let due = match self.cadence {
            Cadence::EveryUpdates(every) => record.update.is_multiple_of(every.get()),
            Cadence::PerSecond(lines) => self
                .last_line
                .is_none_or(|(then, _)| record.wall_seconds - then >= 1.0 / f64::from(lines.get())),
        };
        self.waiting.push(record);
        if due { self.finish() } else { Ok(None) }
    }

    /// Writes what still waits as a last line. A run that is resumed from an earlier checkpoint takes it back.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn finish(&mut self) -> Result<Option<MetricsLine>, TelemetryError> {
        let Some(record) = UpdateRecord::merge(&self.waiting) else { return Ok(None) };
        let (then, steps_then) = self.last_line.unwrap_or_default();
        let seconds = record.wall_seconds - then;
        let line = MetricsLine {
            merged_updates: self.waiting.len() as u64,
            steps_per_second: (seconds > 0.0)
                .then(|| record.env_steps.saturating_sub(steps_then) as f64 / seconds),
            record,
        };
        let mut text = line.to_json();
        text.push('\n');
        // A file has no buffer of its own: one call hands the whole line to the system.
        self.file.write_all(text.as_bytes()).map_err(TelemetryError::write(&self.path))?;
        self.waiting.clear();
        self.lines += 1;
        self.last_line = Some((line.record.wall_seconds, line.record.env_steps));
        Ok(Some(line))
    }

    /// Where the writer stands, for a checkpoint.
    ///
    /// # Errors
    /// When what was written cannot be made durable, without which the checkpoint could point past the end.
    pub fn position(&self) -> Result<MetricsPosition, TelemetryError> {
        self.file.sync_data().map_err(TelemetryError::write(&self.path))?;
        let waiting = self.waiting.iter().map(UpdateRecord::without_clock).collect();
        Ok(MetricsPosition { lines: self.lines, waiting })
    }
}

/// Reads all lines of a run's `metrics.jsonl`; a last line cut off by a crash is left out.
pub(super) fn read_metrics(run_dir: &Path) -> Result<Vec<MetricsLine>, TelemetryError> {
    let path = run_dir.join(MetricsWriter::FILE);
    let text = std::fs::read_to_string(&path).map_err(TelemetryError::read(&path))?;
    text.split_inclusive('\n')
        .enumerate()
        .filter(|(_, line)| line.ends_with('\n') && !line.trim().is_empty())
        .map(|(index, line)| parse_line(&path, index + 1, line))
        .collect()
}

fn parse_line(path: &Path, number: usize, line: &str) -> Result<MetricsLine, TelemetryError> {
    serde_json::from_str(line).map_err(|source| TelemetryError::Parse {
        path: path.to_owned(),
        line: number,
        source,
    })
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
        std::fs::read_to_string(dir.join(MetricsWriter::FILE)).unwrap()
    }

    #[test]
    fn updates_within_one_interval_share_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let cadence = Cadence::PerSecond(NonZeroU32::new(10).unwrap());
        let mut writer = MetricsWriter::create(dir.path(), cadence).unwrap();
        for index in 1..=1000 {
            writer.record(update(index, index as f64 / 500.0)).unwrap();
        }
        writer.finish().unwrap();
        let lines = read_metrics(dir.path()).unwrap();
        assert!((20..=21).contains(&lines.len()), "{} lines in two seconds", lines.len());
        assert_eq!(lines.iter().map(|line| line.merged_updates).sum::<u64>(), 1000);
        assert_eq!(lines.iter().map(|line| line.record.episodes).sum::<u64>(), 1000);
        assert!((lines[5].steps_per_second.unwrap() - 50_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_resumed_file_equals_one_that_was_never_interrupted() {
        let (whole, resumed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut writer = MetricsWriter::create(whole.path(), every(4)).unwrap();
        (1..=10).for_each(|index| drop(writer.record(update(index, 0.0)).unwrap()));
        writer.finish().unwrap();

        let mut writer = MetricsWriter::create(resumed.path(), every(4)).unwrap();
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
        let mut writer = MetricsWriter::create(dir.path(), every(4)).unwrap();
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
        let mut writer = MetricsWriter::create(dir.path(), every(1)).unwrap();
        writer.record(update(1, 0.0)).unwrap();
        let position = writer.position().unwrap();
        std::fs::write(dir.path().join(MetricsWriter::FILE), "").unwrap();
        let error = MetricsWriter::resume(dir.path(), every(1), position).unwrap_err();
        assert!(matches!(error, TelemetryError::Position { actual: 0, .. }), "{error}");
    }

    #[test]
    fn a_line_torn_by_a_crash_is_left_out_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MetricsWriter::FILE);
        std::fs::write(&path, "{\"update\":1}\n{\"upda").unwrap();
        assert_eq!(read_metrics(dir.path()).unwrap().len(), 1);
        std::fs::write(&path, "{\"update\":1}\n{\"upda\n").unwrap();
        assert!(read_metrics(dir.path()).unwrap_err().to_string().contains("metrics.jsonl, line 2"));
    }
}
