//! What a run shows of itself: Prometheus metrics, the files of the run directory, a progress line, a status page
//! and a report.
//!
//! Invariants:
//! - Everything here is told plain values by whoever drives the run; nothing here knows actors, learner or
//!   environments, and nothing a run computes depends on what is shown.
//! - A value that does not exist yet (no episode has ended, nothing was evaluated) is absent, never zero or NaN.
//! - In the files, a value that depends on the clock has a name that ends in `_seconds` or `_per_second`; everything
//!   else of a serial run is the same in every repetition.

mod config;
mod error;
mod format;
mod metrics;
mod process;
mod progress;
mod record;
mod reference;
mod report;
mod run_files;
mod server;
mod summary;
mod tensorboard;

pub use config::{Listen, ProgressMode, TelemetryConfig};
pub use error::TelemetryError;
pub use metrics::{ActorMetrics, Metrics};
pub use process::{ProcessUsage, process_usage};
pub use progress::{Progress, ProgressSnapshot, ProgressWriter};
pub use record::{LagHistogram, MetricsLine, UpdateRecord};
pub use reference::{CountGauge, metrics_reference};
pub use report::write_report;
pub use run_files::{Cadence, MetricsPosition, MetricsWriter};
pub use server::{MetricsServer, RunStatus, StatusBoard};
pub use summary::{RunOutcome, Summary};
pub use tensorboard::EventWriter;
