//! The files that every update of a learner is told to: `metrics.jsonl` and TensorBoard events; and the run's clock.

use std::path::Path;
use std::time::Instant;

use crate::telemetry::{Cadence, EventWriter, MetricsPosition, MetricsWriter, Record, TelemetryError};

/// See the module's documentation.
pub struct Recorder<R> {
    writer: MetricsWriter<R>,
    events: Option<EventWriter>,
    started: Instant,
    /// Wall time of earlier sessions of a resumed run, seconds.
    earlier_seconds: f64,
}

impl<R: Record> Recorder<R> {
    /// Opens the files of a run. A resumed run passes where `metrics.jsonl` stood.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn open(
        run_dir: &Path,
        cadence: Cadence,
        tensorboard: bool,
        resume: Option<MetricsPosition<R>>,
        produced: u64,
    ) -> Result<Self, TelemetryError> {
        let writer = match resume {
            None => MetricsWriter::create(run_dir, cadence)?,
            Some(position) => MetricsWriter::resume(run_dir, cadence, position)?,
        };
        let events = tensorboard.then(|| EventWriter::create(run_dir, produced)).transpose()?;
        let earlier_seconds = writer.last_wall_seconds();
        Ok(Self { writer, events, started: Instant::now(), earlier_seconds })
    }

    /// Wall time of all sessions of the run, seconds.
    #[must_use]
    pub fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.started.elapsed().as_secs_f64()
    }

    /// Takes the record of one update.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn record(&mut self, record: R) -> Result<(), TelemetryError> {
        if let (Some(line), Some(events)) = (self.writer.record(record)?, &mut self.events) {
            events.write_line(&line)?;
        }
        Ok(())
    }

    /// Where `metrics.jsonl` stands; what was written is durable then.
    ///
    /// # Errors
    /// When it cannot be made durable.
    pub fn position(&self) -> Result<MetricsPosition<R>, TelemetryError> {
        self.writer.position()
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(&mut self) -> Result<(), TelemetryError> {
        if let (Some(line), Some(events)) = (self.writer.finish()?, &mut self.events) {
            events.write_line(&line)?;
        }
        Ok(())
    }
}
