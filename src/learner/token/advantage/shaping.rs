//! What changes the rewards of a group before they become advantages: rewards for short answers, penalties for answers
//! that run into the limit or take more than their budget.
//!
//! ```text
//! R′ = R + weight · L + P,   or −1 where the answer took more than its effort's budget
//! ```
//!
//! with L of [`length_rewards`], P of [`overlong_penalty`], and the budget of [`effort_budget`]. Lengths are tokens that
//! the model wrote, all its turns together. Rewards in records stay as they were graded; both are reported. Members
//! without a reward stay without one and leave all statistics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EffortBudgetConfig, OverlongPenaltyConfig, effort_budget, length_rewards, overlong_penalty};
use crate::learner::advantage::AdvantageError;
use crate::trajectory::Version;

/// The reward for short answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LengthRewardConfig {
    /// What it is multiplied by; at 1 it lies between −0.5 and 0.5.
    pub weight: f64,
    /// Updates before it begins, so that answers become right first and short then.
    pub after_updates: u64,
    /// Least reward of a right answer; the others are never rewarded for being short. With a rubric, passes are right.
    pub correct_at: f64,
}

impl Default for LengthRewardConfig {
    fn default() -> Self {
        Self { weight: 1.0, after_updates: 0, correct_at: 1.0 }
    }
}

/// What changes rewards before they become advantages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShapingConfig {
    /// A reward for answers that are short for their group; absent: none.
    pub length: Option<LengthRewardConfig>,
    /// A penalty for answers that come close to the limit; absent: none.
    pub overlong: Option<OverlongPenaltyConfig>,
    /// A reward of −1 for answers that take more tokens than their budget; absent: none.
    pub effort_budget: Option<EffortBudgetConfig>,
}

/// One answer of a group as shaping sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapedAnswer {
    /// Its reward; `None` where it could not be graded.
    pub reward: Option<f64>,
    /// Whether it is right.
    pub correct: bool,
    /// Tokens that the model wrote.
    pub length: usize,
    /// How many times the base budget it may take; `None`: as the settings say.
    pub tau: Option<f64>,
}

/// What shaping did to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shaped {
    /// The reward that is learned from.
    pub reward: Option<f64>,
    /// The weighted length reward in it.
    pub length_reward: f64,
    /// The overlong penalty in it, at most 0.
    pub overlong_penalty: f64,
    /// Whether the reward is −1 for an answer over its budget.
    pub over_budget: bool,
}

