//! Balanced brackets: a prefix of brackets, some of them open, is to be closed in the right order: `([]{:` wants `})`.
//!
//! Each bracket of the prefix opens or closes with equal chance as far as it can, the length is uniform over its
//! range, and at least one stays open.

use serde::Deserialize;
use serde_json::Value;

use super::{Style, characters, score, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::held_out;
use crate::env::task::options::TaskOptions;
use crate::random::CounterRng;
use crate::trajectory::Reward;

const NAME: &str = "brackets";
const KINDS: [(char, char); 4] = [('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')];
/// The longest prefix.
const LONGEST: u32 = 1000;

/// What can be chosen about brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BracketsOptions {
    /// Kinds of brackets: 1 to 4 of `()`, `[]`, `{}`, `<>`.
    pub kinds: usize,
    /// Brackets of the shortest prefix.
    pub min_length: u32,
    /// Brackets of the longest prefix, at most 1000.
    pub max_length: u32,
    /// How the problem is put.
    pub style: Style,
    /// Whether the reward is the share of brackets in their place, not 1 for a wholly right answer only.
    pub partial: bool,
}

impl Default for BracketsOptions {
    fn default() -> Self {
        Self { kinds: 3, min_length: 2, max_length: 8, style: Style::Plain, partial: false }
    }
}

impl BracketsOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        if !(1..=KINDS.len()).contains(&read.kinds) {
            return Err(options.refuse("kinds", &format!("is {}; give 1 to {}", read.kinds, KINDS.len())));
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
pub struct Brackets {
    options: BracketsOptions,
    /// How many prefixes there are.
    problems: f64,
    seed: u64,
}

impl Brackets {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: BracketsOptions, seed: u64) -> Self {
        Self { options, problems: count(&options), seed }
    }

    fn draw(&self, random: &mut CounterRng) -> String {
        let BracketsOptions { kinds, min_length, max_length, .. } = self.options;
        let length = min_length as usize + random.below((max_length - min_length + 1) as usize);
        let mut prefix = String::new();
        let mut open = Vec::new();
        for position in 0..length {
            // The last bracket may not close the only one that is open.
            let must_open = open.is_empty() || (position + 1 == length && open.len() == 1);
            if must_open || random.below(2) == 0 {
                let (opening, closing) = KINDS[random.below(kinds)];
                prefix.push(opening);
                open.push(closing);
            } else {
                prefix.extend(open.pop());
            }
        }
        prefix
    }

    fn prompt(&self, prefix: &str) -> Prompt {
        self.options.style.prompt(
            || format!("{prefix}:"),
            || format!("Close all open brackets: {prefix}\nAnswer with just the missing brackets."),
        )
    }
}

/// How many prefixes there are: ways to stand at each depth after so many brackets.
fn count(options: &BracketsOptions) -> f64 {
    let longest = options.max_length as usize;
    let mut ways = vec![0.0; longest + 2];
    ways[0] = 1.0;
    let mut problems = 0.0;
    for length in 1..=longest {
        let next = (0..=longest).map(|depth| {
            let opened = if depth == 0 { 0.0 } else { ways[depth - 1] * options.kinds as f64 };
            opened + ways[depth + 1]
        });
        ways = next.chain([0.0]).collect();
        if length >= options.min_length as usize {
            problems += ways[1..].iter().sum::<f64>();
        }
    }
    problems
}

/// What closes `prefix`.
fn closing(prefix: &str) -> String {
    let mut open = Vec::new();
    for bracket in prefix.chars() {
        match KINDS.iter().find(|(opening, _)| *opening == bracket) {
            Some((_, closing)) => open.push(*closing),
            None => {
                open.pop();
            }
        }
    }
    open.into_iter().rev().collect()
}

impl Task for Brackets {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let draw = |random: &mut CounterRng| self.draw(random);
        let content = |prefix: &String| prefix.as_bytes().to_vec();
        let prefix = held_out::draw(self.seed, split, index, self.problems, draw, content);
        Ok(Problem {
            source: NAME.into(),
            prompt: self.prompt(&prefix),
            answer: closing(&prefix),
            data: Value::Null,
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(score::text(&problem.answer, completion.reply(), self.options.partial))
    }

    fn alphabet(&self) -> Option<String> {
        let brackets: String = KINDS[..self.options.kinds].iter().flat_map(|&(o, c)| [o, c]).collect();
        Some(characters(&[&brackets, &text_of(&self.prompt(""))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_closed_from_the_inside() {
        for (prefix, expected) in [("(", ")"), ("([]{", "})"), ("<<()", ">>"), ("{[(", ")]}")] {
            assert_eq!(closing(prefix), expected);
        }
    }

    #[test]
    fn prefixes_are_counted_exactly() {
        let options = |kinds, min_length, max_length| {
            count(&BracketsOptions { kinds, min_length, max_length, ..BracketsOptions::default() })
        };
        // One kind: "(", "((", then "(((", "(()" and "()(".
        assert_eq!(
            [options(1, 1, 1), options(1, 2, 2), options(1, 3, 3), options(1, 1, 3)],
            [1.0, 1.0, 3.0, 5.0]
        );
        assert_eq!(options(2, 3, 3), 8.0 + 4.0 + 4.0);
    }
}
