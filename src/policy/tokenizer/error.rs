//! What can be wrong with a tokenizer, a chat template and what they are given.

use std::path::{Path, PathBuf};

/// A failure to load, use or save a tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
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
    /// A token without which the workload cannot run.
    #[error("the tokenizer of {origin} has no {role}: {hint}")]
    MissingSpecial {
        /// Where the tokenizer comes from.
        origin: String,
        /// What the token is for.
        role: &'static str,
        /// Where to set it.
        hint: &'static str,
    },
    /// A special token that is named in a configuration, but is not in the vocabulary.
    #[error("the tokenizer of {origin} names `{token}` as its {role}, but it is not in the vocabulary")]
    UnknownSpecial {
        /// Where the tokenizer comes from.
        origin: String,
        /// What the token is for.
        role: &'static str,
        /// The token.
        token: String,
    },
    /// An alphabet that no character tokenizer can be made of.
    #[error("a character tokenizer cannot be made of this alphabet: {0}")]
    Alphabet(String),
    /// A way of putting tokens together that this crate does not know.
    #[error(
        "the tokenizer of {origin} has the decoder `{decoder}`, which is not supported: use a model whose tokens \
             are bytes or characters of the text"
    )]
    Decoder {
        /// Where the tokenizer comes from.
        origin: String,
        /// Its type.
        decoder: String,
    },
    /// A character that no token stands for.
    #[error("the character {character:?} at byte {position} is not in the tokenizer's vocabulary")]
    Character {
        /// The character.
        character: char,
        /// Where in the text it is.
        position: usize,
    },
    /// A text that cannot be encoded for another reason.
    #[error("cannot encode {excerpt:?}: {why}")]
    Encode {
        /// How the text begins.
        excerpt: String,
        /// Why not.
        why: String,
    },
    /// Messages for a model that has no chat template.
    #[error(
        "the tokenizer of {origin} has no chat template: give it text instead of messages, or put a \
         `chat_template.jinja` beside its files"
    )]
    NoTemplate {
        /// Where the tokenizer comes from.
        origin: String,
    },
    /// A chat template that cannot be parsed, or that refuses the messages.
    #[error("chat template{}: {why}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Template {
        /// The line, as far as it is known.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// A chat template that rewrites what was said before.
    #[error(
        "the chat template changes the text of earlier turns ({what}): the tokens generated so far cannot be \
         continued under it; use single-turn tasks or another template"
    )]
    Rewritten {
        /// What does not match.
        what: &'static str,
    },
}

impl TokenizerError {
    /// For `map_err` on operations of the file system.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn file(path: &Path, why: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), why: why.into() }
    }
}
