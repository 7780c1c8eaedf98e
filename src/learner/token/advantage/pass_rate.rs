//! Pass rates of sources of problems, as they are tracked over a run.
//!
//! What was graded between two updates is counted in whole numbers, which add up in any order; an update then moves
//! each source's rate. So rates are a function of what was graded under which version, not of which group was finished
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

/// Counts since the last update, by source.
pub type PassCounts = BTreeMap<Arc<str>, PassCount>;

/// An exponential mean of the share of passes for each source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PassRates {
    rates: BTreeMap<Arc<str>, f64>,
}

impl PassRates {
    /// The rate of a source; `None` before anything of it was graded.
    #[must_use]
    pub fn rate(&self, source: &str) -> Option<f64> {
        self.rates.get(source).copied()
    }

    /// All sources and their rates, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.rates.iter().map(|(source, &rate)| (&**source, rate))
    }

    /// How a source is graded; without a rubric it does not matter.
    #[must_use]
    pub fn grading(&self, config: &TokenLearnerConfig, source: &str) -> RubricGrading {
        let rubric = config.advantage.rubric();
        rubric.map_or(RubricGrading::Gar, |rubric| rubric.grading(self.rate(source)))
    }

    /// Takes in what was graded since the last update. The first share of a source is its rate; each later one moves
    /// it, keeping `decay` of what it was.
    pub fn observe(&mut self, counts: &PassCounts, decay: f64) {
        for (source, count) in counts.iter().filter(|(_, count)| count.answers > 0) {
            let share = count.passes as f64 / count.answers as f64;
            let rate = self.rates.entry(Arc::clone(source)).or_insert(share);
            *rate = decay * *rate + (1.0 - decay) * share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64, u64)]) -> PassCounts {
        let count = |&(source, passes, answers): &(&str, u64, u64)| {
            (Arc::from(source), PassCount { passes, answers })
        };
        of.iter().map(count).collect()
    }

    #[test]
    fn each_source_has_a_rate_of_its_own_that_begins_at_its_first_share() {
        let mut rates = PassRates::default();
        rates.observe(&counts(&[("sums", 1, 4), ("ungraded", 0, 0)]), 0.5);
        assert_eq!((rates.rate("sums"), rates.rate("ungraded")), (Some(0.25), None));
        rates.observe(&counts(&[("sums", 3, 4), ("words", 2, 2)]), 0.5);
        assert_eq!(rates.iter().collect::<Vec<_>>(), [("sums", 0.5), ("words", 1.0)]);
    }

    #[test]
    fn saved_rates_go_on_where_they_stood() {
        let mut rates = PassRates::default();
        rates.observe(&counts(&[("sums", 1, 3)]), 0.9);
        let mut copy: PassRates = serde_json::from_str(&serde_json::to_string(&rates).unwrap()).unwrap();
        for rates in [&mut rates, &mut copy] {
            rates.observe(&counts(&[("sums", 7, 9)]), 0.9);
        }
        assert_eq!(copy, rates);
    }
}
