//! IcePop: the clipped surrogate without the tokens whose importance weight leaves its bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proximal::ProximalPolicy;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Figure, Needs, TokenLossError};

/// The clipped surrogate around the proximal policy, with u = π/π_prox and w = π_prox/μ:
///
/// ```text
/// l = −w 1[low ≤ w ≤ high] C(u, A)
/// ```
///
/// Stop-gradient: w, A, π_prox. Default aggregation: token_mean; removed tokens stay in the denominators. Source: Ling
/// team, "Every step evolves", 2025 (arXiv 2510.18855).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IcepopConfig {
    /// The ratio u may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio u may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Smallest weight that is kept.
    pub low: f64,
    /// Largest weight that is kept.
    pub high: f64,
    /// Where the proximal policy comes from.
    pub proximal: ProximalPolicy,
}

impl Default for IcepopConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2, low: 0.5, high: 5.0, proximal: ProximalPolicy::Recompute }
    }
}

impl IcepopConfig {
    /// The weight for w = π_prox/μ.
    #[must_use]
    pub fn weight(&self, w: f64) -> f64 {
        if (self.low..=self.high).contains(&w) { w } else { 0.0 }
    }
}

impl Objective for IcepopConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()?;
        TokenLossError::check_bounds(["low", "high"], [self.low, self.high])
    }

    fn needs(&self) -> Needs {
        self.proximal.needs()
    }
}

impl RowObjective for IcepopConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let surrogate = Surrogate::new(self.clip_low, self.clip_high);
        terms.each(row, |token, diagnostics| {
            let token = &self.proximal.anchor(token);
            let (ratio, weight) = (token.proximal_ratio(), token.log_weight().exp());
            diagnostics.record(Figure::RatioMean, ratio);
            diagnostics.record(Figure::WeightMeanRaw, weight);
            diagnostics.masked(weight < self.low, weight > self.high);
            surrogate.counted(ratio, token.advantage, diagnostics).weighted(self.weight(weight))
        });
        Ok(())
    }
}
