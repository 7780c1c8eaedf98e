//! Chain arithmetic: several small numbers added and subtracted in a row, `7+5-3=`.
//!
//! The last number of the reply counts, so a model may write down what it has after each step. With `steps` the
//! demonstrations do: `12,9`.

use serde::Deserialize;
use serde_json::json;

use super::{Style, characters, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::options::TaskOptions;
use crate::env::task::verify::last_number;
use crate::env::task::{Rational, held_out};
use crate::random::CounterRng;
use crate::trajectory::Reward;

const NAME: &str = "chain";
/// The longest chain.
const LONGEST: u32 = 100;
/// The largest number of a chain.
const LARGEST: u32 = 1_000_000;

/// What can be chosen about chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainOptions {
    /// Numbers of the shortest chain, at least 2.
    pub min_terms: u32,
    /// Numbers of the longest chain, at most 100.
    pub max_terms: u32,
    /// The largest number, 1 to 1 000 000; the smallest is 0.
    pub max: u32,
    /// How the problem is put.
    pub style: Style,
    /// Whether demonstrations show the value after each step.
    pub steps: bool,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self { min_terms: 3, max_terms: 5, max: 9, style: Style::Plain, steps: false }
    }
}

impl ChainOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        options.parse::<Self>()?.checked(options)
    }

    /// These options, unless one is out of its range.
    pub(super) fn checked(self, options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read = self;
        if read.min_terms < 2 || read.max_terms > LONGEST {
            return Err(options.refuse("min_terms", &format!("and `max_terms` lie between 2 and {LONGEST}")));
        }
        if read.max_terms < read.min_terms {
            return Err(options.refuse("max_terms", "is below `min_terms`"));
        }
        if !(1..=LARGEST).contains(&read.max) {
            return Err(options.refuse("max", &format!("is {}; give 1 to {LARGEST}", read.max)));
        }
        Ok(read)
    }
}

/// The numbers of a chain with their signs, the first one positive.
pub(super) type Terms = Vec<i64>;

/// The chain as it is asked.
pub(super) fn write(terms: &Terms) -> String {
    let mut text = terms[0].to_string();
    for &term in &terms[1..] {
        text.push(if term < 0 { '-' } else { '+' });
        text.push_str(&term.abs().to_string());
    }
    text
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct Chain {
    options: ChainOptions,
    /// How many chains there are.
    problems: f64,
    seed: u64,
}

impl Chain {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: ChainOptions, seed: u64) -> Self {
        let numbers = f64::from(options.max) + 1.0;
        let of_length = |terms: u32| numbers * (2.0 * numbers - 1.0).powi(terms as i32 - 1);
        let problems = (options.min_terms..=options.max_terms).map(of_length).sum();
        Self { options, problems, seed }
    }

    fn draw(&self, random: &mut CounterRng) -> Terms {
        let ChainOptions { min_terms, max_terms, max, .. } = self.options;
        let length = min_terms as usize + random.below((max_terms - min_terms + 1) as usize);
        let mut terms = Terms::with_capacity(length);
        for position in 0..length {
            let number = random.below(max as usize + 1) as i64;
            let subtract = position > 0 && random.below(2) == 1;
            terms.push(if subtract { -number } else { number });
        }
        terms
    }

    fn prompt(&self, terms: &Terms) -> Prompt {
        let chain = write(terms);
        let (plain, chat) =
            (|| format!("{chain}="), || format!("What is {chain}? End with just the number."));
        self.options.style.prompt(plain, chat)
    }
}

impl Task for Chain {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let draw = |random: &mut CounterRng| self.draw(random);
        let content = |terms: &Terms| write(terms).into_bytes();
        let terms = held_out::draw(self.seed, split, index, self.problems, draw, content);
        let answer = terms.iter().sum::<i64>().to_string();
        let prompt = self.prompt(&terms);
        Ok(Problem { source: NAME.into(), prompt, answer, data: json!({ "terms": terms }) })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let value: i64 = problem
            .answer
            .parse()
            .map_err(|_| GradeError::Reference(format!("`{}` is no whole number", problem.answer)))?;
        let right = last_number(completion.reply()).is_some_and(|number| number.is(Rational::integer(value)));
        Ok(Reward::of(f64::from(u8::from(right))))
    }

    fn alphabet(&self) -> Option<String> {
        Some(characters(&["0123456789+-,", &text_of(&self.prompt(&vec![0, 0]))]))
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        if !turns.is_empty() {
            return None;
        }
        if !self.options.steps {
            return Some(problem.answer.clone());
        }
        Some(shown(&values(&terms_of(problem)?)))
    }
}

/// The numbers of a problem's chain; `None` where its data has none.
pub(super) fn terms_of(problem: &Problem) -> Option<Terms> {
    let terms = problem.data["terms"].as_array()?;
    terms.iter().map(serde_json::Value::as_i64).collect()
}

/// The value after each step; the first number alone is no step.
pub(super) fn values(terms: &Terms) -> Vec<i64> {
    let mut value = 0_i64;
    let values = terms.iter().map(|term| {
        value = value.saturating_add(*term);
        value
    });
    values.skip(1).collect()
}

/// Values as they are shown in an answer.
pub(super) fn shown(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
