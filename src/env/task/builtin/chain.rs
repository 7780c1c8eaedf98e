//! Chain arithmetic: several small numbers in a row, worked from left to right, `7+5-3=`.
//!
//! The last number of the reply counts, so a model may write down what it has after each step. With `steps` the
//! demonstrations do: `12,9`. Operations and a modulus make other chains of it, such as products modulo ten.

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
/// What may stand between two numbers.
const OPERATIONS: &str = "+-*<>";

/// What can be chosen about chains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainOptions {
    /// Numbers of the shortest chain, at least 2.
    pub min_terms: u32,
    /// Numbers of the longest chain, at most 100.
    pub max_terms: u32,
    /// The largest number, 1 to 1 000 000; the smallest is 0.
    pub max: u32,
    /// What stands between the numbers, each equally often: `+`, `-`, `*`, and `<` and `>` for the smaller and the greater
    /// of what there is and the number. They are applied from left to right.
    pub operations: String,
    /// Take the value after each step modulo this; absent: as it is. Products need one.
    pub modulus: Option<u32>,
    /// How the problem is put.
    pub style: Style,
    /// Whether demonstrations show the value after each step.
    pub steps: bool,
    /// With `steps`: show the last value and every so many before it, counted from it.
    pub every: u32,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self {
            min_terms: 3,
            max_terms: 5,
            max: 9,
            operations: "+-".into(),
            modulus: None,
            style: Style::Plain,
            steps: false,
            every: 1,
        }
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
        let operations: std::collections::BTreeSet<char> = read.operations.chars().collect();
        let known = operations.iter().all(|&operation| OPERATIONS.contains(operation));
        if operations.is_empty() || !known || operations.len() < read.operations.chars().count() {
            let why = format!("is \"{}\"; give some of {OPERATIONS}, each once", read.operations);
            return Err(options.refuse("operations", &why));
        }
        if read.modulus.is_some_and(|modulus| modulus < 2) {
            return Err(options.refuse("modulus", "must be at least 2"));
        }
        if read.modulus.is_none() && operations.contains(&'*') {
            return Err(options.refuse("operations", "has products, which grow without end; set `modulus`"));
        }
        if read.every == 0 {
            return Err(options.refuse("every", "must be at least 1"));
        }
        Ok(read)
    }
}

/// A number of a chain and what stands before it; nothing is before the first.
struct Term {
    operation: char,
    number: i64,
}

/// The chain as it is asked.
fn write(terms: &[Term]) -> String {
    let mut text = String::new();
    for (position, term) in terms.iter().enumerate() {
        if position > 0 {
            text.push(term.operation);
        }
        text.push_str(&term.number.to_string());
    }
    text
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct Chain {
    options: ChainOptions,
    operations: Vec<char>,
    /// How many chains there are.
    problems: f64,
    seed: u64,
}

impl Chain {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: ChainOptions, seed: u64) -> Self {
        let operations: Vec<char> = options.operations.chars().collect();
        let numbers = f64::from(options.max) + 1.0;
        // Adding and subtracting 0 are the same.
        let alike =
            if options.operations.contains('+') && options.operations.contains('-') { 1.0 } else { 0.0 };
        let steps = operations.len() as f64 * numbers - alike;
        let of_length = |terms: u32| numbers * steps.powi(terms as i32 - 1);
        let problems = (options.min_terms..=options.max_terms).map(of_length).sum();
        Self { options, operations, problems, seed }
    }

    fn draw(&self, random: &mut CounterRng) -> Vec<Term> {
        let ChainOptions { min_terms, max_terms, max, .. } = self.options;
        let length = min_terms as usize + random.below((max_terms - min_terms + 1) as usize);
        let mut terms = Vec::with_capacity(length);
        for position in 0..length {
            let number = random.below(max as usize + 1) as i64;
            let mut operation =
                if position > 0 { self.operations[random.below(self.operations.len())] } else { '+' };
            if number == 0 && operation == '-' && self.operations.contains(&'+') {
                operation = '+';
            }
            terms.push(Term { operation, number });
        }
        terms
    }

    /// The value after each step; the first number alone is no step.
    fn values(&self, terms: &[Term]) -> Vec<i64> {
        let modulus = self.options.modulus.map(i64::from);
        let mut value = terms.first().map_or(0, |term| term.number);
        let step = |term: &Term| {
            value = match term.operation {
                '-' => value.saturating_sub(term.number),
                '*' => value.saturating_mul(term.number),
                '<' => value.min(term.number),
                '>' => value.max(term.number),
                _ => value.saturating_add(term.number),
            };
            value = modulus.map_or(value, |modulus| value.rem_euclid(modulus));
            value
        };
        terms.iter().skip(1).map(step).collect()
    }

    fn prompt(&self, chain: &str) -> Prompt {
        let plain = || format!("{chain}=");
        self.options.style.prompt(plain, || {
            let order = if self.options.operations.contains(['*', '<', '>']) {
                " Work from left to right; a<b is the smaller and a>b the greater of both."
            } else {
                ""
            };
            let modulus = self.options.modulus;
            let modulus = modulus.map(|modulus| format!(" Take every result modulo {modulus}."));
            format!("What is {chain}?{order}{} End with just the number.", modulus.unwrap_or_default())
        })
    }
}

impl Task for Chain {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let draw = |random: &mut CounterRng| self.draw(random);
        let content = |terms: &Vec<Term>| write(terms).into_bytes();
        let terms = held_out::draw(self.seed, split, index, self.problems, draw, content);
        let (chain, values) = (write(&terms), self.values(&terms));
        let answer = values.last().copied().unwrap_or_default().to_string();
        let prompt = self.prompt(&chain);
        Ok(Problem { source: NAME.into(), prompt, answer, data: json!({ "chain": chain, "values": values }) })
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
        // A difference may be negative.
        Some(characters(&["0123456789-,", &self.options.operations, &text_of(&self.prompt("0"))]))
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        if !turns.is_empty() {
            return None;
        }
        if !self.options.steps {
            return Some(problem.answer.clone());
        }
        let values = values_of(problem)?;
        let every = self.options.every as usize;
        let is_shown = |place: usize| (values.len() - 1 - place).is_multiple_of(every);
        let kept: Vec<i64> =
            (0..values.len()).filter(|&place| is_shown(place)).map(|place| values[place]).collect();
        Some(shown(&kept))
    }
}

/// The value after each step of a problem's chain, at least one; `None` where its data has none.
pub(super) fn values_of(problem: &Problem) -> Option<Vec<i64>> {
    let values: Option<Vec<i64>> =
        problem.data["values"].as_array()?.iter().map(serde_json::Value::as_i64).collect();
    values.filter(|values| !values.is_empty())
}

/// The chain of a problem as it is asked; empty where its data has none.
pub(super) fn chain_of(problem: &Problem) -> &str {
    problem.data["chain"].as_str().unwrap_or_default()
}

/// Values as they are shown in an answer.
pub(super) fn shown(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
