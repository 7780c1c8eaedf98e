//! DIS: the importance-weighted policy gradient inside a trust interval, nothing outside it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::TokenLossError;

/// Whether the bounds of an interval belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// They do not.
    #[default]
    Open,
    /// They do.
    Closed,
}

/// The policy gradient weighed by r = π/μ where r is near 1, whatever the sign of the advantage:
///
/// ```text
/// l = −sg[r 1(1 − epsilon_low < r < 1 + epsilon_high)] A log π;   interval closed: ≤
/// ```
///
/// Stop-gradient: the weight, A. No proximal policy: combining it with another correction for the behaviour policy
/// would correct twice. Default aggregation: token_mean; removed tokens stay in the denominators. Source: the direct
/// importance sampling of single-rollout asynchronous optimisation, 2026 (arXiv 2607.07508).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DisConfig {
    /// The interval begins at 1 − this.
    pub epsilon_low: f64,
    /// The interval ends at 1 + this.
    pub epsilon_high: f64,
    /// Whether its ends belong to it.
    pub interval: Interval,
}

impl Default for DisConfig {
    fn default() -> Self {
        Self { epsilon_low: 0.3, epsilon_high: 5.0, interval: Interval::Open }
    }
}

impl DisConfig {
    /// Whether a ratio is below, and whether it is above the interval.
    fn outside(&self, ratio: f64) -> (bool, bool) {
        let (low, high) = (1.0 - self.epsilon_low, 1.0 + self.epsilon_high);
        match self.interval {
            Interval::Open => (ratio <= low, ratio >= high),
            Interval::Closed => (ratio < low, ratio > high),
        }
    }

    /// The weight for a ratio.
    #[must_use]
    pub fn weight(&self, ratio: f64) -> f64 {
        if self.outside(ratio) == (false, false) { ratio } else { 0.0 }
    }
}

impl Objective for DisConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        let (low, high) = (self.epsilon_low, self.epsilon_high);
        TokenLossError::check("epsilon_low", low, low > 0.0 && low <= 1.0, "above 0 and at most 1")?;
        TokenLossError::check_positive("epsilon_high", high)
    }
}

impl RowObjective for DisConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let (low, high) = self.outside(ratio);
            diagnostics.masked(low, high);
            Term::policy_gradient(self.weight(ratio), token)
        });
        Ok(())
    }
}
