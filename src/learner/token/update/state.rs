//! What a learner remembers beside tensors, and the rates that it is told.

use serde::{Deserialize, Serialize};

use crate::learner::token::FourBounds;
use crate::learner::token::advantage::{PassRates, RewardBaseline};
use crate::trajectory::Version;

/// The part of the learner that is neither parameters nor optimiser tensors.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenLearnerState {
    /// Completed updates.
    pub version: Version,
    /// Updates skipped since the last applied one.
    pub skips_in_a_row: u32,
    /// A baseline across problems, where the advantage has one.
    pub baseline: Option<RewardBaseline>,
    /// Pass rates of the problems' sources that the last update went by, where the advantage has a rubric.
    pub pass_rates: PassRates,
    /// Bounds of the ratio, where a controller moves them.
    pub bounds: Option<FourBounds>,
    /// Of the updates, those that changed the value function alone.
    pub value_only: u64,
    /// Coefficient of the reference KL in force, where a controller moves it.
    pub kl_coefficient: Option<f64>,
    /// The version that is the reference policy, where there is one.
    pub reference_version: Option<Version>,
}

impl TokenLearnerState {
    /// Updates that changed the policy.
    #[must_use]
    pub fn policy_updates(&self) -> u64 {
        self.version.0 - self.value_only.min(self.version.0)
    }
}

/// Learning rates of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRates {
    /// Of the policy, and of a critic on its layers.
    pub policy: f64,
    /// Of a critic with a trunk of its own.
    pub values: f64,
}

impl From<f64> for LearningRates {
    fn from(rate: f64) -> Self {
        Self { policy: rate, values: rate }
    }
}
