//! What can be wrong with a trace.

use std::path::PathBuf;

/// Why a trace cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or written to.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line says something that no trace says.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The format is of another version.
    #[error(
        "{}, line {line}: a trace of version {found}, and this program reads version {}; replay it with the program \
         that wrote it",
        path.display(),
        super::TRACE_VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// The version that it has.
        found: u32,
    },
    /// There is nothing to read.
    #[error("{} has no whole line; a trace begins with a header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}
