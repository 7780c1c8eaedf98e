//! Guess the number: a conversation of several turns, in which the task says after each guess whether the hidden
//! number is higher or lower.
//!
//! Plain: after `1-100:` the model writes a guess, the task answers ` higher ` or ` lower `, and so on. Reward of a
//! hit in turn `k`: `1 - turn_cost (k - 1)`, at least 0; without a hit within `max_turns`, 0. The last number of a turn
//! is the guess; a turn without a number is used up. Demonstrations halve the interval.

use serde::Deserialize;
use serde_json::json;

use super::{Style, characters, text_of};
use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task, Turn};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::options::TaskOptions;
use crate::env::task::verify::last_number;
use crate::env::task::{Rational, held_out};
use crate::random::CounterRng;
use crate::trajectory::Reward;

const NAME: &str = "guess_number";
/// Bound of the numbers on both sides of zero.
const LARGEST: i64 = 1_000_000_000;
/// Bound of the turns.
const MOST_TURNS: usize = 1000;

/// What can be chosen about the game.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuessNumberOptions {
    /// The smallest number that can be hidden.
    pub min: i64,
    /// The largest number that can be hidden.
    pub max: i64,
    /// Guesses before the game is lost, 1 to 1000.
    pub max_turns: usize,
    /// What each turn after the first costs, 0 to 1.
    pub turn_cost: f64,
    /// How the problem is put.
    pub style: Style,
}

impl Default for GuessNumberOptions {
    fn default() -> Self {
        Self { min: 1, max: 100, max_turns: 8, turn_cost: 0.05, style: Style::Plain }
    }
}

impl GuessNumberOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        if read.min < -LARGEST || read.max > LARGEST || read.min >= read.max {
            return Err(
                options.refuse("min", &format!("is below `max`, both between -{LARGEST} and {LARGEST}"))
            );
        }
        if !(1..=MOST_TURNS).contains(&read.max_turns) {
            return Err(
                options.refuse("max_turns", &format!("is {}; give 1 to {MOST_TURNS}", read.max_turns))
            );
        }
        if !(0.0..=1.0).contains(&read.turn_cost) {
            return Err(options.refuse("turn_cost", &format!("is {}; give 0 to 1", read.turn_cost)));
        }
        Ok(read)
    }
}

/// How a guess lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    Hit,
    /// The hidden number is higher.
    TooLow,
    /// The hidden number is lower.
    TooHigh,
    /// There is no number in the turn.
    Missing,
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct GuessNumber {
    options: GuessNumberOptions,
    seed: u64,
}

impl GuessNumber {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: GuessNumberOptions, seed: u64) -> Self {
        Self { options, seed }
    }

    /// How many numbers can be hidden.
    fn numbers(&self) -> usize {
        (self.options.max - self.options.min + 1) as usize
    }

    fn prompt(&self) -> Prompt {
        let GuessNumberOptions { min, max, max_turns, .. } = self.options;
        self.options.style.prompt(
            || format!("{min}-{max}:"),
            || {
                format!(
                    "I think of a whole number from {min} to {max}. Guess it in at most {max_turns} turns. After each \
                     guess I say whether my number is higher or lower. Answer each time with just a number."
                )
            },
        )
    }

    fn observation(&self, guess: Guess) -> String {
        let word = match guess {
            Guess::TooLow | Guess::Hit => "higher",
            Guess::TooHigh => "lower",
            Guess::Missing => "number?",
        };
        match self.options.style {
            Style::Plain => format!(" {word} "),
            Style::Chat => word.into(),
        }
    }
}

fn hidden(problem: &Problem) -> Result<i64, GradeError> {
    let hidden = problem.data["hidden"].as_i64();
    hidden.ok_or_else(|| GradeError::Reference("`data` has no whole number `hidden`".into()))
}

fn judge(hidden: i64, turn: &str) -> Guess {
    let Some(number) = last_number(turn) else { return Guess::Missing };
    if number.is(Rational::integer(hidden)) {
        Guess::Hit
    } else if number.to_f64() < hidden as f64 {
        Guess::TooLow
    } else {
        Guess::TooHigh
    }
}

impl Task for GuessNumber {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let numbers = self.numbers();
        let draw = |random: &mut CounterRng| self.options.min + random.below(numbers) as i64;
        let content = |number: &i64| number.to_le_bytes().to_vec();
        let hidden = held_out::draw(self.seed, split, index, numbers as f64, draw, content);
        let data = json!({ "hidden": hidden });
        Ok(Problem { source: NAME.into(), prompt: self.prompt(), answer: hidden.to_string(), data })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let hidden = hidden(problem)?;
        let within = completion.turns.iter().take(self.options.max_turns);
        let hit = within.enumerate().find(|(_, turn)| judge(hidden, turn) == Guess::Hit);
        let value = hit.map_or(0.0, |(earlier, _)| (1.0 - self.options.turn_cost * earlier as f64).max(0.0));
        let success = f64::from(u8::from(hit.is_some()));
        let parts = vec![("success".into(), success), ("turns".into(), completion.turns.len() as f64)];
        Ok(Reward { value, parts })
    }

    fn is_multi_turn(&self) -> bool {
        true
    }

    fn respond(&self, problem: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
        let hidden = hidden(problem)?;
        let guess = turns.last().map_or(Guess::Missing, |turn| judge(hidden, turn));
        if guess == Guess::Hit || turns.len() >= self.options.max_turns {
            return Ok(Turn::End);
        }
        Ok(Turn::Observe(self.observation(guess)))
    }

    fn alphabet(&self) -> Option<String> {
        let observations = [Guess::TooLow, Guess::TooHigh, Guess::Missing].map(|g| self.observation(g));
        let [higher, lower, missing] = &observations;
        Some(characters(&["-0123456789", higher, lower, missing, &text_of(&self.prompt())]))
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        let hidden = hidden(problem).ok()?;
        let (mut low, mut high) = (self.options.min, self.options.max);
        for turn in turns {
            let number = last_number(turn).map(|number| number.to_f64());
            match (judge(hidden, turn), number) {
                (Guess::Hit, _) => return None,
                (Guess::TooLow, Some(number)) => low = low.max(number.floor() as i64 + 1),
                (Guess::TooHigh, Some(number)) => high = high.min(number.ceil() as i64 - 1),
                _ => {}
            }
        }
        // Rounded down also below zero.
        let middle = low + (high - low) / 2;
        (turns.len() < self.options.max_turns).then(|| middle.to_string())
    }
}
