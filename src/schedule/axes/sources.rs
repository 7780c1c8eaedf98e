//! Where prompts come from: their sources, and which comes next.
//!
//! The order is the data set's own where it has one ([`SourceQueue::offer`]), else sources take turns by their weights,
//! as evenly as whole prompts allow. A source that has no room is passed over and keeps its place in the order.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One source of prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Its name.
    pub name: String,
    /// Share of prompts, relative to the others.
    pub weight: f64,
    /// Most trajectories in flight (cap_d), paused ones included.
    pub cap: Option<u64>,
    /// Groups of it in every batch (B_i), for a mixer.
    pub quota: Option<u64>,
    /// Members of its groups; absent: as everywhere.
    pub group_size: Option<u32>,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self { name: "all".into(), weight: 1.0, cap: None, quota: None, group_size: None }
    }
}

/// The order in which sources give prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceQueue {
    next: VecDeque<u32>,
    /// Whether the order is the data set's own.
    own_order: bool,
    weights: Vec<f64>,
    /// What each source is owed, in prompts.
    owed: Vec<f64>,
}

impl SourceQueue {
    /// The order by weights.
    #[must_use]
    pub fn new(sources: &[SourceConfig]) -> Self {
        let weights: Vec<f64> = sources.iter().map(|source| source.weight).collect();
        Self { next: VecDeque::new(), own_order: false, owed: vec![0.0; weights.len()], weights }
    }

    /// Prompts of the data set's own order that were not taken.
    #[must_use]
    pub fn offered(&self) -> u64 {
        if self.own_order { self.next.len() as u64 } else { 0 }
    }

    /// The data set's own order goes on with these.
    pub fn offer(&mut self, sources: &[u32]) {
        self.own_order = true;
        self.next.extend(sources);
    }

    /// Takes the first prompt whose source is under its cap, if it fits into the places that are free: nothing
    /// overtakes it for being smaller.
    pub fn take(&mut self, under_cap: impl Fn(u32) -> bool, fits: impl Fn(u32) -> bool) -> Option<u32> {
        self.look_ahead();
        let position = self.next.iter().position(|&source| under_cap(source))?;
        if fits(self.next[position]) { self.next.remove(position) } else { None }
    }

    /// Makes sure that every source that gives prompts is in sight.
    fn look_ahead(&mut self) {
        if self.own_order {
            return;
        }
        let total: f64 = self.weights.iter().sum();
        while (0..self.weights.len())
            .any(|source| self.weights[source] > 0.0 && !self.next.contains(&(source as u32)))
        {
            let mut chosen = 0;
            for (source, weight) in self.weights.iter().enumerate() {
                self.owed[source] += weight / total;
                if self.owed[source] > self.owed[chosen] {
                    chosen = source;
                }
            }
            self.owed[chosen] -= 1.0;
            self.next.push_back(chosen as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(weights: &[f64]) -> Vec<SourceConfig> {
        weights.iter().map(|&weight| SourceConfig { weight, ..SourceConfig::default() }).collect()
    }

    #[test]
    fn sources_take_turns_by_their_weights() {
        let mut queue = SourceQueue::new(&sources(&[3.0, 1.0, 0.0]));
        let taken: Vec<u32> = (0..400).filter_map(|_| queue.take(|_| true, |_| true)).collect();
        assert_eq!(taken.iter().filter(|&&source| source == 0).count(), 300);
        for window in taken.windows(4) {
            assert!(window.contains(&1), "as evenly as whole prompts allow: {window:?}");
        }
        assert!(!taken.contains(&2), "a source without weight gives nothing");
    }

    #[test]
    fn a_source_without_room_is_passed_over_and_keeps_its_place() {
        let mut queue = SourceQueue::new(&sources(&[1.0, 1.0]));
        queue.offer(&[0, 0, 1, 0]);
        assert_eq!(queue.take(|source| source == 1, |_| true), Some(1));
        assert_eq!(queue.take(|source| source == 1, |_| true), None, "the data set's own order has no more");
        assert_eq!(
            [queue.take(|_| true, |_| true), queue.take(|_| true, |_| true), queue.take(|_| true, |_| true)],
            [Some(0); 3]
        );
        assert_eq!(queue.take(|_| true, |_| true), None);
    }
}
