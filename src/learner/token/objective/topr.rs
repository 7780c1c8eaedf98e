//! TOPR: full weight for what went well, a truncated ratio for what went badly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::tis::WeightLevel;
use crate::learner::token::TokenLossError;
use crate::learner::token::batch::Token;

/// The tapered policy gradient, with r = π/μ of a token or of the whole sequence:
///
/// ```text
/// l = −sg[W] A log π,   W = 1 where A > 0, else clip(r, 0, 1)
/// ```
///
/// Stop-gradient: W, A. Default aggregation: token_mean. Source: Le Roux et al., "Tapered off-policy REINFORCE", 2025
/// (arXiv 2503.14286).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToprConfig {
    /// What the ratio belongs to.
    pub level: WeightLevel,
}

impl ToprConfig {
    /// The weight for a ratio and the advantage beside it.
    #[must_use]
    pub fn weight(&self, ratio: f64, advantage: f64) -> f64 {
        if advantage > 0.0 { 1.0 } else { ratio.min(1.0) }
    }
}

impl Objective for ToprConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Ok(())
    }
}

impl RowObjective for ToprConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let sequence = row.sum(Token::log_ratio).exp();
        terms.each_ratio(row, |token, ratio, _| {
            let ratio = match self.level {
                WeightLevel::Token => ratio,
                WeightLevel::Sequence => sequence,
            };
            Term::policy_gradient(self.weight(ratio, token.advantage), token)
        });
        Ok(())
    }
}
