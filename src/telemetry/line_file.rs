//! A file of JSON lines in a run directory: what `metrics.jsonl` and `samples.jsonl` have in common.
//!
//! Invariants:
//! - A line is written whole and flushed; the file never holds half a line of a process that still lives.
//! - A file resumed after line `n` holds exactly its first `n` lines.
//! - A reader leaves out a last line that a crash cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TelemetryError;

/// A file that is appended to line by line.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    file: File,
    lines: u64,
}

impl LineFile {
    /// Starts an empty file, replacing one that is there.
    pub fn create(path: PathBuf) -> Result<Self, TelemetryError> {
        let file = File::create(&path).map_err(TelemetryError::write(&path))?;
        Ok(Self { path, file, lines: 0 })
    }

    /// Continues a file after its first `lines` lines, and returns the last of those; the others are removed.
    pub fn resume<T: DeserializeOwned>(
        path: PathBuf,
        lines: u64,
    ) -> Result<(Self, Option<T>), TelemetryError> {
        if lines == 0 {
            return Ok((Self::create(path)?, None));
        }
        let text = std::fs::read_to_string(&path).map_err(TelemetryError::read(&path))?;
        let kept: Vec<&str> = whole_lines(&text).take(lines as usize).collect();
        if (kept.len() as u64) < lines {
            return Err(TelemetryError::Position { path, expected: lines, actual: kept.len() as u64 });
        }
        let last = kept.last().map(|line| parse(&path, kept.len(), line)).transpose()?;
        let bytes = kept.iter().map(|line| line.len() as u64).sum();
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
            Ok(file)
        };
        let file = open().map_err(TelemetryError::write(&path))?;
        Ok((Self { path, file, lines }, last))
    }

    /// Appends one value.
    pub fn append(&mut self, value: &impl Serialize) -> Result<(), TelemetryError> {
        let mut text = serde_json::to_string(value)
            .map_err(|error| TelemetryError::write(&self.path)(io::Error::other(error)))?;
        text.push('\n');
        // A file has no buffer of its own: one call hands the whole line to the system.
        self.file.write_all(text.as_bytes()).map_err(TelemetryError::write(&self.path))?;
        self.lines += 1;
        Ok(())
    }

    /// Lines written, all of them durable from here on: without that a checkpoint could point past the end.
    pub fn durable_lines(&self) -> Result<u64, TelemetryError> {
        self.file.sync_data().map_err(TelemetryError::write(&self.path))?;
        Ok(self.lines)
    }
}

/// Reads the last `most` lines of a file.
pub(super) fn read_lines<T: DeserializeOwned>(path: &Path, most: usize) -> Result<Vec<T>, TelemetryError> {
    let text = std::fs::read_to_string(path).map_err(TelemetryError::read(path))?;
    let lines: Vec<_> = whole_lines(&text).enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(most);
    lines[first..].iter().map(|(index, line)| parse(path, index + 1, line)).collect()
}

/// Reads the first line of a file; `None` when it has none.
pub(super) fn read_first_line<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TelemetryError> {
    let file = File::open(path).map_err(TelemetryError::read(path))?;
    let mut line = String::new();
    BufReader::new(file).read_line(&mut line).map_err(TelemetryError::read(path))?;
    if line.ends_with('\n') { parse(path, 1, &line).map(Some) } else { Ok(None) }
}

fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter(|line| line.ends_with('\n'))
}

fn parse<T: DeserializeOwned>(path: &Path, number: usize, line: &str) -> Result<T, TelemetryError> {
    serde_json::from_str(line).map_err(|source| TelemetryError::Parse {
        path: path.to_owned(),
        line: number,
        source,
    })
}
