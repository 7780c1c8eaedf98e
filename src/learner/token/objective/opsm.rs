//! OPSM: bad sequences that the policy has moved away from are left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::TokenLossError;
use crate::trajectory::TokenFate;

/// The clipped surrogate with r = π/μ, without the sequences that are off policy and had a negative advantage:
///
/// ```text
/// l = −C(r, A), but 0 for a whole row with A < 0 and mean_t sg[log μ − log π] > delta
/// ```
///
/// Stop-gradient: the mask, A, μ. One advantage a sequence; others are refused. Default aggregation: token_mean;
/// removed rows stay in the denominators. Sources: DeepSeek-AI, "DeepSeek-V3.2", 2025 (arXiv 2512.02556); the slime
/// framework. Clip fractions count only where the row is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpsmConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Mean divergence of a row, nats a token, above which a negative advantage removes it.
    pub delta: f64,
}

impl Default for OpsmConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2, delta: 1e-4 }
    }
}

impl Objective for OpsmConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()?;
        TokenLossError::check_not_negative("delta", self.delta)
    }
}

impl RowObjective for OpsmConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let divergence = row.mean(|token| -token.log_ratio());
        let removed = row.advantage()? < 0.0 && divergence > self.delta;
        let surrogate = Surrogate::new(self.clip_low, self.clip_high);
        terms.each_ratio(row, |token, ratio, diagnostics| {
            diagnostics.removed(TokenFate::SequenceGate, removed);
            if removed {
                surrogate.count_removed(diagnostics);
                return Term::default();
            }
            surrogate.counted(ratio, token.advantage, diagnostics)
        });
        Ok(())
    }
}
