//! The lag mask: tokens of versions that are too old are left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::{Needs, TokenLossError};
use crate::trajectory::TokenFate;

/// The clipped surrogate with r = π/μ, of tokens that are not too old:
///
/// ```text
/// l = −C(r, A), but 0 where the consuming version is more than max_lag after the token's
/// ```
///
/// Stop-gradient: the mask, A, μ. Default aggregation: token_mean; removed tokens stay in the denominators. Source:
/// DeepSeek-AI, "DeepSeek-V4.1-Flash", 2026, section 5.2, which does not publish max_lag. Clip
/// fractions count only tokens that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LagMaskConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
    /// Oldest version that is learned from, in updates before the consuming one.
    pub max_lag: u64,
}

impl Default for LagMaskConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2, max_lag: 4 }
    }
}

impl Objective for LagMaskConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }

    fn needs(&self) -> Needs {
        Needs { versions: true, ..Needs::ADVANTAGES }
    }
}

impl RowObjective for LagMaskConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let surrogate = Surrogate::new(self.clip_low, self.clip_high);
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let removed = token.lag > self.max_lag;
            diagnostics.removed(TokenFate::Lag, removed);
            if removed {
                surrogate.count_removed(diagnostics);
                return Term::default();
            }
            surrogate.counted(ratio, token.advantage, diagnostics)
        });
        Ok(())
    }
}
