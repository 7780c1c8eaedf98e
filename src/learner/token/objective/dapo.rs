//! DAPO: the clipped surrogate with more room upwards, every token weighing the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ppo::clipped_row;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::TokenLossError;

/// The clipped surrogate with r = π/μ and a larger upper range, which leaves room to unlikely tokens:
///
/// ```text
/// l = −C(r, A)
/// ```
///
/// Stop-gradient: A, μ. Default aggregation: token_mean. Groups of equal rewards are to be dropped before
/// ([`GroupAdvantages::zero_variance`](crate::learner::token::advantage::GroupAdvantages)). Source: Yu et al., "DAPO",
/// 2025 (arXiv 2503.14476).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DapoConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
}

impl Default for DapoConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.28 }
    }
}

impl Objective for DapoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }
}

impl RowObjective for DapoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        clipped_row(Surrogate::new(self.clip_low, self.clip_high), row, terms);
        Ok(())
    }
}
