//! CISPO: the policy gradient with a clipped importance weight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Figure, TokenLossError};

/// The policy gradient weighed by the clipped ratio r = π/μ, so that no token loses its gradient:
///
/// ```text
/// l = −sg[clip(r, 1 − clip_low, 1 + clip_high)] A log π
/// ```
///
/// Stop-gradient: the weight, A. Default aggregation: token_mean. Source: MiniMax, "MiniMax-M1", 2025
/// (arXiv 2506.13585). The clip fractions count whatever the sign of A.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CispoConfig {
    /// Smallest weight: 1 − this.
    pub clip_low: f64,
    /// Largest weight: 1 + this.
    pub clip_high: f64,
}

impl Default for CispoConfig {
    fn default() -> Self {
        Self { clip_low: 0.1, clip_high: 0.1 }
    }
}

impl CispoConfig {
    /// The weight for a ratio.
    #[must_use]
    pub fn weight(&self, ratio: f64) -> f64 {
        ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
    }
}

impl Objective for CispoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }
}

impl RowObjective for CispoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            diagnostics.flag(Figure::ClipFracHigh, ratio > 1.0 + self.clip_high);
            diagnostics.flag(Figure::ClipFracLow, ratio < 1.0 - self.clip_low);
            Term::policy_gradient(self.weight(ratio), token)
        });
        Ok(())
    }
}
