//! The order in which training problems are taken.
//!
//! A finite task is walked through epoch after epoch, each in an order of its own (the problems sorted by one draw
//! each, so every order is equally likely) or in file order; an endless one by its index. The position is two counters, and
//! the order is a pure function of (seed, epoch): a run that resumes from a saved position takes the same problems as
//! if it had never stopped, also across the end of an epoch.

use serde::{Deserialize, Serialize};

use super::error::TaskError;
use crate::random::{Stream, derive_seed};

/// How far the problems have been taken; saved in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPosition {
    /// Passes completed.
    pub epoch: u32,
    /// Problems taken in this pass.
    pub taken: u32,
    /// Problems in a pass when the position was saved; `None` without end.
    pub len: Option<u32>,
}

/// Walks through a task's training problems.
#[derive(Debug, Clone)]
pub struct Prompts {
    shuffle: bool,
    seed: u64,
    position: PromptPosition,
    /// The order of the current epoch; empty while it is the order of the indices.
    order: Vec<u32>,
}

impl Prompts {
    /// Begins the first pass over `len` problems, `None` when the task makes them without end.
    ///
    /// # Errors
    /// When there is no problem.
    pub fn new(len: Option<u32>, shuffle: bool, seed: u64) -> Result<Self, TaskError> {
        if len == Some(0) {
            return Err(TaskError::Order {
                why: "the task has no training problem; give at least one".into(),
            });
        }
        let position = PromptPosition { epoch: 0, taken: 0, len };
        let mut prompts = Self { shuffle, seed, position, order: Vec::new() };
        prompts.begin_epoch();
        Ok(prompts)
    }

    /// Where the walk stands.
    #[must_use]
    pub fn position(&self) -> PromptPosition {
        self.position
    }

    /// Goes on from a saved position.
    ///
    /// # Errors
    /// When the number of problems is no longer the same, as after a change of the dataset.
    pub fn resume(&mut self, position: PromptPosition) -> Result<(), TaskError> {
        let count = |len: Option<u32>| len.map_or_else(|| "endless".into(), |len| format!("{len}"));
        if position.len != self.position.len || position.len.is_some_and(|len| position.taken >= len) {
            let why = format!(
                "the saved position is at {} of {} problems, but now there are {}; restore the dataset it was \
                 saved with, or start anew",
                position.taken,
                count(position.len),
                count(self.position.len),
            );
            return Err(TaskError::Order { why });
        }
        self.position = position;
        self.begin_epoch();
        Ok(())
    }

    /// Epoch and index of the next training problem.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and an iterator's adaptors would hide the position"
    )]
    pub fn next(&mut self) -> (u32, u32) {
        let PromptPosition { epoch, taken, len } = self.position;
        let index = self.order.get(taken as usize).copied().unwrap_or(taken);
        let last = len.unwrap_or(u32::MAX) - 1;
        if taken < last {
            self.position.taken += 1;
        } else {
            self.position.epoch = epoch.wrapping_add(1);
            self.position.taken = 0;
            self.begin_epoch();
        }
        (epoch, index)
    }

    fn begin_epoch(&mut self) {
        if let (true, Some(len)) = (self.shuffle, self.position.len) {
            self.order = shuffled(len, self.seed, self.position.epoch);
        }
    }
}

/// The numbers below `len` in the order of one draw for each.
pub(super) fn shuffled(len: u32, seed: u64, epoch: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len).collect();
    // Equal draws, one pair in 2^64, keep the order of their indices.
    order.sort_by_cached_key(|&index| derive_seed(seed, Stream::Shuffle, [epoch, index, 0, 0]));
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn take(prompts: &mut Prompts, count: usize) -> Vec<(u32, u32)> {
        (0..count).map(|_| prompts.next()).collect()
    }

    #[test]
    fn every_epoch_has_every_problem_once_in_an_order_of_its_own() {
        let mut prompts = Prompts::new(Some(50), true, 3).unwrap();
        let mut orders = Vec::new();
        for epoch in 0..3 {
            let taken = take(&mut prompts, 50);
            assert!(taken.iter().all(|&(e, _)| e == epoch));
            let order: Vec<u32> = taken.iter().map(|&(_, index)| index).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
            orders.push(order);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        assert_ne!(
            orders[0],
            take(&mut Prompts::new(Some(50), true, 4).unwrap(), 50).iter().map(|p| p.1).collect::<Vec<_>>()
        );
    }

    #[test]
    fn every_order_of_three_problems_is_about_equally_likely() {
        let mut counts = BTreeMap::new();
        for epoch in 0..6000 {
            *counts.entry(shuffled(3, 1, epoch)).or_insert(0) += 1;
        }
        assert!(counts.len() == 6 && counts.values().all(|&n| (850..1150).contains(&n)), "{counts:?}");
    }

    #[test]
    fn a_dataset_smaller_than_a_batch_wraps_and_counts_epochs() {
        let mut prompts = Prompts::new(Some(2), false, 0).unwrap();
        assert_eq!(take(&mut prompts, 5), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        assert_eq!(take(&mut Prompts::new(Some(1), true, 0).unwrap(), 3), [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn an_endless_task_is_taken_by_index() {
        let mut prompts = Prompts::new(None, true, 9).unwrap();
        assert_eq!(take(&mut prompts, 3), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_resumed_walk_goes_on_as_if_never_stopped() {
        for len in [Some(7), None] {
            for stop in 0..16 {
                let mut prompts = Prompts::new(len, true, 5).unwrap();
                take(&mut prompts, stop);
                let saved = serde_json::to_string(&prompts.position()).unwrap();
                let mut resumed = Prompts::new(len, true, 5).unwrap();
                resumed.resume(serde_json::from_str(&saved).unwrap()).unwrap();
                assert_eq!(take(&mut resumed, 20), take(&mut prompts, 20));
            }
        }
    }

    #[test]
    fn a_changed_dataset_is_noticed_on_resuming() {
        let mut prompts = Prompts::new(Some(7), true, 5).unwrap();
        let saved = PromptPosition { epoch: 1, taken: 6, len: Some(8) };
        let message = prompts.resume(saved).unwrap_err().to_string();
        assert!(message.contains("6 of 8 problems") && message.contains("there are 7"), "{message}");
        assert!(prompts.resume(PromptPosition { epoch: 1, taken: 7, len: Some(7) }).is_err());
    }

    #[test]
    fn no_problem_is_refused() {
        assert!(Prompts::new(Some(0), true, 0).unwrap_err().to_string().contains("no training problem"));
    }
}
