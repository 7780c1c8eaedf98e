//! The tasks that come with this crate.
//!
//! All make their problems from the index, so nothing has to be downloaded; a model of a hundred thousand parameters
//! and a tokenizer of characters are enough for most. Each is shown in one of two styles: `plain`, a few characters
//! that end in a mark after which the answer stands, and `chat`, a request in words for a model that can read.

mod addition;
mod brackets;
mod chain;
mod countdown;
mod expression;
mod guess_number;
mod long_tail;
mod score;
mod strings;
#[cfg(test)]
mod tests;
mod worked_chain;

pub use addition::{Addition, AdditionOptions};
pub use brackets::{Brackets, BracketsOptions};
pub use chain::{Chain, ChainOptions};
pub use countdown::{Countdown, CountdownOptions};
pub use guess_number::{GuessNumber, GuessNumberOptions};
pub use long_tail::{LongTail, LongTailOptions};
pub use strings::{StringOptions, StringTask, Transform};
pub use worked_chain::{WorkedChain, WorkedChainOptions};

use serde::Deserialize;

use super::contract::{Prompt, Task};
use super::error::TaskError;
use super::options::TaskOptions;
use super::registry::{TaskEntry, TaskRegistry};
use crate::trajectory::Message;

/// How a problem is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A few characters, for a model that knows nothing else.
    #[default]
    Plain,
    /// One message of the user's, in words.
    Chat,
}

impl Style {
    /// The prompt in this style.
    fn prompt(self, plain: impl FnOnce() -> String, chat: impl FnOnce() -> String) -> Prompt {
        match self {
            Self::Plain => Prompt::Text(plain()),
            Self::Chat => Prompt::Messages(vec![Message::user(chat())]),
        }
    }
}

/// Adds every built-in task to `registry`.
pub(super) fn register(registry: &mut TaskRegistry) {
    let strings = [
        ("copy", "write the string again", Transform::Copy),
        ("reverse", "write the string backwards", Transform::Reverse),
        ("sort", "write the string's characters in the order of the alphabet", Transform::Sort),
    ];
    for (name, summary, transform) in strings {
        registry.register(entry(name, summary, move |options, seed| {
            Ok(StringTask::new(options.task(), transform, StringOptions::read(options)?, seed))
        }));
    }
    let entries = [
        entry("addition", "add two numbers", |options, seed| {
            Ok(Addition::new(AdditionOptions::read(options)?, seed))
        }),
        entry("chain", "add and subtract several small numbers in a row", |options, seed| {
            Ok(Chain::new(ChainOptions::read(options)?, seed))
        }),
        entry(
            "worked_chain",
            "add and subtract in a row, showing the work; graded by a rubric",
            |options, seed| Ok(WorkedChain::new(WorkedChainOptions::read(options)?, seed)),
        ),
        entry("countdown", "reach a target with given numbers, each used once", |options, seed| {
            Ok(Countdown::new(CountdownOptions::read(options)?, seed))
        }),
        entry("brackets", "close the open brackets in the right order", |options, seed| {
            Ok(Brackets::new(BracketsOptions::read(options)?, seed))
        }),
        entry(
            "guess_number",
            "find a hidden number in several turns, told higher or lower",
            |options, seed| Ok(GuessNumber::new(GuessNumberOptions::read(options)?, seed)),
        ),
        entry(
            "long_tail",
            "write one letter, in answers of given lengths, some very long",
            |options, seed| Ok(LongTail::new(LongTailOptions::read(options)?, seed)),
        ),
    ];
    for entry in entries {
        registry.register(entry);
    }
}

fn entry<T: Task + 'static>(
    name: &'static str,
    summary: &'static str,
    make: impl Fn(&TaskOptions<'_>, u64) -> Result<T, TaskError> + Send + Sync + 'static,
) -> TaskEntry {
    TaskEntry::new(name, summary, move |options, seed| Ok(Box::new(make(options, seed)?)))
}

/// The characters of `texts`, each once, in order.
fn characters(texts: &[&str]) -> String {
    let set: std::collections::BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).collect();
    set.into_iter().collect()
}

/// The text that a model sees of `prompt`.
fn text_of(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Messages(messages) => messages.iter().map(|message| message.content.as_str()).collect(),
    }
}
