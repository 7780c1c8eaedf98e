//! Tasks: what a language model is asked and how its answers are graded.
//!
//! A [`Task`] hands out [`Problem`]s by index and grades what a model wrote; the token workload does the rest. It is
//! plain and synchronous like an environment, and knows nothing of tokens, actors or the learner.
//!
//! - A problem is a pure function of (task, seed, split, index), a grade of (problem, completion), the next turn of a
//!   conversation of (problem, the model's turns so far): nothing has to be saved to resume a run.
//! - Training and evaluation problems never coincide where there are enough problems to tell them apart.
//! - A grader of groups ([`Task::grade_group`]) is a pure function too, of (problem, answers and their grades).
//! - Failing to grade is an error of its own kind and never reward 0; a wrong, empty or cut-off answer is reward 0
//!   and never an error.
//!
//! `docs/tasks.md` shows how to write one and lists the built-in ones.

pub mod builtin;
mod contract;
mod dataset;
mod error;
mod guard;
mod held_out;
mod mixture;
mod options;
mod prompts;
mod rational;
mod registry;
#[cfg(test)]
mod tests;
pub mod verify;

pub use contract::{Completion, GroupAnswer, Problem, Prompt, Split, Task, Turn};
pub use dataset::{BadLines, Dataset, DatasetOptions};
pub use error::{GradeError, TaskError};
pub use guard::{grade, grade_group, respond};
pub use mixture::{Mixture, MixtureOptions, PartOptions};
pub use options::TaskOptions;
pub use prompts::{PromptPosition, Prompts};
pub use rational::Rational;

pub use crate::trajectory::{Finish, Message, Reward};
pub use registry::{TaskEntry, TaskRegistry};

/// The guide's example, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
struct Guide;
