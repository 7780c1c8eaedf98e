//! The mixer of sources (MiMo-V2.6): every batch has exactly its quota B_i of each source, however different their
//! acceptance and duration are.
//!
//! For source i with acceptance r_i, A_i groups accepted for the batch in formation and mean duration t_i:
//!
//! - at most ⌈(1 + p) B_i / r_i⌉ groups are launched for a batch, unless all of them ended and the quota is still
//!   short;
//! - its weight is α B_i / r_i + (1 − α) (B_i − A_i)⁺ / r_i, and it should have a share of the pool in proportion to
//!   weight times t_i; the next group is of the source that is furthest below its share.
//!
//! r_i and t_i are measured; both start from a prior worth a few groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the mixer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MixerConfig {
    /// Weight of the quota against that of what is missing of it (α).
    pub alpha: f64,
    /// Groups launched beyond what the acceptance asks for, as a share (p).
    pub surplus: f64,
}

impl Default for MixerConfig {
    fn default() -> Self {
        Self { alpha: 0.5, surplus: 0.25 }
    }
}

/// Groups that the priors of acceptance and duration are worth.
const PRIOR: f64 = 4.0;

/// What the mixer knows of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixerState {
    quota: u64,
    /// Launched for the batch in formation.
    launched: u64,
    /// Launched and neither accepted nor given up.
    open: u64,
    /// Accepted and not yet learned from.
    accepted: u64,
    /// Ended so far, and accepted of those.
    ended: f64,
    kept: f64,
    /// Seconds that ended groups took, in all.
    seconds: f64,
}

impl MixerState {
    /// A source of which nothing is known.
    #[must_use]
    pub fn new(quota: u64) -> Self {
        Self { quota, launched: 0, open: 0, accepted: 0, ended: 0.0, kept: 0.0, seconds: 0.0 }
    }

    /// Share of groups that are accepted (r).
    #[must_use]
    pub fn acceptance(&self) -> f64 {
        (self.kept + PRIOR) / (self.ended + PRIOR)
    }

    /// Groups accepted for the batch in formation (A), all that wait counted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Whether the batch in formation has its quota.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.accepted >= self.quota
    }

    fn mean_seconds(&self, prior: f64) -> f64 {
        (self.seconds + PRIOR * prior) / (self.ended + PRIOR)
    }

    /// Whether another group may be launched for the batch in formation.
    fn may_launch(&self, config: &MixerConfig) -> bool {
        let budget = (1.0 + config.surplus) * self.quota as f64 / self.acceptance();
        self.quota > 0 && (self.launched < budget.ceil() as u64 || (self.open == 0 && !self.is_satisfied()))
    }

    fn weight(&self, config: &MixerConfig) -> f64 {
        let missing = self.quota.saturating_sub(self.accepted);
        (config.alpha * self.quota as f64 + (1.0 - config.alpha) * missing as f64) / self.acceptance()
    }

    /// A group was launched.
    pub fn launch(&mut self) {
        self.launched += 1;
        self.open += 1;
    }

    /// A group ended after so many seconds, and stays or not.
    pub fn end(&mut self, kept: bool, seconds: f64) {
        self.open = self.open.saturating_sub(1);
        self.ended += 1.0;
        self.seconds += seconds;
        if kept {
            self.kept += 1.0;
            self.accepted += 1;
        }
    }

    /// An accepted group was dropped before it was learned from.
    pub fn discard(&mut self) {
        self.accepted = self.accepted.saturating_sub(1);
    }

    /// A batch took its quota: what is left over, in flight or complete, is for the next.
    pub fn close_batch(&mut self) {
        self.accepted = self.accepted.saturating_sub(self.quota);
        self.launched = self.open + self.accepted;
    }

    /// The source of the next group; `has_room` says where there is room, and `live` counts trajectories in flight.
    #[must_use]
    pub fn choose(
        states: &[Self],
        config: &MixerConfig,
        live: &[u64],
        has_room: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let ended: f64 = states.iter().map(|state| state.ended).sum();
        let seconds: f64 = states.iter().map(|state| state.seconds).sum();
        let prior = if ended > 0.0 { seconds / ended } else { 1.0 };
        let share = |state: &Self| state.weight(config) * state.mean_seconds(prior);
        let open = |source: &usize| states[*source].may_launch(config) && has_room(*source as u32);
        // Furthest below its share: the least live for what it should have.
        let filled = |source: &usize| live[*source] as f64 / share(&states[*source]).max(1e-12);
        (0..states.len())
            .filter(open)
            .min_by(|a, b| filled(a).total_cmp(&filled(b)))
            .map(|source| source as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_furthest_below_its_share_is_next_and_budgets_bind() {
        let config = MixerConfig { alpha: 0.5, surplus: 0.0 };
        let mut states = [MixerState::new(2), MixerState::new(1)];
        assert_eq!(MixerState::choose(&states, &config, &[0, 0], |_| true), Some(0));
        assert_eq!(MixerState::choose(&states, &config, &[4, 0], |_| true), Some(1));
        assert_eq!(MixerState::choose(&states, &config, &[4, 0], |source| source == 0), Some(0));
        states[1].launch();
        assert_eq!(
            MixerState::choose(&states, &config, &[9, 0], |_| true),
            Some(0),
            "one of one is launched"
        );
        states[0].launch();
        states[0].launch();
        assert_eq!(MixerState::choose(&states, &config, &[0, 0], |_| true), None);
        states[1].end(false, 1.0);
        assert_eq!(MixerState::choose(&states, &config, &[9, 9], |_| true), Some(1), "the quota is short");
    }

    #[test]
    fn a_batch_takes_its_quota_and_leaves_the_rest_for_the_next() {
        let mut state = MixerState::new(2);
        for _ in 0..4 {
            state.launch();
        }
        (0..3).for_each(|_| state.end(true, 1.0));
        assert!(state.is_satisfied());
        state.close_batch();
        assert_eq!((state.accepted(), state.launched), (1, 2), "one waits, one is in flight");
        assert!(!state.is_satisfied());
    }
}
