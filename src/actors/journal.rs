//! What the learner remembers of the run so far, beside what it learned: returns, lag, skipped updates.
//!
//! Everything here is part of a checkpoint and independent of any clock, so that a resumed serial run goes on byte
//! for byte.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::trajectory::EpisodeEnd;

/// Episodes in the running mean.
const WINDOW: usize = 100;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Journal {
    returns: VecDeque<f64>,
    /// Environment steps learned from.
    pub consumed_steps: u64,
    lag_sum: u64,
    /// Greatest lag of a step learned from, updates.
    pub lag_max: u64,
    /// Updates attempted, applied or not.
    pub attempts: u64,
    /// Mean of the last evaluation.
    pub eval_mean: Option<f64>,
    /// Best score so far: of the evaluations, or without any of the mean return.
    best: Option<f64>,
    /// Environment steps at which the next evaluation is due.
    pub next_evaluation: u64,
}

impl Journal {
    /// Nothing remembered yet; the first evaluation is due at this many environment steps.
    #[must_use]
    pub fn new(next_evaluation: u64) -> Self {
        Self { next_evaluation, ..Self::default() }
    }

    /// Notes an episode that ended.
    pub fn episode(&mut self, episode: &EpisodeEnd) {
        if self.returns.len() == WINDOW {
            self.returns.pop_front();
        }
        self.returns.push_back(episode.episode_return);
    }

    /// Notes an evaluation.
    pub fn evaluated(&mut self, mean: f64) {
        // The first evaluation replaces training returns as the score.
        let best = self.best.filter(|_| self.eval_mean.is_some());
        self.eval_mean = Some(mean);
        self.best = Some(best.map_or(mean, |best| best.max(mean)));
    }

    /// Notes that an update was made, after its episodes.
    pub fn updated(&mut self) {
        if self.eval_mean.is_none() {
            let score = self.return_mean();
            if score > self.best {
                self.best = score;
            }
        }
    }

    /// Whether the run now stands at its best score.
    #[must_use]
    pub fn is_best(&self) -> bool {
        let score = self.eval_mean.or_else(|| self.return_mean());
        score.is_some() && score >= self.best
    }

    /// Notes steps learned from.
    pub fn consumed(&mut self, lag: u64, steps: u64) {
        self.consumed_steps += steps;
        self.lag_sum += lag * steps;
        self.lag_max = self.lag_max.max(lag);
    }

    /// Mean return of the last 100 episodes; `None` before the first ended.
    #[must_use]
    pub fn return_mean(&self) -> Option<f64> {
        let n = self.returns.len();
        (n > 0).then(|| self.returns.iter().sum::<f64>() / n as f64)
    }

    /// Whether 100 episodes have ended, so that the mean is one of the last 100.
    #[must_use]
    pub fn window_is_full(&self) -> bool {
        self.returns.len() == WINDOW
    }

    /// Mean lag of the steps learned from.
    #[must_use]
    pub fn lag_mean(&self) -> Option<f64> {
        (self.consumed_steps > 0).then(|| self.lag_sum as f64 / self.consumed_steps as f64)
    }
}
