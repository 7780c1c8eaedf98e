//! The lengths of groups that completed lately, for dropping short ones while a run warms up.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Mean lengths that are remembered.
const REMEMBERED: usize = 1024;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct RecentLengths(VecDeque<f64>);

impl RecentLengths {
    pub fn push(&mut self, mean: f64) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(mean);
    }

    /// The q-quantile; none before anything completed.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let mut sorted: Vec<f64> = self.0.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let index = (q * sorted.len() as f64) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied()
    }
}
