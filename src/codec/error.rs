//! What can be wrong with bytes, files and checkpoints.

use std::path::{Path, PathBuf};

use super::Kind;

/// A failure to write something, or bytes that are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than the record has.
    #[error("the {kind} record is cut off: {found} bytes of {expected}")]
    Truncated {
        /// The record asked for.
        kind: Kind,
        /// Bytes there.
        found: u64,
        /// Bytes that there should be, as far as that is known.
        expected: u64,
    },
    /// More bytes than the record has.
    #[error("{count} unknown bytes follow the {kind} record")]
    TrailingBytes {
        /// The record asked for.
        kind: Kind,
        /// How many.
        count: u64,
    },
    /// The magic number is missing.
    #[error("expected a {kind} record, but the bytes do not begin like one; were they written by forebay?")]
    NotARecord {
        /// The record asked for.
        kind: Kind,
    },
    /// Written in another format.
    #[error(
        "the {kind} record has format version {found}, this build reads {supported}; use the build that wrote it"
    )]
    Version {
        /// The record asked for.
        kind: Kind,
        /// The version in the header.
        found: u32,
        /// The version of this build.
        supported: u32,
    },
    /// A record of another kind.
    #[error("expected a {expected} record, found a {found} record")]
    WrongKind {
        /// The record asked for.
        expected: Kind,
        /// The record there.
        found: Kind,
    },
    /// Larger than the reader is willing to take.
    #[error("the {kind} record has a payload of {length} bytes, above the limit of {limit}")]
    TooLarge {
        /// The record asked for.
        kind: Kind,
        /// Payload bytes, as the header says.
        length: u64,
        /// The reader's limit in bytes.
        limit: u64,
    },
    /// The bytes changed after they were written.
    #[error("the checksum of the {kind} record does not match: its bytes are damaged")]
    Checksum {
        /// The record asked for.
        kind: Kind,
    },
    /// The payload does not fit the type, or the type cannot be encoded.
    #[error("the payload of the {kind} record does not fit its type: {why}")]
    Payload {
        /// The record asked for.
        kind: Kind,
        /// In the encoder's words.
        why: String,
    },
    /// Tensors that cannot be written, or bytes that are not tensors.
    #[error("tensors: {why}")]
    Tensors {
        /// What is wrong, with the tensor's name where there is one.
        why: String,
    },
    /// A checkpoint that cannot be saved as asked.
    #[error("checkpoint of update {update}: {why}")]
    Checkpoint {
        /// Its update.
        update: u64,
        /// What is wrong and what would be right.
        why: String,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl CodecError {
    /// For `map_err`: names what was tried, and on what.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
