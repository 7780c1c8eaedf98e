//! When generators take up new weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When new weights reach the generators, by `when`. A schedule that pauses for learning pushes before it resumes, by
/// the same rule.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "when", rename_all = "snake_case", deny_unknown_fields)]
pub enum WeightPush {
    /// After every update, into what is in flight where it can be interrupted.
    #[default]
    Immediate,
    /// Once nothing is in flight.
    Boundary,
    /// Batch t is generated under version t − lag exactly, however early it could begin: for studies.
    Behind {
        /// Updates.
        lag: u64,
    },
    /// After every so many updates.
    Every {
        /// Updates.
        updates: u64,
    },
    /// At most once in so many seconds.
    Interval {
        /// Seconds.
        seconds: f64,
    },
    /// When generators are this far behind, or the learner has measured this spread of importance ratios.
    Adaptive {
        /// Updates that generators may be behind.
        lag: u64,
        /// Standard deviation of log ratios.
        spread: f64,
    },
}

/// What the rule looks at.
#[derive(Debug, Clone, Copy)]
pub(in crate::schedule) struct PushView {
    pub version: u64,
    pub loaded: u64,
    pub idle: bool,
    pub seconds_since: f64,
    pub spread: f64,
}

impl WeightPush {
    /// Whether weights are pushed now. What `Behind` pushes is decided with the batch.
    pub(in crate::schedule) fn is_due(&self, view: PushView) -> bool {
        let behind = view.version.saturating_sub(view.loaded);
        behind > 0
            && match *self {
                Self::Immediate => true,
                Self::Boundary => view.idle,
                Self::Behind { .. } => false,
                Self::Every { updates } => behind >= updates,
                Self::Interval { seconds } => view.seconds_since >= seconds,
                Self::Adaptive { lag, spread } => behind >= lag || view.spread >= spread,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cadence_waits_for_its_own_bound() {
        let view = PushView { version: 3, loaded: 1, idle: false, seconds_since: 5.0, spread: 0.1 };
        for (push, due) in [
            (WeightPush::Immediate, true),
            (WeightPush::Boundary, false),
            (WeightPush::Every { updates: 2 }, true),
            (WeightPush::Every { updates: 3 }, false),
            (WeightPush::Interval { seconds: 5.0 }, true),
            (WeightPush::Interval { seconds: 6.0 }, false),
            (WeightPush::Adaptive { lag: 3, spread: 0.1 }, true),
            (WeightPush::Adaptive { lag: 3, spread: 0.2 }, false),
            (WeightPush::Adaptive { lag: 2, spread: 0.2 }, true),
        ] {
            assert_eq!(push.is_due(view), due, "{push:?}");
            assert!(!push.is_due(PushView { loaded: 3, ..view }), "nothing newer to push");
        }
        assert!(WeightPush::Boundary.is_due(PushView { idle: true, ..view }));
    }
}
