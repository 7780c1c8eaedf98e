//! GRPO: the clipped surrogate with a reference KL, every sequence weighing the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ppo::clipped_row;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Aggregation, KlEstimator, ReferenceKlConfig, TokenLossError};

/// The clipped surrogate with r = π/μ and a reference KL in the loss:
///
/// ```text
/// l = −C(r, A) + reference_kl.coefficient · k3
/// ```
///
/// Stop-gradient: A (normally [`grpo`](crate::learner::token::advantage) advantages), μ, π_ref. Default aggregation:
/// seq_mean; default reference KL: 0.001 · k3. Source: Shao et al., "DeepSeekMath", 2024 (arXiv 2402.03300).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2 }
    }
}

impl Objective for GrpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqMean
    }

    fn reference_kl(&self) -> ReferenceKlConfig {
        ReferenceKlConfig { coefficient: 0.001, estimator: KlEstimator::K3, bias_corrected: false }
    }
}

impl RowObjective for GrpoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        clipped_row(Surrogate::new(self.clip_low, self.clip_high), row, terms);
        Ok(())
    }
}
