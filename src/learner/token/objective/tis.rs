//! TIS: the clipped surrogate with a truncated importance weight for the behaviour policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proximal::ProximalPolicy;
use super::row::{Objective, Row, RowObjective, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Figure, Needs, TokenLossError};

/// What an importance weight belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightLevel {
    /// A token.
    #[default]
    Token,
    /// A sequence: the product over its loss tokens.
    Sequence,
}

/// The clipped surrogate around the proximal policy, with u = π/π_prox and a truncated weight of w = π_prox/μ:
///
/// ```text
/// l = −min(w, weight_cap) C(u, A);   level sequence: w = exp Σ_t log π_prox/μ
/// ```
///
/// Stop-gradient: w, A, π_prox. Default aggregation: token_mean. Sources: Ionides, "Truncated importance sampling",
/// 2008; Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025. Weights and their
/// clamping are reported over loss tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TisConfig {
    /// The ratio u may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio u may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Largest weight; absent: 2 for tokens, 5 for sequences.
    pub weight_cap: Option<f64>,
    /// What the weight belongs to.
    pub level: WeightLevel,
    /// Where the proximal policy comes from.
    pub proximal: ProximalPolicy,
}

impl Default for TisConfig {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            weight_cap: None,
            level: WeightLevel::Token,
            proximal: ProximalPolicy::Recompute,
        }
    }
}

impl TisConfig {
    /// The largest weight.
    #[must_use]
    pub fn cap(&self) -> f64 {
        self.weight_cap.unwrap_or(match self.level {
            WeightLevel::Token => 2.0,
            WeightLevel::Sequence => 5.0,
        })
    }
}

impl Objective for TisConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()?;
        TokenLossError::check("weight_cap", self.cap(), self.cap() >= 1.0, "at least 1")
    }

    fn needs(&self) -> Needs {
        self.proximal.needs()
    }
}

impl RowObjective for TisConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let surrogate = Surrogate::new(self.clip_low, self.clip_high);
        let sequence = row.sum(|token| self.proximal.anchor(token).log_weight());
        terms.each(row, |token, diagnostics| {
            let token = &self.proximal.anchor(token);
            let log_weight = match self.level {
                WeightLevel::Token => token.log_weight(),
                WeightLevel::Sequence => sequence,
            };
            let (ratio, weight) = (token.proximal_ratio(), log_weight.exp());
            diagnostics.record(Figure::RatioMean, ratio);
            diagnostics.record(Figure::WeightMeanRaw, weight);
            diagnostics.flag(Figure::WeightClampedFrac, weight > self.cap());
            surrogate.counted(ratio, token.advantage, diagnostics).weighted(weight.min(self.cap()))
        });
        Ok(())
    }
}
