//! What can go wrong while a run is shown.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A failure of telemetry. None of these touches what the run has learned.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The address of the metrics server cannot be listened on.
    #[error(
        "cannot serve metrics at telemetry.listen = \"{address}\": {source}; choose another port, port 0 for any \
         free one, or \"off\""
    )]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The thread of the metrics server cannot be started.
    #[error(
        "cannot start the thread of the metrics server: {source}; telemetry.listen = \"off\" runs without it"
    )]
    Thread {
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file of the run directory cannot be written.
    #[error("cannot write {}: {source}; check the permissions and the free space of the run directory", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file of the run directory cannot be read.
    #[error("cannot read {}: {source}; is this the directory of a run?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file of the run directory does not hold what it should.
    #[error("{}, line {line}: {source}; the file was changed or is damaged, remove it to go on without", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What was expected there.
        source: serde_json::Error,
    },
    /// The file of metrics is shorter than the checkpoint says.
    #[error(
        "{} has {actual} lines, but the checkpoint was taken after line {expected}: the file was changed since; \
         restore it or resume in a copy of the run directory from before", path.display()
    )]
    Position {
        /// The file.
        path: PathBuf,
        /// Lines it should at least have.
        expected: u64,
        /// Lines it has.
        actual: u64,
    },
}

impl TelemetryError {
    /// Wraps the error of an attempt to write `path`.
    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// Wraps the error of an attempt to read `path`.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}
