//! When a failed role gets another life: a budget of restarts in a moving window, with exponential back-off.
//!
//! Pure: the caller passes the time. When the budget is spent the failure escalates to the root, which ends the run.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Restarts of rollout and inference actors. The learner is never restarted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestartConfig {
    /// Restarts allowed for each actor within the window.
    pub restarts: u32,
    /// Length of the window, seconds.
    pub window_seconds: f64,
    /// Delay before the first restart in a window, seconds; doubles with each further one.
    pub backoff_seconds: f64,
    /// Longest delay, seconds.
    pub max_backoff_seconds: f64,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self { restarts: 10, window_seconds: 60.0, backoff_seconds: 0.05, max_backoff_seconds: 5.0 }
    }
}

/// What to do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start another life after this delay.
    Restart {
        /// Back-off.
        after: Duration,
    },
    /// The budget is spent.
    Escalate,
}

/// The failures of one role.
#[derive(Debug)]
pub struct RestartBudget {
    config: RestartConfig,
    recent: VecDeque<Duration>,
}

impl RestartBudget {
    /// An unspent budget.
    #[must_use]
    pub fn new(config: RestartConfig) -> Self {
        Self { config, recent: VecDeque::new() }
    }

    /// Decides about a failure at time `now` (since any fixed instant; not decreasing).
    pub fn on_failure(&mut self, now: Duration) -> Decision {
        let window = Duration::from_secs_f64(self.config.window_seconds);
        while self.recent.front().is_some_and(|&then| now.saturating_sub(then) > window) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.config.restarts as usize {
            return Decision::Escalate;
        }
        let doublings = self.recent.len().min(30) as i32;
        let delay = self.config.backoff_seconds * 2f64.powi(doublings);
        self.recent.push_back(now);
        Decision::Restart { after: Duration::from_secs_f64(delay.min(self.config.max_backoff_seconds)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(restarts: u32) -> RestartConfig {
        RestartConfig { restarts, window_seconds: 10.0, backoff_seconds: 1.0, max_backoff_seconds: 3.0 }
    }

    fn after(seconds: u64) -> Decision {
        Decision::Restart { after: Duration::from_secs(seconds) }
    }

    #[test]
    fn delays_double_up_to_the_longest_and_then_the_budget_is_spent() {
        let mut budget = RestartBudget::new(config(3));
        let decisions = [0, 1, 2, 3].map(|second| budget.on_failure(Duration::from_secs(second)));
        assert_eq!(decisions, [after(1), after(2), after(3), Decision::Escalate]);
    }

    #[test]
    fn failures_that_left_the_window_no_longer_count() {
        let mut budget = RestartBudget::new(config(1));
        assert_eq!(budget.on_failure(Duration::from_secs(0)), after(1));
        assert_eq!(budget.on_failure(Duration::from_secs(10)), Decision::Escalate);
        assert_eq!(budget.on_failure(Duration::from_secs(11)), after(1));
    }

    #[test]
    fn a_budget_of_zero_escalates_at_once() {
        assert_eq!(RestartBudget::new(config(0)).on_failure(Duration::ZERO), Decision::Escalate);
    }

    proptest! {
        #[test]
        fn no_window_ever_holds_more_restarts_than_allowed(
            gaps in proptest::collection::vec(0u64..6_000, 1..60), restarts in 0u32..6
        ) {
            let mut budget = RestartBudget::new(config(restarts));
            let (mut now, mut granted) = (0u64, Vec::new());
            for gap in gaps {
                now += gap;
                if budget.on_failure(Duration::from_millis(now)) != Decision::Escalate {
                    granted.push(now);
                }
                let inside = granted.iter().filter(|&&then| now - then <= 10_000).count();
                prop_assert!(inside <= restarts as usize);
            }
        }
    }
}
