//! What can go wrong with a task, and, apart from that, with grading one answer.

use std::path::PathBuf;

use super::contract::Split;

/// A task cannot be made, or has no such problem.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// No task of that name is registered.
    #[error("unknown task `{name}`{hint}; `forebay tasks` lists what there is")]
    Unknown {
        /// The name asked for.
        name: String,
        /// " (did you mean …?)" or nothing.
        hint: String,
    },
    /// An option of the task is unknown or impossible.
    #[error("options of task `{task}`: {why}")]
    Options {
        /// Registered name.
        task: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A dataset cannot be read.
    #[error("dataset {}: cannot be read: {error}; check the option `path`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// A line of a dataset is no problem.
    #[error("dataset {}, line {line}: {why}; correct it, or set `on_bad_line = \"skip\"`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A dataset leaves nothing to train on.
    #[error("dataset {}: no problem to train on ({why}); give at least one", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What became of its lines.
        why: String,
    },
    /// There is no problem of that index.
    #[error("task `{task}` has no {split} problem {index}: there are {len}, numbered from 0")]
    Index {
        /// The task.
        task: String,
        /// Which problems.
        split: Split,
        /// The index asked for.
        index: u32,
        /// How many there are.
        len: u32,
    },
    /// The problems' order cannot be made or continued.
    #[error("order of problems: {why}")]
    Order {
        /// What is wrong and what to do.
        why: String,
    },
    /// The task itself reports a failure.
    #[error("task `{task}` failed: {why}")]
    Failed {
        /// The task.
        task: String,
        /// Its own words.
        why: String,
    },
}

/// An answer could not be graded. This says nothing about the answer, so it is never counted as a wrong one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GradeError {
    /// The verifier failed.
    #[error("verifier failed: {0}")]
    Verifier(String),
    /// The problem's own reference answer or data cannot be used.
    #[error("reference of the problem cannot be used: {0}")]
    Reference(String),
    /// A reward model could not score the answer.
    #[error("reward model failed: {0}")]
    RewardModel(String),
    /// Grading took longer than allowed.
    #[error("grading took longer than allowed")]
    TimedOut,
    /// The grader panicked.
    #[error("grader panicked: {0}")]
    Panicked(String),
}

impl GradeError {
    /// The kind of failure as a metric label; one of five.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Verifier(_) => "verifier",
            Self::Reference(_) => "reference",
            Self::RewardModel(_) => "reward_model",
            Self::TimedOut => "timed_out",
            Self::Panicked(_) => "panicked",
        }
    }
}
