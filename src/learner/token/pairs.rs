//! Choosing rows by their rewards: the best of a prompt, and pairs of a best and a worst.
//!
//! Rows whose grading failed are never chosen. Of rows with the same reward, the first is taken.

use std::collections::BTreeMap;

/// Two rows of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The row of the largest reward.
    pub chosen: usize,
    /// The row of the smallest reward.
    pub rejected: usize,
}

/// The rows of the largest and of the smallest reward of each prompt, in the order in which prompts first appear.
fn extremes(prompts: &[usize], rewards: &[Option<f64>]) -> Vec<Pair> {
    let mut place = BTreeMap::new();
    let mut found: Vec<Pair> = Vec::new();
    for (row, (prompt, reward)) in prompts.iter().zip(rewards).enumerate() {
        let Some(reward) = *reward else { continue };
        let pair = *place.entry(prompt).or_insert_with(|| {
            found.push(Pair { chosen: row, rejected: row });
            found.len() - 1
        });
        let pair = &mut found[pair];
        if rewards[pair.chosen].is_some_and(|best| reward > best) {
            pair.chosen = row;
        }
        if rewards[pair.rejected].is_some_and(|worst| reward < worst) {
            pair.rejected = row;
        }
    }
    found
}

/// One pair for each prompt whose rewards differ.
pub(super) fn best_and_worst(prompts: &[usize], rewards: &[Option<f64>]) -> Vec<Pair> {
    let mut pairs = extremes(prompts, rewards);
    pairs.retain(|pair| pair.chosen != pair.rejected);
    pairs
}

/// Whether each row is the best of its prompt.
pub(super) fn best_rows(prompts: &[usize], rewards: &[Option<f64>]) -> Vec<bool> {
    let mut chosen = vec![false; prompts.len()];
    for pair in extremes(prompts, rewards) {
        chosen[pair.chosen] = true;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_extremes_keep_the_first_and_ungraded_rows_are_passed_over() {
        let prompts = [7, 3, 7, 7, 3, 3, 7];
        let rewards = [None, Some(1.0), Some(0.5), Some(0.5), Some(1.0), Some(2.0), Some(-1.0)];
        assert_eq!(
            best_and_worst(&prompts, &rewards),
            [Pair { chosen: 5, rejected: 1 }, Pair { chosen: 2, rejected: 6 }]
        );
        assert_eq!(best_rows(&prompts, &rewards), [false, false, true, false, false, true, false]);
    }

    #[test]
    fn equal_rewards_make_no_pair() {
        assert_eq!(best_and_worst(&[0, 0, 1], &[Some(1.0), Some(1.0), Some(2.0)]), []);
    }
}
