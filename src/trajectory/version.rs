//! The version of a policy: how many learner updates it is made of.

use serde::{Deserialize, Serialize};

/// Count of completed learner updates (one batch is one, whatever the number of minibatches). Version 0 is the
/// initial policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The version after one more update.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many updates `behaviour` is behind `self` (0 when it is not behind).
    #[must_use]
    pub fn lag_of(self, behaviour: Self) -> u64 {
        self.0.saturating_sub(behaviour.0)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
