//! A limit on the requests of the engines that follows their memory (Kimi K3 names the signals; the rule is our
//! reading).
//!
//! Each observation: KV use above `high`, or a preemption since the last one, multiplies the limit by `back_off`; use
//! below `low` while all of the limit is used adds `step`. The limit stays within its bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the engines show.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineLoad {
    /// Requests that are being decoded.
    pub active: u64,
    /// Requests that wait for a place in an engine.
    pub queued: u64,
    /// Used share of the KV cache, 0 to 1.
    pub kv_use: f64,
    /// Requests that lost their cache to others since the last observation.
    pub preemptions: u64,
}

/// Settings of the throttle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Limit to begin with, requests.
    pub start: u64,
    /// Least limit.
    pub least: u64,
    /// Greatest limit.
    pub most: u64,
    /// KV use above which the limit falls.
    pub high: f64,
    /// KV use below which it may rise.
    pub low: f64,
    /// Factor of a fall.
    pub back_off: f64,
    /// Requests of a rise.
    pub step: u64,
}

impl Default for ThrottleConfig {
    fn default() -> Self {
        Self { start: 64, least: 1, most: 1 << 20, high: 0.92, low: 0.75, back_off: 0.9, step: 2 }
    }
}

/// The limit now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThrottleState {
    config: ThrottleConfig,
    limit: f64,
}

impl ThrottleState {
    /// The limit that a run begins with.
    #[must_use]
    pub fn new(config: ThrottleConfig) -> Self {
        let limit = config.start.clamp(config.least, config.most) as f64;
        Self { config, limit }
    }

    /// Most requests now.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// Takes an observation, with the number of requests that the scheduler has in the engines.
    pub fn observe(&mut self, load: EngineLoad, live: u64) {
        let config = self.config;
        if load.preemptions > 0 || load.kv_use > config.high {
            self.limit *= config.back_off;
        } else if load.kv_use < config.low && load.queued == 0 && live >= self.limit() {
            self.limit += config.step as f64;
        }
        self.limit = self.limit.clamp(config.least as f64, config.most as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_falls_by_a_factor_and_rises_by_a_step_within_its_bounds() {
        let config = ThrottleConfig { start: 100, least: 50, most: 102, ..ThrottleConfig::default() };
        let mut state = ThrottleState::new(config);
        let mut after = |kv_use, preemptions, live| {
            state.observe(EngineLoad { kv_use, preemptions, ..EngineLoad::default() }, live);
            state.limit()
        };
        assert_eq!(after(0.5, 0, 99), 100, "the limit is not what binds");
        assert_eq!(after(0.5, 0, 100), 102);
        assert_eq!(after(0.5, 0, 102), 102, "the greatest limit");
        assert_eq!(after(0.8, 0, 102), 102, "between the bounds nothing changes");
        assert_eq!(after(0.95, 0, 102), 91);
        assert_eq!(after(0.5, 1, 91), 82, "a preemption counts whatever the use");
        for _ in 0..9 {
            after(0.95, 0, 80);
        }
        assert_eq!(after(0.95, 0, 80), 50, "the least limit");
    }
}
