//! Reward normalisation: rewards divided by the running standard deviation of the discounted return.
//!
//! The running return of every environment is carried from unroll to unroll; unrolls of one lane arrive in order. A
//! lane in a new life starts at zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::Moments;
use crate::trajectory::Unroll;

/// Running returns and their moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardScale {
    discount: f64,
    /// (incarnation, running return of each column) by (actor, lane).
    running: BTreeMap<(u32, u32), (u32, Vec<f64>)>,
    moments: Moments,
}

impl RewardScale {
    /// Nothing seen yet: the scale is 1.
    #[must_use]
    pub fn new(discount: f64) -> Self {
        Self { discount, running: BTreeMap::new(), moments: Moments::new(1) }
    }

    /// Takes the rewards of an unroll into account.
    pub fn observe(&mut self, unroll: &Unroll) {
        let lane = (unroll.id.actor, unroll.id.lane);
        let fresh = || (unroll.id.incarnation, vec![0.0; unroll.columns]);
        let entry = self.running.entry(lane).or_insert_with(fresh);
        if entry.0 != unroll.id.incarnation || entry.1.len() != unroll.columns {
            *entry = fresh();
        }
        for (i, &reward) in unroll.rewards.iter().enumerate() {
            let running = &mut entry.1[i % unroll.columns];
            *running = *running * self.discount + f64::from(reward);
            self.moments.add(&[*running as f32]);
            if unroll.terminated[i] || unroll.truncated[i] {
                *running = 0.0;
            }
        }
    }

    /// What rewards are multiplied by.
    #[must_use]
    pub fn factor(&self) -> f32 {
        (1.0 / (self.moments.variance(0) + 1e-8).sqrt()) as f32
    }
}
