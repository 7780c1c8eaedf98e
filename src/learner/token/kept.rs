//! Which answers of a group are learned from.
//!
//! Where learning is slower than generation, more answers than are learned from cost nothing: of K that are sampled the
//! best and the worst are kept. They are then an ordinary group of two. Advantages compare these two with each other,
//! *after* the choice: nothing of the others reaches the learner, and K = 2 is the same as keeping all. Estimators that
//! take the mean of a group for the policy's own cannot be used so, since the mean of the extremes is not that.
//!
//! Source: Noukhovitch et al., "Asynchronous RLHF", 2024 (arXiv 2410.18252), section 4.2.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pairs;

/// Which answers of a group are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// All.
    #[default]
    All,
    /// The one of the largest reward and the one of the smallest, the first of several. They are compared with each
    /// other as a group of two; the others are dropped as `not_kept`.
    BestAndWorst,
}

impl Keep {
    /// The members that are kept, in order. `rewards` are those that are learned from, `None` where grading failed, and
    /// `learned` says of which members anything would be learned.
    ///
    /// Members without a reward are never chosen, nor are those of which nothing would be learned while there are
    /// others. Where all rewards are alike, the first two are kept; at least one member is, unless none has a reward.
    #[must_use]
    pub fn members(self, rewards: &[Option<f64>], learned: &[bool]) -> Vec<usize> {
        if self == Self::All {
            return (0..rewards.len()).collect();
        }
        let eligible = rewards.iter().zip(learned).map(|(reward, learned)| reward.filter(|_| *learned));
        let mut eligible: Vec<Option<f64>> = eligible.collect();
        if eligible.iter().all(Option::is_none) {
            eligible = rewards.to_vec();
        }
        let prompt = vec![0; eligible.len()];
        let mut kept: Vec<usize> = match pairs::best_and_worst(&prompt, &eligible).first() {
            Some(pair) => vec![pair.chosen, pair.rejected],
            None => (0..eligible.len()).filter(|&member| eligible[member].is_some()).take(2).collect(),
        };
        kept.sort_unstable();
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rewards: &[Option<f64>]) -> Vec<usize> {
        Keep::BestAndWorst.members(rewards, &vec![true; rewards.len()])
    }

    #[test]
    fn the_first_of_the_best_and_of_the_worst_are_kept_in_order() {
        assert_eq!(kept(&[Some(0.5), Some(0.0), None, Some(1.0), Some(0.0), Some(1.0)]), [1, 3]);
        assert_eq!(kept(&[Some(2.0), Some(-1.0), Some(0.5)]), [0, 1]);
    }

    #[test]
    fn two_answers_are_both_kept_as_where_all_are() {
        for rewards in [[Some(1.0), Some(0.0)], [Some(0.0), Some(1.0)], [Some(1.0), Some(1.0)]] {
            assert_eq!(kept(&rewards), Keep::All.members(&rewards, &[true; 2]));
        }
    }

    #[test]
    fn rewards_that_are_alike_leave_the_first_two_and_a_single_grade_its_own_answer() {
        assert_eq!(kept(&[None, Some(1.0), Some(1.0), Some(1.0)]), [1, 2]);
        assert_eq!(kept(&[None, None, Some(0.25)]), [2]);
        assert_eq!(kept(&[None, None]), [0; 0]);
    }

    #[test]
    fn answers_that_nothing_is_learned_from_are_passed_over_while_there_are_others() {
        let rewards = [Some(0.0), Some(0.25), Some(1.0), Some(0.5)];
        assert_eq!(Keep::BestAndWorst.members(&rewards, &[false, true, false, true]), [1, 3]);
        assert_eq!(Keep::BestAndWorst.members(&rewards, &[false; 4]), [0, 2]);
    }
}
