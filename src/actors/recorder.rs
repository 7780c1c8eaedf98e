//! What the learner tells of each update: metrics, `metrics.jsonl`, TensorBoard events.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::learner::Applied;
use crate::learner::objective::Clipped;
use crate::telemetry::{
    Cadence, EventWriter, Metrics, MetricsPosition, MetricsWriter, TelemetryError, UpdateRecord,
};

/// See the module's documentation.
pub struct Recorder {
    metrics: Arc<Metrics>,
    writer: MetricsWriter,
    events: Option<EventWriter>,
    started: Instant,
    /// Wall time of earlier sessions of a resumed run, seconds.
    earlier_seconds: f64,
    blocked: Duration,
}

impl Recorder {
    /// Opens the files of a run. A resumed run passes where `metrics.jsonl` stood.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn open(
        run_dir: &Path,
        cadence: Cadence,
        tensorboard: bool,
        metrics: Arc<Metrics>,
        resume: Option<MetricsPosition>,
        env_steps: u64,
    ) -> Result<Self, TelemetryError> {
        let writer = match resume {
            None => MetricsWriter::create(run_dir, cadence)?,
            Some(position) => MetricsWriter::resume(run_dir, cadence, position)?,
        };
        let events = tensorboard.then(|| EventWriter::create(run_dir, env_steps)).transpose()?;
        let earlier_seconds = writer.last_wall_seconds();
        Ok(Self {
            metrics,
            writer,
            events,
            started: Instant::now(),
            earlier_seconds,
            blocked: Duration::ZERO,
        })
    }

    /// Wall time of all sessions of the run, seconds.
    #[must_use]
    pub fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.started.elapsed().as_secs_f64()
    }

    /// Adds the figures of an applied update.
    pub fn describe(&self, record: &mut UpdateRecord, applied: &Applied) {
        let diagnostics = &applied.diagnostics;
        record.loss = Some(diagnostics.total_loss);
        record.policy_loss = Some(diagnostics.policy_loss);
        record.value_loss = Some(diagnostics.baseline_loss);
        record.entropy = Some(diagnostics.entropy_mean);
        record.approx_kl = Some(diagnostics.kl_k3);
        record.explained_variance = diagnostics.explained_variance;
        record.gradient_norm = Some(applied.gradient_norm);
        if let Clipped::Ratios { rho_bar, c_bar } = diagnostics.clipped {
            record.rho_clip_fraction = Some(rho_bar);
            record.c_clip_fraction = Some(c_bar);
        }
        if let Clipped::Surrogate { high, low, .. } = diagnostics.clipped {
            record.rho_clip_fraction = Some(high + low);
        }
    }

    /// Takes the record of one update. `blocked` is the time that producers have been blocked since the start.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn record(&mut self, mut record: UpdateRecord, blocked: Duration) -> Result<(), TelemetryError> {
        record.wall_seconds = self.wall_seconds();
        record.blocked_seconds = blocked.saturating_sub(self.blocked).as_secs_f64();
        self.blocked = blocked;
        self.metrics.record_update(&record);
        if let (Some(line), Some(events)) = (self.writer.record(record)?, &mut self.events) {
            events.write_line(&line)?;
        }
        Ok(())
    }

    /// Where `metrics.jsonl` stands; what was written is durable then.
    ///
    /// # Errors
    /// When it cannot be made durable.
    pub fn position(&self) -> Result<MetricsPosition, TelemetryError> {
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
