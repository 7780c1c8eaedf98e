//! Dr. GRPO: the clipped surrogate with a constant denominator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ppo::clipped_row;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Aggregation, TokenLossError};

/// The clipped surrogate with r = π/μ, summed over tokens and divided by a constant, so that length is no advantage:
///
/// ```text
/// l = −C(r, A)
/// ```
///
/// Stop-gradient: A (normally without the standard deviation), μ. Default aggregation: fixed_length, which needs
/// `max_length`. Source: Liu et al., "Understanding R1-Zero-like training", 2025 (arXiv 2503.20783).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrGrpoConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
}

impl Default for DrGrpoConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2 }
    }
}

impl Objective for DrGrpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::FixedLength
    }
}

impl RowObjective for DrGrpoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        clipped_row(Surrogate::new(self.clip_low, self.clip_high), row, terms);
        Ok(())
    }
}