impl ShapingConfig {
    /// Whether rewards stay as they are.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        if let Some(length) = &self.length {
            let refuse = |name, value, expected| Err(AdvantageError::Setting { name, value, expected });
            if !(length.weight > 0.0 && length.weight.is_finite()) {
                return refuse("length.weight", length.weight, "finite and positive");
            }
            if !length.correct_at.is_finite() {
                return refuse("length.correct_at", length.correct_at, "finite");
            }
        }
        self.overlong.map_or(Ok(()), |overlong| overlong.validate())?;
        self.effort_budget.map_or(Ok(()), |effort| effort.validate())
    }

    /// The rewards of a group at a version; `budget` is the base budget of its problem, tokens.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn shape(
        &self,
        answers: &[ShapedAnswer],
        budget: Option<u64>,
        version: Version,
    ) -> Result<Vec<Shaped>, AdvantageError> {
        let mut shaped: Vec<Shaped> =
            answers.iter().map(|answer| Shaped { reward: answer.reward, ..Shaped::default() }).collect();
        let graded: Vec<usize> =
            (0..answers.len()).filter(|&member| answers[member].reward.is_some()).collect();
        if let Some(config) = self.length.filter(|config| version.0 >= config.after_updates) {
            let lengths: Vec<usize> = graded.iter().map(|&member| answers[member].length).collect();
            let correct: Vec<bool> = graded.iter().map(|&member| answers[member].correct).collect();
            for (&member, reward) in graded.iter().zip(length_rewards(&lengths, &correct)?) {
                shaped[member].length_reward = config.weight * reward;
            }
        }
        for member in graded {
            let (answer, shaped) = (&answers[member], &mut shaped[member]);
            if let Some(config) = &self.overlong {
                shaped.overlong_penalty = overlong_penalty(config, answer.length)?;
            }
            let mut reward = answer.reward.unwrap_or(0.0) + shaped.length_reward + shaped.overlong_penalty;
            if let Some((config, base)) = self.budget(answer.tau, budget) {
                let length = answer.length as u64;
                shaped.over_budget = config.is_exceeded(length, base);
                reward = effort_budget(&config, reward, length, base)?;
            }
            shaped.reward = Some(reward);
        }
        Ok(shaped)
    }

    /// Whether an answer of so many tokens takes more than its budget: `tau` is the factor of its effort and `budget` the
    /// base budget of its problem, where they have one.
    #[must_use]
    pub fn is_over_budget(&self, tau: Option<f64>, budget: Option<u64>, tokens: u64) -> bool {
        self.budget(tau, budget).is_some_and(|(config, base)| config.is_exceeded(tokens, base))
    }

    /// Factor and base of an answer's budget; `None` where it may take what it likes.
    fn budget(&self, tau: Option<f64>, budget: Option<u64>) -> Option<(EffortBudgetConfig, u64)> {
        let config = self.effort_budget?;
        let base = budget.or(config.base)?;
        Some((EffortBudgetConfig { tau: tau.unwrap_or(config.tau), ..config }, base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ShapingConfig {
        toml::from_str(text).unwrap()
    }

    fn answer(reward: f64, length: usize) -> ShapedAnswer {
        ShapedAnswer { reward: Some(reward), correct: reward >= 1.0, length, tau: None }
    }

    fn rewards(config: &ShapingConfig, answers: &[ShapedAnswer], budget: Option<u64>) -> Vec<Option<f64>> {
        let shaped = config.shape(answers, budget, Version(10)).unwrap();
        shaped.iter().map(|shaped| shaped.reward).collect()
    }

    #[test]
    fn nothing_set_changes_nothing() {
        let answers = [answer(1.0, 3), ShapedAnswer { reward: None, ..answer(0.0, 9) }];
        assert!(ShapingConfig::default().is_off());
        assert_eq!(rewards(&ShapingConfig::default(), &answers, Some(1)), [Some(1.0), None]);
    }

    #[test]
    fn the_length_reward_begins_after_its_updates_and_passes_over_the_ungraded() {
        let config = config("length = { weight = 0.5, after_updates = 10 }");
        let long = ShapedAnswer { reward: None, ..answer(0.0, 1000) };
        let answers = [answer(1.0, 10), answer(0.0, 10), answer(1.0, 30), long];
        assert_eq!(rewards(&config, &answers, None), [Some(1.25), Some(0.0), Some(0.75), None]);
        let before = config.shape(&answers, None, Version(9)).unwrap();
        assert!(before.iter().all(|shaped| shaped.length_reward == 0.0));
    }

    #[test]
    fn an_answer_over_its_budget_has_minus_1_whatever_else_it_earned() {
        let config = config(
            "length = {}\noverlong = { max_length = 40, buffer = 20 }\neffort_budget = { tau = 2.0, base = 15 }",
        );
        let shaped = config.shape(&[answer(1.0, 30), answer(1.0, 31)], None, Version(0)).unwrap();
        assert_eq!((shaped[0].reward, shaped[0].over_budget), (Some(1.0 + 0.5 - 0.5), false));
        assert_eq!((shaped[1].reward, shaped[1].over_budget), (Some(-1.0), true));
        assert!(shaped[1].overlong_penalty < 0.0);
        // The problem's own budget goes first, then that of the answer's effort.
        assert_eq!(rewards(&config, &[answer(1.0, 30), answer(1.0, 30)], Some(10)), [Some(-1.0); 2]);
        let patient = ShapedAnswer { tau: Some(3.0), ..answer(1.0, 30) };
        assert_eq!(rewards(&config, &[patient, patient], Some(10)), [Some(0.5); 2]);
    }

    #[test]
    fn a_budget_that_nobody_names_binds_nobody() {
        let config = config("effort_budget = {}");
        assert_eq!(rewards(&config, &[answer(1.0, 3000)], None), [Some(1.0)]);
        assert_eq!(rewards(&config, &[answer(1.0, 3000)], Some(2999)), [Some(-1.0)]);
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        for (text, name) in [
            ("length = { weight = 0.0 }", "length.weight"),
            ("length = { correct_at = nan }", "length.correct_at"),
            ("overlong = { max_length = 4, buffer = 5 }", "buffer"),
            ("effort_budget = { tau = 0.0 }", "tau"),
            ("effort_budget = { base = 0 }", "base"),
        ] {
            let error = config(text).validate().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
