//! Answers of given lengths, a few of them very long: to measure what a schedule makes of them.
//!
//! How long an answer is does not depend on the model: median · exp(σ_prompts z_problem + σ_answers z_member) tokens,
//! between 1 and the cap, the same in every run with the same seed. Something is learned all the same: the prompt names
//! a letter, `c:`, and the reward is the share of that letter in the answer.

use serde::Deserialize;
use serde_json::json;

use crate::env::task::contract::{Completion, Problem, Prompt, Split, Task};
use crate::env::task::error::{GradeError, TaskError};
use crate::env::task::options::TaskOptions;
use crate::random::{Stream, draw, normal_pair};
use crate::trajectory::Reward;

const NAME: &str = "long_tail";
/// Letters of prompts and answers.
const LETTERS: &str = "abcdefgh";
/// The longest answer that can be asked for.
const LONGEST: u32 = 1 << 20;

/// What can be chosen about it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LongTailOptions {
    /// Median of the lengths, tokens.
    pub median: f64,
    /// Spread between problems (σ of the logarithm).
    pub prompts: f64,
    /// Spread between answers to a problem (σ of the logarithm).
    pub answers: f64,
    /// Longest answer, tokens.
    pub cap: u32,
}

impl Default for LongTailOptions {
    fn default() -> Self {
        Self { median: 8.0, prompts: 0.6, answers: 0.6, cap: 256 }
    }
}

impl LongTailOptions {
    pub(super) fn read(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: Self = options.parse()?;
        if !(read.median.is_finite() && read.median >= 1.0) {
            return Err(options.refuse("median", "must be at least 1"));
        }
        for (name, spread) in [("prompts", read.prompts), ("answers", read.answers)] {
            if !(spread.is_finite() && spread >= 0.0) {
                return Err(options.refuse(name, "must be 0 or a positive number"));
            }
        }
        if !(1..=LONGEST).contains(&read.cap) {
            return Err(options.refuse("cap", &format!("must lie between 1 and {LONGEST}")));
        }
        Ok(read)
    }
}

/// The task; the module's documentation describes it.
#[derive(Debug)]
pub struct LongTail {
    options: LongTailOptions,
    seed: u64,
}

impl LongTail {
    /// The task with options that are in their ranges.
    pub(super) fn new(options: LongTailOptions, seed: u64) -> Self {
        Self { options, seed }
    }
}

impl Task for LongTail {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let words = draw(self.seed, Stream::Problem, [split as u32, index, 0, 0]);
        let letter = LETTERS.as_bytes()[words[0] as usize % LETTERS.len()] as char;
        Ok(Problem {
            source: NAME.into(),
            prompt: Prompt::Text(format!("{letter}:")),
            answer: letter.to_string(),
            data: json!({ "index": index }),
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let text = completion.turns.last().map_or("", String::as_str);
        let letters = text.chars().count();
        let right = text.chars().filter(|letter| problem.answer.starts_with(*letter)).count();
        Ok(Reward::of(right as f64 / letters.max(1) as f64))
    }

    fn forced_length(&self, problem: &Problem, member: u16) -> Option<usize> {
        let index = problem.data.get("index")?.as_u64()? as u32;
        let normal = |place: u32| {
            let words = draw(self.seed, Stream::Length, [index, 0, place, 1]);
            f64::from(normal_pair([words[0], words[1]])[0])
        };
        let LongTailOptions { median, prompts, answers, cap } = &self.options;
        let length = median * (prompts * normal(0) + answers * normal(u32::from(member) + 1)).exp();
        Some((length.round() as usize).clamp(1, *cap as usize))
    }

    fn alphabet(&self) -> Option<String> {
        Some(format!("{LETTERS}:"))
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        turns.is_empty().then(|| problem.answer.repeat(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_median_the_spread_and_the_cap_that_were_asked_for_and_nothing_else_moves_them() {
        let options = LongTailOptions { median: 20.0, cap: 200, ..LongTailOptions::default() };
        let task = LongTail::new(options, 5);
        let (mut logarithms, mut longest) = (Vec::new(), 0);
        for index in 0..4000 {
            let problem = task.problem(Split::Train, index).unwrap();
            let length = task.forced_length(&problem, (index % 8) as u16).unwrap();
            assert_eq!(task.forced_length(&problem, (index % 8) as u16), Some(length));
            logarithms.push((length as f64).ln());
            longest = longest.max(length);
        }
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let spread = (logarithms.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((mean.exp() - 20.0).abs() < 1.0, "{}", mean.exp());
        assert!((spread - 0.72_f64.sqrt()).abs() < 0.04, "{spread}");
        assert_eq!(longest, 200);
    }

    #[test]
    fn the_reward_is_the_share_of_the_letter_asked_for() {
        let task = LongTail::new(LongTailOptions::default(), 5);
        let problem = Problem { answer: "c".into(), ..task.problem(Split::Train, 0).unwrap() };
        let grade = |text: &str| {
            let completion =
                Completion { turns: &[text.to_owned()], finish: crate::trajectory::Finish::Length };
            task.grade(&problem, &completion).unwrap().value
        };
        assert_eq!([grade("ccab"), grade("cc"), grade(""), grade(":")], [0.5, 1.0, 0.0, 0.0]);
    }
}
