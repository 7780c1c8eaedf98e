//! PPO against the policy that sampled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::TokenLossError;

/// The clipped surrogate with r = π/μ, C as in the module `surrogate`:
///
/// ```text
/// l = −C(r, A)
/// ```
///
/// Stop-gradient: A, μ. Default aggregation: token_mean. Source: Schulman et al., "Proximal policy optimization
/// algorithms", 2017 (arXiv 1707.06347).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenPpoConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Ratio above which negative advantages lose their gradient too; absent: none (3 is usual).
    pub dual_clip: Option<f64>,
}

impl Default for TokenPpoConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2, dual_clip: None }
    }
}

impl TokenPpoConfig {
    fn surrogate(&self) -> Surrogate {
        Surrogate { clip_low: self.clip_low, clip_high: self.clip_high, dual_clip: self.dual_clip }
    }
}

impl Objective for TokenPpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        self.surrogate().validate()
    }
}

impl RowObjective for TokenPpoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        clipped_row(self.surrogate(), row, terms);
        Ok(())
    }
}

/// Adds −C(r, A) of each token.
pub(super) fn clipped_row(surrogate: Surrogate, row: &Row<'_>, terms: &mut Terms<'_>) {
    terms.each_ratio(row, |token, ratio, diagnostics| surrogate.counted(ratio, token.advantage, diagnostics));
}
