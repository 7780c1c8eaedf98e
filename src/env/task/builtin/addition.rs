//! Addition of two numbers, each uniform over 0 to a maximum.
//!
//! Plain: `23+45=`; chat: "What is 23+45? Answer with just the number." The last number of the reply counts. Which
//! pairs are held out does not depend on their order, so that 45+23 does not give 23+45 away. Where all pairs can be
//! listed (up to three digits), the evaluation problems are a finite list in which each held-out pair stands once.

use serde::Deserialize;
use serde_json::json;

use super::{Style, characters, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::options::TaskOptions;
use crate::env::task::prompts::shuffled;
use crate::env::task::verify::last_number;
use crate::env::task::{Rational, held_out};
use crate::random::CounterRng;
use crate::trajectory::Reward;

const NAME: &str = "addition";
/// The largest number that may be added.
const LARGEST: u32 = 1_000_000_000;
/// Up to this maximum, the held-out pairs are listed.
const LISTED: u32 = 999;

/// What can be chosen about addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdditionOptions {
    /// The largest number that is added, 1 to 1 000 000 000.
    pub max: u32,
    /// How the problem is put.
    pub style: Style,
}

impl Default for AdditionOptions {
    fn default() -> Self {
        Self { max: 99, style: Style::Plain }
    }
}

impl AdditionOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        if (1..=LARGEST).contains(&read.max) {
            return Ok(read);
        }
        Err(options.refuse("max", &format!("is {}; give 1 to {LARGEST}", read.max)))
    }
}

type Pair = (u32, u32);

/// What makes two sums the same: the pair without its order.
fn content((left, right): Pair) -> Vec<u8> {
    (u64::from(left.min(right)) << 32 | u64::from(left.max(right))).to_le_bytes().to_vec()
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct Addition {
    options: AdditionOptions,
    /// How many pairs there are.
    problems: f64,
    /// The evaluation problems in order, where they can be listed.
    held_out: Option<Vec<Pair>>,
    seed: u64,
}

impl Addition {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: AdditionOptions, seed: u64) -> Self {
        let problems = (f64::from(options.max) + 1.0).powi(2);
        let held_out = (options.max <= LISTED).then(|| {
            let all = (0..=options.max).flat_map(|left| (0..=options.max).map(move |right| (left, right)));
            let is_held_out = |pair: &Pair| {
                !held_out::can_hold_out(problems) || held_out::side(&content(*pair)) == Split::Evaluation
            };
            let pairs: Vec<Pair> = all.filter(is_held_out).collect();
            let order = shuffled(pairs.len() as u32, seed, 0);
            order.into_iter().map(|index| pairs[index as usize]).collect()
        });
        Self { options, problems, held_out, seed }
    }

    fn pair(&self, split: Split, index: u32) -> Result<Pair, TaskError> {
        if let (Split::Evaluation, Some(pairs)) = (split, &self.held_out) {
            return pairs.get(index as usize).copied().ok_or_else(|| TaskError::Index {
                task: NAME.into(),
                split,
                index,
                len: pairs.len() as u32,
            });
        }
        let numbers = self.options.max as usize + 1;
        let draw = |random: &mut CounterRng| (random.below(numbers) as u32, random.below(numbers) as u32);
        Ok(held_out::draw(self.seed, split, index, self.problems, draw, |pair| content(*pair)))
    }

    fn prompt(&self, (left, right): Pair) -> Prompt {
        self.options.style.prompt(
            || format!("{left}+{right}="),
            || format!("What is {left}+{right}? Answer with just the number."),
        )
    }
}

impl Task for Addition {
    fn len(&self, split: Split) -> Option<u32> {
        let listed = self.held_out.as_ref().filter(|_| split == Split::Evaluation);
        listed.map(|pairs| pairs.len() as u32)
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let pair = self.pair(split, index)?;
        let sum = u64::from(pair.0) + u64::from(pair.1);
        Ok(Problem {
            source: NAME.into(),
            prompt: self.prompt(pair),
            answer: sum.to_string(),
            data: json!({ "sum": sum }),
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let sum = problem.data["sum"].as_i64();
        let sum = sum.ok_or_else(|| GradeError::Reference("`data` has no whole number `sum`".into()))?;
        let right = last_number(completion.reply()).is_some_and(|number| number.is(Rational::integer(sum)));
        Ok(Reward::of(f64::from(u8::from(right))))
    }

    fn alphabet(&self) -> Option<String> {
        Some(characters(&["0123456789", &text_of(&self.prompt((0, 0)))]))
    }
}
