//! What a run shows of itself: Prometheus metrics, the files of the run directory, a progress line, a status page
//! and a report.
//!
//! Both workloads are served by the same writers, server and page: what an update tells is a [`Record`], where a run
//! stands a [`Snapshot`], what is scraped an [`Exposition`]. Control's are [`UpdateRecord`], [`ProgressSnapshot`],
//! [`Metrics`] and [`Summary`]; the token workload's are [`TokenRecord`], [`TokenProgress`], [`TokenMetrics`] and
//! [`TokenSummary`].
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
mod lag;
mod line_file;
mod merge;
mod metrics;
mod process;
mod progress;
mod record;
mod reference;
mod report;
mod run_files;
mod samples;
mod server;
mod snapshot;
mod status;
mod summary;
mod tensorboard;
mod token_ledger;
mod token_record;
mod token_summary;
mod update_record;

pub use config::{Listen, ProgressMode, TelemetryConfig};
pub use error::TelemetryError;
pub use lag::LagHistogram;
pub use metrics::{
    ActorMetrics, Exposition, GeneratorMetrics, HostCacheMetrics, Metrics, QueueMetrics, RoleMetrics,
    TokenMetrics,
};
pub use process::{ProcessUsage, process_usage};
pub use progress::{Progress, ProgressWriter, Snapshot};
pub use record::{MetricsLine, Record};
pub use reference::{CountGauge, metrics_reference};
pub use report::write_report;
pub use run_files::{Cadence, MetricsPosition, MetricsWriter};
pub use samples::{Sample, SampleWriter};
pub use server::MetricsServer;
pub use snapshot::{ProgressSnapshot, TokenProgress};
pub use status::{RunStatus, StatusBoard, TokenRunStatus};
pub use summary::{RunOutcome, RunSummary, Summary};
pub use tensorboard::EventWriter;
pub use token_ledger::{TokenAmount, TokenLedger};
pub use token_record::TokenRecord;
pub use token_summary::{EvaluationPart, TokenSummary};
pub use update_record::UpdateRecord;
