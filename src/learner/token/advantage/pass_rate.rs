//! Pass rates of sources of problems, as they are tracked over a run.
//!
//! What is graded is counted in whole numbers, which add up in any order; an update then folds the counts into each
//! source's rate. So rates are a function of what was graded before which update, not of which group was finished
//! first. Counts and rates belong in a checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::RubricGrading;
use crate::learner::token::TokenLearnerConfig;

/// Answers graded, and how many of them passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PassCount {
    /// Passes among them.
    pub passes: u64,
    /// Graded answers.
    pub answers: u64,
}

/// An exponential mean of the share of passes for each source, and what was counted since it moved last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PassRates {
    rates: BTreeMap<Arc<str>, f64>,
    counts: BTreeMap<Arc<str>, PassCount>,
}

impl PassRates {
    /// The rate of a source; `None` before anything of it was graded and folded in.
    #[must_use]
    pub fn rate(&self, source: &str) -> Option<f64> {
        self.rates.get(source).copied()
    }

    /// All sources with their rates, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.rates.iter().map(|(source, &rate)| (&**source, rate))
    }

    /// Mean of the rates of all sources; `None` without any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.rates.len();
        (count > 0).then(|| self.rates.values().sum::<f64>() / count as f64)
    }

    /// How a source is graded; without a rubric it does not matter.
    #[must_use]
    pub fn grading(&self, config: &TokenLearnerConfig, source: &str) -> RubricGrading {
        let rubric = config.advantage.rubric();
        rubric.map_or(RubricGrading::Gar, |rubric| rubric.grading(self.rate(source)))
    }

    /// Counts the answers of a group.
    pub fn count(&mut self, source: &Arc<str>, group: PassCount) {
        let count = self.counts.entry(Arc::clone(source)).or_default();
        count.passes += group.passes;
        count.answers += group.answers;
    }

    /// Folds the counts in. The first share of a source is its rate; each later one moves it, keeping `decay` of what it
    /// was.
    pub fn fold(&mut self, decay: f64) {
        for (source, count) in std::mem::take(&mut self.counts) {
            if count.answers == 0 {
                continue;
            }
            let share = count.passes as f64 / count.answers as f64;
            let rate = self.rates.entry(source).or_insert(share);
            *rate = decay * *rate + (1.0 - decay) * share;
        }
    }

    /// The rates alone, nothing counted.
    #[must_use]
    pub fn folded(&self) -> Self {
        Self { rates: self.rates.clone(), counts: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rates: &mut PassRates, source: &str, passes: u64, answers: u64) {
        rates.count(&Arc::from(source), PassCount { passes, answers });
    }

    #[test]
    fn each_source_has_a_rate_of_its_own_that_begins_at_its_first_share() {
        let mut rates = PassRates::default();
        count(&mut rates, "sums", 1, 2);
        count(&mut rates, "ungraded", 0, 0);
        count(&mut rates, "sums", 0, 2);
        assert_eq!((rates.rate("sums"), rates.mean()), (None, None));
        rates.fold(0.5);
        assert_eq!((rates.rate("sums"), rates.rate("ungraded")), (Some(0.25), None));
        count(&mut rates, "sums", 3, 4);
        count(&mut rates, "words", 2, 2);
        rates.fold(0.5);
        assert_eq!((rates.rate("sums"), rates.rate("words")), (Some(0.5), Some(1.0)));
        assert_eq!(rates.iter().collect::<Vec<_>>(), [("sums", 0.5), ("words", 1.0)]);
        assert_eq!(rates.mean(), Some(0.75));
        let before = rates.clone();
        rates.fold(0.5);
        assert_eq!(rates, before);
    }

    #[test]
    fn counts_add_up_in_any_order_and_saved_rates_go_on_where_they_stood() {
        let groups = [("sums", 1, 3), ("words", 2, 3), ("sums", 3, 3)];
        let mut rates = PassRates::default();
        groups.iter().for_each(|&(source, passes, answers)| count(&mut rates, source, passes, answers));
        let mut other = PassRates::default();
        groups.iter().rev().for_each(|&(source, passes, answers)| count(&mut other, source, passes, answers));
        assert_eq!(rates, other);
        let mut copy: PassRates = serde_json::from_str(&serde_json::to_string(&rates).unwrap()).unwrap();
        for rates in [&mut rates, &mut copy] {
            count(rates, "sums", 7, 9);
            rates.fold(0.9);
        }
        assert_eq!(copy, rates);
        assert_eq!(rates.folded(), rates);
    }
}
