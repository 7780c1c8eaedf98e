//! The contract between a task and whoever generates and learns from answers to it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::{GradeError, TaskError};
use crate::trajectory::{Finish, Message, Reward};

/// Which problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Those that are learned from.
    Train,
    /// Those that are only measured.
    Evaluation,
}

impl fmt::Display for Split {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Train => "train",
            Self::Evaluation => "evaluation",
        })
    }
}

/// What a model is shown before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// Text to go on from, as it is.
    Text(String),
    /// A conversation, to be written out by the model's chat template.
    Messages(Vec<Message>),
}

/// One problem of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Where it comes from: the task, or a part of a dataset. Rewards are reported for each source.
    pub source: Arc<str>,
    /// What the model is shown.
    pub prompt: Prompt,
    /// The reference answer.
    pub answer: String,
    /// Whatever else grading needs; null when that is nothing. A whole number `budget` in it is the tokens that an answer
    /// should need, for penalties on those that take more.
    pub data: serde_json::Value,
}

impl Problem {
    /// Tokens that an answer should need, where the problem says.
    #[must_use]
    pub fn budget(&self) -> Option<u64> {
        self.data.get("budget")?.as_u64().filter(|&budget| budget > 0)
    }
}

/// What a model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion<'a> {
    /// Texts of the model's turns in order, without the tokens that ended them. A single-turn task sees one.
    pub turns: &'a [String],
    /// How the last turn ended.
    pub finish: Finish,
}

impl<'a> Completion<'a> {
    /// The last turn; empty when there is none.
    #[must_use]
    pub fn reply(&self) -> &'a str {
        self.turns.last().map_or("", String::as_str)
    }
}

/// One graded answer of a group, as a grader of groups sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupAnswer<'a> {
    /// What the model wrote.
    pub completion: Completion<'a>,
    /// Its grade by [`Task::grade`].
    pub reward: &'a Reward,
}

/// What follows a turn of the model's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    /// The task says this, then the model goes on. After a conversation it is the next message of the user's, after a
    /// text prompt it is appended as it is.
    Observe(String),
    /// The model has said all; its answer is graded.
    End,
}

/// Problems and how answers to them are graded. The module's documentation has the rules.
pub trait Task: Send + Sync {
    /// How many problems there are; `None` when they are made from their index without end.
    fn len(&self, split: Split) -> Option<u32>;

    /// Whether there is no problem at all.
    fn is_empty(&self, split: Split) -> bool {
        self.len(split) == Some(0)
    }

    /// The problem at `index`, which is below `len(split)`.
    ///
    /// # Errors
    /// When there is no such problem.
    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError>;

    /// Number of the problem among those of its kind. What is dealt to problems in turn, such as efforts, goes by it, so
    /// that every kind meets all of it. Unless implemented: the index, for problems of one kind.
    fn place(&self, split: Split, index: u32) -> u32 {
        let _ = split;
        index
    }

    /// Every source that training problems have ([`Problem::source`]), for settings that name one. Unless implemented:
    /// that of the first problem, for problems of one source.
    fn sources(&self) -> Vec<Arc<str>> {
        self.problem(Split::Train, 0).map(|problem| vec![problem.source]).unwrap_or_default()
    }

    /// Grades an answer; usually 1 for a right and 0 for a wrong one. Called from grading threads, several at once.
    ///
    /// # Errors
    /// When the answer could not be graded. A wrong answer is no error.
    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError>;

    /// Names of the parts ([`Reward::parts`]) that every grade has in the end, whoever gives them: what settings may
    /// combine by name.
    fn parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Problems that its source has, but that are left out since they cannot be read, such as lines of a dataset.
    fn skipped(&self) -> u64 {
        0
    }

    /// Whether [`Task::grade_group`] is to be asked.
    fn grades_groups(&self) -> bool {
        false
    }

    /// Grades the answers to one problem again, all of them in view: one new grade for each, in their order. Answers that
    /// [`Task::grade`] could not grade are not among them. Only asked for training answers, once a group is complete,
    /// when [`Task::grades_groups`] says so; called from grading threads like [`Task::grade`].
    ///
    /// # Errors
    /// When the group could not be graded.
    fn grade_group(&self, problem: &Problem, answers: &[GroupAnswer<'_>]) -> Result<Vec<Reward>, GradeError> {
        let _ = problem;
        Ok(answers.iter().map(|answer| answer.reward.clone()).collect())
    }

    /// What follows the model's last turn, given all its turns. A task of one turn need not implement it.
    ///
    /// # Errors
    /// When that could not be told.
    fn respond(&self, problem: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
        let _ = (problem, turns);
        Ok(Turn::End)
    }

    /// Whether [`Task::respond`] may say something, so that what was read of a conversation is kept for its next turn.
    fn is_multi_turn(&self) -> bool {
        false
    }

    /// Tokens that a training answer of this member of a group has, whatever the model writes, as far as
    /// `generate.max_new_tokens` allows: what would end it is not heard. For measuring what generation makes of lengths.
    /// Unless implemented: the model ends its answers.
    fn forced_length(&self, problem: &Problem, member: u16) -> Option<usize> {
        let _ = (problem, member);
        None
    }

    /// Every character of prompts, answers and observations, for a tokenizer of characters; `None` when the task
    /// does not know.
    fn alphabet(&self) -> Option<String> {
        None
    }

    /// A good next turn of the model's after its `turns` so far, for supervised warm-up to imitate; `None` when there
    /// is none to show. Unless implemented: the reference answer, as the only turn.
    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        turns.is_empty().then(|| problem.answer.clone())
    }
}
