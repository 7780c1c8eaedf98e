//! What the token learner remembers of the run so far, beside what it learned. Part of a checkpoint, and independent
//! of any clock.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Updates in the running mean of rewards.
const WINDOW: usize = 10;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenJournal {
    rewards: VecDeque<f64>,
    /// Updates of the warm-up that were made.
    pub warmup: u64,
    /// Whether reinforcement learning has begun.
    pub started: bool,
    /// Tokens learned from.
    pub consumed_tokens: u64,
    lag_sum: u64,
    /// Greatest lag of a token learned from, updates.
    pub lag_max: u64,
    /// Updates attempted, applied or not.
    pub attempts: u64,
    /// Mean reward of the last evaluation.
    pub eval_mean: Option<f64>,
    /// Best score so far: of the evaluations, or without any of the mean reward.
    best: Option<f64>,
    /// Version at which the next evaluation is due.
    pub next_evaluation: u64,
}

impl TokenJournal {
    /// Notes the mean reward of an update's answers.
    pub fn rewarded(&mut self, mean: f64) {
        if self.rewards.len() == WINDOW {
            self.rewards.pop_front();
        }
        self.rewards.push_back(mean);
        if self.eval_mean.is_none() && self.reward_mean() > self.best {
            self.best = self.reward_mean();
        }
    }

    /// Notes an evaluation.
    pub fn evaluated(&mut self, mean: f64) {
        // The first evaluation replaces training rewards as the score.
        let best = self.best.filter(|_| self.eval_mean.is_some());
        self.eval_mean = Some(mean);
        self.best = Some(best.map_or(mean, |best| best.max(mean)));
    }

    /// Whether the run now stands at its best score.
    #[must_use]
    pub fn is_best(&self) -> bool {
        let score = self.eval_mean.or_else(|| self.reward_mean());
        score.is_some() && score >= self.best
    }

    /// Notes tokens learned from.
    pub fn consumed(&mut self, lag: u64, tokens: u64) {
        self.consumed_tokens += tokens;
        self.lag_sum += lag * tokens;
        self.lag_max = self.lag_max.max(lag);
    }

    /// Mean reward of the last 10 updates; `None` before the first.
    #[must_use]
    pub fn reward_mean(&self) -> Option<f64> {
        let n = self.rewards.len();
        (n > 0).then(|| self.rewards.iter().sum::<f64>() / n as f64)
    }

    /// Whether 10 updates were made, so that the mean is one of the last 10.
    #[must_use]
    pub fn window_is_full(&self) -> bool {
        self.rewards.len() == WINDOW
    }

    /// Mean lag of the tokens learned from.
    #[must_use]
    pub fn lag_mean(&self) -> Option<f64> {
        (self.consumed_tokens > 0).then(|| self.lag_sum as f64 / self.consumed_tokens as f64)
    }
}
