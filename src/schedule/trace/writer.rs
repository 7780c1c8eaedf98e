//! Writes a trace, line by line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{EngineStatistics, TRACE_VERSION, TraceError, UpdateStatistics};
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler};

#[derive(Serialize)]
struct HeaderLine<'a> {
    trace: u32,
    engines: usize,
    scheduler: &'a FlowScheduler,
}

#[derive(Serialize)]
struct DecisionLine<'a> {
    at: f64,
    event: &'a FlowEvent,
    commands: &'a [FlowCommand],
}

#[derive(Serialize)]
struct EngineLine<'a> {
    at: f64,
    engine: usize,
    statistics: &'a EngineStatistics,
}

#[derive(Serialize)]
struct UpdateLine<'a> {
    at: f64,
    update: &'a UpdateStatistics,
}

/// Writes a trace. Each line reaches the operating system when it is written, in one piece.
#[derive(Debug)]
pub struct TraceWriter<W = File> {
    out: W,
    path: PathBuf,
    line: Vec<u8>,
}

impl TraceWriter {
    /// Starts a trace of a scheduler that has this many engines, replacing a file that is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path, scheduler: &FlowScheduler, engines: usize) -> Result<Self, TraceError> {
        let file = File::create(path).map_err(|source| failed("create", path, source))?;
        Self::new(file, path, scheduler, engines)
    }

    /// Goes on after what a file has, as another part; a last line that is cut is taken away. Without a file, starts
    /// one.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn append(path: &Path, scheduler: &FlowScheduler, engines: usize) -> Result<Self, TraceError> {
        let open = || -> std::io::Result<File> {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            let end = end_of_last_line(&mut file)?;
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            Ok(file)
        };
        let file = open().map_err(|source| failed("append to", path, source))?;
        Self::new(file, path, scheduler, engines)
    }
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace, or a part of one, in whatever can be written to; `path` names it in errors.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn new(out: W, path: &Path, scheduler: &FlowScheduler, engines: usize) -> Result<Self, TraceError> {
        let mut writer = Self { out, path: path.to_owned(), line: Vec::new() };
        writer.write(&HeaderLine { trace: TRACE_VERSION, engines, scheduler })?;
        Ok(writer)
    }

    /// What the scheduler was told at a time (seconds, as it was told), and what it said.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn decision(
        &mut self,
        at: f64,
        event: &FlowEvent,
        commands: &[FlowCommand],
    ) -> Result<(), TraceError> {
        self.write(&DecisionLine { at, event, commands })
    }

    /// What an engine did since its last line.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn engine(
        &mut self,
        at: f64,
        engine: usize,
        statistics: &EngineStatistics,
    ) -> Result<(), TraceError> {
        self.write(&EngineLine { at, engine, statistics })
    }

    /// An update that was published.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn update(&mut self, at: f64, update: &UpdateStatistics) -> Result<(), TraceError> {
        self.write(&UpdateLine { at, update })
    }

    /// Hands on what a buffer below still holds; a file has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(|source| failed("write to", &self.path, source))
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), TraceError> {
        self.line.clear();
        let written =
            serde_json::to_writer(&mut self.line, line).map_err(std::io::Error::from).and_then(|()| {
                self.line.push(b'\n');
                self.out.write_all(&self.line)
            });
        written.map_err(|source| failed("write to", &self.path, source))
    }
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> TraceError {
    TraceError::File { what, path: path.to_owned(), source }
}

/// Where the last whole line of a file ends, bytes.
fn end_of_last_line(file: &mut File) -> std::io::Result<u64> {
    const BLOCK: u64 = 1 << 16;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::take(&mut *file, end - start).read_to_end(&mut block)?;
        if let Some(place) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + place as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
