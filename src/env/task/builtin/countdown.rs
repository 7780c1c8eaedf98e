//! Countdown: reach a target with given numbers, each used exactly once, by `+ - * /` and brackets.
//!
//! Plain: `3,5,7=22:` wants an expression such as `3*5+7`; every right expression counts. Targets are made by joining
//! two numbers at a time until one is left, keeping all values whole and positive, so that each problem can be
//! solved. Of the reply, what stands in the last `<answer>…</answer>` counts, else its last line; a final `= 22` is
//! left out. Values are compared as exact fractions.

use serde::Deserialize;
use serde_json::json;

use super::{Style, characters, expression, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::options::TaskOptions;
use crate::env::task::{Rational, held_out};
use crate::random::CounterRng;
use crate::trajectory::Reward;

const NAME: &str = "countdown";
/// The most numbers of a problem.
const MOST: u32 = 8;
/// The largest number and the largest target.
const LARGEST: u32 = 100_000;
/// How often a target that is too large is drawn again before the numbers are simply added.
const ATTEMPTS: u32 = 100;
/// With `partial`, the reward of a well-formed expression that uses the numbers rightly but misses the target.
const FORM_REWARD: f64 = 0.1;

/// What can be chosen about countdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountdownOptions {
    /// Fewest numbers, at least 2.
    pub min_numbers: u32,
    /// Most numbers, at most 8.
    pub max_numbers: u32,
    /// The largest number; the smallest is 1.
    pub max_number: u32,
    /// The largest target, at least `max_numbers * max_number`, up to 100 000.
    pub max_target: u32,
    /// How the problem is put.
    pub style: Style,
    /// Whether an expression of the right numbers and a wrong value earns 0.1.
    pub partial: bool,
}

impl Default for CountdownOptions {
    fn default() -> Self {
        Self {
            min_numbers: 3,
            max_numbers: 4,
            max_number: 20,
            max_target: 100,
            style: Style::Plain,
            partial: false,
        }
    }
}

impl CountdownOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        if read.min_numbers < 2 || read.max_numbers > MOST {
            return Err(options.refuse("min_numbers", &format!("and `max_numbers` lie between 2 and {MOST}")));
        }
        if read.max_numbers < read.min_numbers {
            return Err(options.refuse("max_numbers", "is below `min_numbers`"));
        }
        if !(2..=LARGEST / MOST).contains(&read.max_number) {
            return Err(options.refuse("max_number", &format!("lies between 2 and {}", LARGEST / MOST)));
        }
        // Then the numbers' sum is always a target, so that drawing ends.
        let least = read.max_numbers * read.max_number;
        if !(least..=LARGEST).contains(&read.max_target) {
            let why = format!("lies between `max_numbers` times `max_number`, here {least}, and {LARGEST}");
            return Err(options.refuse("max_target", &why));
        }
        Ok(read)
    }
}

/// Numbers, the target and one expression that reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Draw {
    numbers: Vec<u64>,
    target: u64,
    solution: String,
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct Countdown {
    options: CountdownOptions,
    /// At least so many problems there are: choices of numbers, without order, for the fewest numbers.
    problems: f64,
    seed: u64,
}

impl Countdown {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: CountdownOptions, seed: u64) -> Self {
        let choices =
            |n: u32| (0..n).map(|i| f64::from(options.max_number + i) / f64::from(i + 1)).product::<f64>();
        Self { options, problems: choices(options.min_numbers), seed }
    }

    fn draw(&self, random: &mut CounterRng) -> Draw {
        let CountdownOptions { min_numbers, max_numbers, max_number, max_target, .. } = self.options;
        let count = min_numbers as usize + random.below((max_numbers - min_numbers + 1) as usize);
        let numbers: Vec<u64> = (0..count).map(|_| 1 + random.below(max_number as usize) as u64).collect();
        for _ in 0..ATTEMPTS {
            let (target, solution) = join(&numbers, random);
            if target <= u64::from(max_target) {
                return Draw { numbers, target, solution };
            }
        }
        let solution = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("+");
        Draw { target: numbers.iter().sum(), numbers, solution }
    }

    fn prompt(&self, numbers: &[u64], target: u64) -> Prompt {
        let list = |separator: &str| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(separator);
        self.options.style.prompt(
            || format!("{}={target}:", list(",")),
            || {
                format!(
                    "Use each of the numbers {} exactly once, with + - * / and brackets, to make {target}. End with a \
                     line that holds just the expression.",
                    list(", "),
                )
            },
        )
    }
}

