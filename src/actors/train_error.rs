//! Why a run could not start, or not end properly.

use super::devices::DeviceError;
use super::role::RoleError;
use super::run_dir::RunDirError;
use super::token::CorpusError;
use crate::codec::CodecError;
use crate::config::Contradiction;
use crate::env::EnvError;
use crate::learner::LearnerError;
use crate::schedule::trace::TraceError;
use crate::telemetry::TelemetryError;

/// See the variants.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] Contradiction),
    /// The environment cannot be made.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The task cannot be made.
    #[error("{0}")]
    Task(String),
    /// The language model cannot be used.
    #[error("{0}")]
    Model(String),
    /// The run directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A checkpoint cannot be used.
    #[error("{0}; train without --resume in another directory to start anew")]
    Checkpoint(String),
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The learner cannot be built.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// A role failed outside the tree.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// Metrics or files failed.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// A corpus cannot be written or read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file of the run is damaged.
    #[error(transparent)]
    Codec(#[from] CodecError),
}
