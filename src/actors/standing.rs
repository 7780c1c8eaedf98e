//! How well a run does and how late it learns: the part of a learner's memory that both workloads share. Part of a
//! checkpoint, and independent of any clock.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The last few scores (returns of episodes, mean rewards of updates), evaluations, and the best of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    window: usize,
    last: VecDeque<f64>,
    evaluation: Option<f64>,
    /// Best score so far: of the evaluations, or without any of the running mean.
    best: Option<f64>,
}

impl Scores {
    /// Nothing scored yet; the mean is over the last `window` scores.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self { window, last: VecDeque::new(), evaluation: None, best: None }
    }

    /// Notes a score.
    pub fn push(&mut self, score: f64) {
        if self.last.len() == self.window {
            self.last.pop_front();
        }
        self.last.push_back(score);
    }

    /// Notes an evaluation. The first one replaces the running mean as the score.
    pub fn evaluated(&mut self, mean: f64) {
        let best = self.best.filter(|_| self.evaluation.is_some());
        self.evaluation = Some(mean);
        self.best = Some(best.map_or(mean, |best| best.max(mean)));
    }

    /// Notes that an update was made, after its scores.
    pub fn updated(&mut self) {
        if self.evaluation.is_none() && self.mean() > self.best {
            self.best = self.mean();
        }
    }

    /// Mean of the last scores; `None` before the first.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let n = self.last.len();
        (n > 0).then(|| self.last.iter().sum::<f64>() / n as f64)
    }

    /// Whether there are as many scores as the mean is over.
    #[must_use]
    pub fn window_is_full(&self) -> bool {
        self.last.len() == self.window
    }

    /// Mean of the last evaluation.
    #[must_use]
    pub fn evaluation(&self) -> Option<f64> {
        self.evaluation
    }

    /// Whether the run now stands at its best score.
    #[must_use]
    pub fn is_best(&self) -> bool {
        let score = self.evaluation.or_else(|| self.mean());
        score.is_some() && score >= self.best
    }
}

/// How late experience was learned from: environment steps or tokens, by updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lags {
    consumed: u64,
    sum: u64,
    /// Greatest lag, updates.
    pub max: u64,
}

impl Lags {
    /// Notes so many units learned from.
    pub fn consumed(&mut self, lag: u64, units: u64) {
        self.consumed += units;
        self.sum += lag * units;
        self.max = self.max.max(lag);
    }

    /// Mean lag; `None` before anything was learned from.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.consumed > 0).then(|| self.sum as f64 / self.consumed as f64)
    }
}
