//! Reads a trace, line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::entry::RawEntry;
use super::{TRACE_VERSION, TraceError, TraceHeader, TraceLine};

/// Longest line that is read, bytes; a header holds everything that is in flight.
const LONGEST: u64 = 1 << 28;
/// What a header begins with.
const HEADER: &[u8] = b"{\"trace\":";

/// Reads a trace: an iterator over its lines with their numbers, from 1. The first is a header. After an error, it ends.
#[derive(Debug)]
pub struct TraceReader<R = BufReader<File>> {
    input: R,
    path: PathBuf,
    line: u64,
    cut: bool,
    over: bool,
}

impl TraceReader {
    /// Opens a trace: a file, or a run directory that has one.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let path = if path.is_dir() { path.join(super::TRACE_FILE) } else { path.to_owned() };
        let file = File::open(&path).map_err(|source| TraceError::File {
            what: "open",
            path: path.clone(),
            source,
        })?;
        Ok(Self::new(BufReader::new(file), &path))
    }
}

impl<R: BufRead> TraceReader<R> {
    /// Reads from anything; `path` names it in errors.
    pub fn new(input: R, path: &Path) -> Self {
        Self { input, path: path.to_owned(), line: 0, cut: false, over: false }
    }

    /// Whether the last line was cut, and so was left out: the run was killed.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn wrong(&self, why: impl Into<String>) -> TraceError {
        TraceError::Line { path: self.path.clone(), line: self.line, why: why.into() }
    }

    fn read(&mut self) -> Result<Option<TraceLine>, TraceError> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(LONGEST).read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|source| TraceError::File { what: "read", path: self.path.clone(), source })?;
        if bytes.last() != Some(&b'\n') {
            if read as u64 == LONGEST {
                self.line += 1;
                return Err(self.wrong(format!("longer than {} MiB", LONGEST >> 20)));
            }
            self.cut = read > 0;
            let empty = self.line == 0;
            return if empty { Err(TraceError::Empty { path: self.path.clone() }) } else { Ok(None) };
        }
        bytes.pop();
        self.line += 1;
        if bytes.starts_with(HEADER) {
            return self.header(&bytes).map(Some);
        }
        if self.line == 1 {
            return Err(self.wrong("not a trace, which begins with a header that has `trace`, its version"));
        }
        let entry: RawEntry =
            serde_json::from_slice(&bytes).map_err(|error| self.wrong(error.to_string()))?;
        let entry = entry.entry().ok_or_else(|| {
            self.wrong("has neither `event` with `commands`, nor `engine` with `statistics`, nor `update`")
        })?;
        Ok(Some(TraceLine::Entry(entry)))
    }

    fn header(&self, bytes: &[u8]) -> Result<TraceLine, TraceError> {
        #[derive(Deserialize)]
        struct Version {
            trace: u32,
        }
        let wrong = |error: serde_json::Error| self.wrong(error.to_string());
        let Version { trace } = serde_json::from_slice(bytes).map_err(wrong)?;
        if trace != TRACE_VERSION {
            return Err(TraceError::Version { path: self.path.clone(), line: self.line, found: trace });
        }
        let header: TraceHeader = serde_json::from_slice(bytes).map_err(wrong)?;
        Ok(TraceLine::Header(Box::new(header)))
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<(u64, TraceLine), TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let read = self.read();
        self.over = !matches!(read, Ok(Some(_)));
        read.transpose().map(|line| line.map(|line| (self.line, line)))
    }
}