/// Joins two of the values at a time, drawn with the operator, until one is left: its value and how it came about.
fn join(numbers: &[u64], random: &mut CounterRng) -> (u64, String) {
    /// A value, its text, and whether the text is a sum, which needs brackets inside products.
    type Part = (u64, String, bool);
    let mut parts: Vec<Part> = numbers.iter().map(|&number| (number, number.to_string(), false)).collect();
    let bracketed = |(_, text, is_sum): &Part| if *is_sum { format!("({text})") } else { text.clone() };
    while parts.len() > 1 {
        let first = parts.swap_remove(random.below(parts.len()));
        let second = parts.swap_remove(random.below(parts.len()));
        let (large, small) = if first.0 >= second.0 { (first, second) } else { (second, first) };
        let joined = match random.below(4) {
            1 if large.0 > small.0 => (large.0 - small.0, format!("{}-{}", large.1, bracketed(&small)), true),
            2 => (
                large.0.saturating_mul(small.0),
                format!("{}*{}", bracketed(&large), bracketed(&small)),
                false,
            ),
            3 if large.0.is_multiple_of(small.0) => {
                // A divisor that is a product needs brackets too.
                let divisor = if small.1.bytes().all(|byte| byte.is_ascii_digit()) {
                    small.1
                } else {
                    format!("({})", small.1)
                };
                (large.0 / small.0, format!("{}/{divisor}", bracketed(&large.clone())), false)
            }
            _ => (large.0 + small.0, format!("{}+{}", large.1, small.1), true),
        };
        parts.push(joined);
    }
    parts.pop().map_or((0, String::new()), |(value, text, _)| (value, text))
}

/// The part of a reply that is taken for the expression.
fn expression_of(reply: &str) -> &str {
    let tagged = reply.rfind("<answer>").map(|at| &reply[at + "<answer>".len()..]);
    let tagged = tagged.and_then(|rest| rest.find("</answer>").map(|end| &rest[..end]));
    let line = tagged.unwrap_or_else(|| reply.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(""));
    line.split_once('=').map_or(line, |(left, _)| left).trim()
}

impl Task for Countdown {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let draw = |random: &mut CounterRng| self.draw(random);
        let content = |draw: &Draw| {
            let mut numbers = draw.numbers.clone();
            numbers.sort_unstable();
            numbers.push(draw.target);
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let Draw { numbers, target, solution } =
            held_out::draw(self.seed, split, index, self.problems, draw, content);
        Ok(Problem {
            source: NAME.into(),
            prompt: self.prompt(&numbers, target),
            answer: solution,
            data: json!({ "numbers": numbers, "target": target }),
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let bad = || GradeError::Reference("`data` needs whole numbers `numbers` and `target`".into());
        let numbers = problem.data["numbers"].as_array().ok_or_else(bad)?;
        let mut numbers =
            numbers.iter().map(serde_json::Value::as_u64).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        let target = problem.data["target"].as_i64().ok_or_else(bad)?;
        numbers.sort_unstable();
        let expression = expression::parse(expression_of(completion.reply())).filter(|expression| {
            let mut used = expression.numbers.clone();
            used.sort_unstable();
            used == numbers
        });
        let well_formed = expression.is_some();
        let right = expression.is_some_and(|expression| expression.value == Rational::integer(target));
        let value = match (right, well_formed && self.options.partial) {
            (true, _) => 1.0,
            (false, true) => FORM_REWARD,
            (false, false) => 0.0,
        };
        let part = |name: &str, holds| (name.to_owned(), f64::from(u8::from(holds)));
        Ok(Reward { value, parts: vec![part("right", right), part("well_formed", well_formed)] })
    }

    fn alphabet(&self) -> Option<String> {
        Some(characters(&["0123456789+-*/()", &text_of(&self.prompt(&[1, 2], 3))]))
    }
}
