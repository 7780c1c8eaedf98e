//! What can be wrong with a model's files.

use std::path::{Path, PathBuf};

use crate::policy::TokenizerError;

/// A failure to load or save a model.
#[derive(Debug, thiserror::Error)]
pub enum PretrainedError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file that does not hold what it should.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A setting of the model that this crate does not support, or that makes no sense.
    #[error("{}: `{field}` is {value}: {why}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor that is missing, superfluous, or not as the configuration says.
    #[error("{}: tensor `{tensor}` {why}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor, by its name in the file.
        tensor: String,
        /// What is wrong with it.
        why: String,
    },
    /// A decoder for which there is no Hugging Face architecture.
    #[error("the model cannot be saved as a Hugging Face model: {0}")]
    NotPortable(String),
    /// A text that the model cannot read whole.
    #[error("a text of {length} tokens does not fit into a context of {context}")]
    Length {
        /// Tokens of the text.
        length: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// The tokenizer's files.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The device, or a shape that does not fit.
    #[error("cannot build the model: {0}")]
    Candle(#[from] candle_core::Error),
}

impl PretrainedError {
    /// For `map_err` on operations of the file system.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(super) fn file(path: &Path, why: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), why: why.into() }
    }

    pub(super) fn field(
        path: &Path,
        field: impl Into<String>,
        value: &dyn std::fmt::Display,
        why: impl Into<String>,
    ) -> Self {
        Self::Field { path: path.to_owned(), field: field.into(), value: value.to_string(), why: why.into() }
    }

    pub(super) fn tensor(path: &Path, tensor: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), tensor: tensor.into(), why: why.into() }
    }
}
