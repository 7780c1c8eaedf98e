//! Four bounds: an interval of the ratio for each sign of the advantage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::{Aggregation, BoundControlConfig, FourBounds, TokenLossError};

/// The policy gradient weighed by r = π/μ, inside bounds that depend on the sign of the advantage:
///
/// ```text
/// l = −sg[r M] A log π,   M = pos_low ≤ r ≤ pos_high where A ≥ 0, neg_low ≤ r ≤ neg_high where A < 0
/// ```
///
/// With `control` the four bounds are where a run begins, and follow the policy's entropy from there.
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
    /// Moves the bounds by the entropy: low entropy gives positive advantages more room and negative ones less, high
    /// entropy the reverse. Absent: they stay.
    pub control: Option<BoundControlConfig>,
}

impl Default for FourBoundConfig {
    fn default() -> Self {
        Self { pos_low: 0.2, pos_high: 5.0, neg_low: 0.2, neg_high: 5.0, control: None }
    }
}

impl FourBoundConfig {
    /// The four of them.
    #[must_use]
    pub fn bounds(&self) -> FourBounds {
        let Self { pos_low, pos_high, neg_low, neg_high, .. } = *self;
        FourBounds { pos_low, pos_high, neg_low, neg_high }
    }

    pub(super) fn set_bounds(&mut self, bounds: FourBounds) {
        let FourBounds { pos_low, pos_high, neg_low, neg_high } = bounds;
        *self = Self { pos_low, pos_high, neg_low, neg_high, ..*self };
    }

    fn bounds_of(&self, advantage: f64) -> (f64, f64) {
        if advantage >= 0.0 { (self.pos_low, self.pos_high) } else { (self.neg_low, self.neg_high) }
    }

    /// The weight for a ratio and the advantage beside it.
    #[must_use]
    pub fn weight(&self, ratio: f64, advantage: f64) -> f64 {
        let (low, high) = self.bounds_of(advantage);
        if (low..=high).contains(&ratio) { ratio } else { 0.0 }
    }
}

impl Objective for FourBoundConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_bounds(["pos_low", "pos_high"], [self.pos_low, self.pos_high])?;
        TokenLossError::check_bounds(["neg_low", "neg_high"], [self.neg_low, self.neg_high])?;
        self.control.map_or(Ok(()), |control| control.validate(&self.bounds()))
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::PromptMean
    }
}

impl RowObjective for FourBoundConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let (low, high) = self.bounds_of(token.advantage);
            diagnostics.masked(ratio < low, ratio > high);
            Term::policy_gradient(self.weight(ratio, token.advantage), token)
        });
        Ok(())
    }
}
