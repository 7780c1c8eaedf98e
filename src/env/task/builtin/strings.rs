//! Copy, reverse and sort: what is to be done with a string of characters.
//!
//! The plain prompt is the string and a mark that names the work: `dcab>` copy, `dcab<` reverse, `dcab^` sort. The
//! length is uniform over its range, then every character over the alphabet.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{Style, characters, score, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::held_out;
use crate::env::task::options::TaskOptions;
use crate::random::CounterRng;
use crate::trajectory::Reward;

/// The longest string.
const LONGEST: u32 = 1000;

/// What is to be done with the string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    Copy,
    /// From the last to the first character.
    Reverse,
    /// In the order of the alphabet given.
    Sort,
}

/// What can be chosen about a task on strings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StringOptions {
    /// Characters of the strings, in the order in which they are sorted; at least two.
    pub alphabet: String,
    /// Characters of the shortest string.
    pub min_length: u32,
    /// Characters of the longest string, at most 1000.
    pub max_length: u32,
    /// How the problem is put.
    pub style: Style,
    /// Whether the reward is the share of characters in their place, not 1 for a wholly right answer only.
    pub partial: bool,
}

impl Default for StringOptions {
    fn default() -> Self {
        let alphabet = "abcdefghijklmnopqrstuvwxyz".into();
        Self { alphabet, min_length: 3, max_length: 8, style: Style::Plain, partial: false }
    }
}

impl StringOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        let distinct: BTreeSet<char> = read.alphabet.chars().collect();
        if distinct.len() < 2 || distinct.len() < read.alphabet.chars().count() {
            return Err(options.refuse("alphabet", "needs at least two characters, each once"));
        }
        if let Some(bad) =
            distinct.iter().find(|c| c.is_whitespace() || c.is_control() || "<>^".contains(**c))
        {
            return Err(options.refuse("alphabet", &format!("has {bad:?}, which strings cannot contain")));
        }
        if read.min_length == 0 || read.max_length > LONGEST {
            return Err(
                options.refuse("min_length", &format!("and `max_length` lie between 1 and {LONGEST}"))
            );
        }
        if read.max_length < read.min_length {
            return Err(options.refuse("max_length", "is below `min_length`"));
        }
        Ok(read)
    }
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct StringTask {
    name: String,
    transform: Transform,
    options: StringOptions,
    alphabet: Vec<char>,
    /// How many strings there are.
    problems: f64,
    seed: u64,
}

impl StringTask {
    /// The task with options that are in their ranges.
    pub(super) fn new(name: &str, transform: Transform, options: StringOptions, seed: u64) -> Self {
        let alphabet: Vec<char> = options.alphabet.chars().collect();
        let lengths = options.min_length..=options.max_length;
        let problems = lengths.map(|length| (alphabet.len() as f64).powi(length as i32)).sum();
        Self { name: name.into(), transform, options, alphabet, problems, seed }
    }

    fn draw(&self, random: &mut CounterRng) -> String {
        let lengths = self.options.max_length - self.options.min_length + 1;
        let length = self.options.min_length as usize + random.below(lengths as usize);
        (0..length).map(|_| self.alphabet[random.below(self.alphabet.len())]).collect()
    }

    fn answer(&self, string: &str) -> String {
        match self.transform {
            Transform::Copy => string.into(),
            Transform::Reverse => string.chars().rev().collect(),
            Transform::Sort => {
                let mut sorted: Vec<char> = string.chars().collect();
                sorted.sort_by_key(|character| self.alphabet.iter().position(|other| other == character));
                sorted.into_iter().collect()
            }
        }
    }

    fn prompt(&self, string: &str) -> Prompt {
        let (mark, work) = match self.transform {
            Transform::Copy => ('>', "Repeat"),
            Transform::Reverse => ('<', "Reverse"),
            Transform::Sort => ('^', "Sort the characters of"),
        };
        self.options.style.prompt(
            || format!("{string}{mark}"),
            || format!("{work} this string: {string}\nAnswer with just the resulting string."),
        )
    }
}

impl Task for StringTask {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let draw = |random: &mut CounterRng| self.draw(random);
        let content = |string: &String| string.as_bytes().to_vec();
        let string = held_out::draw(self.seed, split, index, self.problems, draw, content);
        Ok(Problem {
            source: self.name.as_str().into(),
            prompt: self.prompt(&string),
            answer: self.answer(&string),
            data: Value::Null,
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(score::text(&problem.answer, completion.reply(), self.options.partial))
    }

    fn alphabet(&self) -> Option<String> {
        Some(characters(&[&self.options.alphabet, &text_of(&self.prompt(""))]))
    }
}
