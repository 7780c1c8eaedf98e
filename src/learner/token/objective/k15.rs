//! Mirror descent of Kimi k1.5: the policy gradient with a square that keeps sequences near a reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::tis::WeightLevel;
use crate::learner::token::{Aggregation, Needs, TokenLossError};

/// Online mirror descent, with L = Σ_t log π and L_ref = Σ_t log π_ref over a sequence's loss tokens:
///
/// ```text
/// sequence   Σ_t l = −A L + tau/2 (L − L_ref)²        (sums, not means)
/// token      l = −A log π + tau/2 (log π − log π_ref)²
/// ```
///
/// Stop-gradient: A, π_ref (the policy at the start of the iteration). Default aggregation: group_mean for level
/// sequence, which also takes seq_sum_mean and sum; token_mean for level token. Level sequence takes one advantage a
/// sequence; others are refused. Source: Kimi team, "Kimi k1.5", 2025 (arXiv 2501.12599), equation 3.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct K15Config {
    /// Strength of the square.
    pub tau: f64,
    /// What is squared.
    pub level: WeightLevel,
}

impl Default for K15Config {
    fn default() -> Self {
        Self { tau: 0.1, level: WeightLevel::Sequence }
    }
}

impl Objective for K15Config {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_not_negative("tau", self.tau)
    }

    fn needs(&self) -> Needs {
        Needs { reference: true, ..Needs::ADVANTAGES }
    }

    fn aggregation(&self) -> Aggregation {
        match self.level {
            WeightLevel::Sequence => Aggregation::GroupMean,
            WeightLevel::Token => Aggregation::TokenMean,
        }
    }

    fn refuses(&self, aggregation: Aggregation) -> Option<&'static str> {
        use Aggregation::{GroupMean, SeqSumMean, Sum};
        let whole = matches!(aggregation, GroupMean | SeqSumMean | Sum);
        (self.level == WeightLevel::Sequence && !whole)
            .then_some("group_mean, seq_sum_mean or sum, or set level = \"token\"")
    }
}

impl RowObjective for K15Config {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        match self.level {
            WeightLevel::Token => terms.each_ratio(row, |token, _, _| {
                let distance = token.log_prob - token.reference;
                Term::policy_gradient(1.0, token).plus_square(self.tau / 2.0, distance)
            }),
            WeightLevel::Sequence => {
                row.advantage()?;
                terms.each_ratio(row, |token, _, _| Term::policy_gradient(1.0, token));
                let distance = row.sum(|token| token.log_prob - token.reference);
                terms.whole(Term::default().plus_square(self.tau / 2.0, distance));
            }
        }
        Ok(())
    }
}
