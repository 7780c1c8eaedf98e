//! Four bounds: an interval of the ratio for each sign of the advantage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::{Aggregation, TokenLossError};

/// The policy gradient weighed by r = π/μ, inside bounds that depend on the sign of the advantage:
///
/// ```text
/// l = −sg[r M] A log π,   M = pos_low ≤ r ≤ pos_high where A ≥ 0, neg_low ≤ r ≤ neg_high where A < 0
/// ```
///
/// Stop-gradient: the weight, A. Default aggregation: prompt_mean; removed tokens stay in the denominators. Source:
/// Xiaomi, "MiMo-V2.6", 2026, equation 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FourBoundConfig {
    /// Smallest ratio with advantages of at least 0.
    pub pos_low: f64,
    /// Largest ratio with advantages of at least 0.
    pub pos_high: f64,
    /// Smallest ratio with negative advantages.
    pub neg_low: f64,
    /// Largest ratio with negative advantages.
    pub neg_high: f64,
}

impl Default for FourBoundConfig {
    fn default() -> Self {
        Self { pos_low: 0.2, pos_high: 5.0, neg_low: 0.2, neg_high: 5.0 }
    }
}

impl FourBoundConfig {
    fn bounds(&self, advantage: f64) -> (f64, f64) {
        if advantage >= 0.0 { (self.pos_low, self.pos_high) } else { (self.neg_low, self.neg_high) }
    }

    /// The weight for a ratio and the advantage beside it.
    #[must_use]
    pub fn weight(&self, ratio: f64, advantage: f64) -> f64 {
        let (low, high) = self.bounds(advantage);
        if (low..=high).contains(&ratio) { ratio } else { 0.0 }
    }
}

impl Objective for FourBoundConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_bounds(["pos_low", "pos_high"], [self.pos_low, self.pos_high])?;
        TokenLossError::check_bounds(["neg_low", "neg_high"], [self.neg_low, self.neg_high])
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::PromptMean
    }
}

impl RowObjective for FourBoundConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let (low, high) = self.bounds(token.advantage);
            diagnostics.masked(ratio < low, ratio > high);
            Term::policy_gradient(self.weight(ratio, token.advantage), token)
        });
        Ok(())
    }
}
