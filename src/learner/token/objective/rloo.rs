//! RLOO: REINFORCE on whole sequences, with an optional truncated ratio of the sequence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::batch::Token;
use crate::learner::token::{Aggregation, Figure, TokenLossError};

/// The policy gradient of whole sequences, whose advantages are normally leave-one-out:
///
/// ```text
/// l = −sg[W] A log π,   W = 1, or min(exp Σ_t log π/μ, seq_ratio_cap)
/// ```
///
/// Stop-gradient: W, A. Default aggregation: seq_sum_mean. Source: Ahmadian et al., "Back to basics", 2024
/// (arXiv 2402.14740). The share of clamped weights counts loss tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RlooConfig {
    /// Largest ratio of a sequence; absent: sequences are not weighed.
    pub seq_ratio_cap: Option<f64>,
}

impl Objective for RlooConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        let cap = self.seq_ratio_cap.unwrap_or(1.0);
        TokenLossError::check("seq_ratio_cap", cap, cap >= 1.0, "at least 1, or absent")
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqSumMean
    }
}

impl RowObjective for RlooConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let weight = self.seq_ratio_cap.map(|cap| {
            let ratio = row.sum(Token::log_ratio).exp();
            (ratio.min(cap), ratio > cap)
        });
        terms.each_ratio(row, |token, _, diagnostics| {
            if let Some((_, clamped)) = weight {
                diagnostics.flag(Figure::WeightClampedFrac, clamped);
            }
            Term::policy_gradient(weight.map_or(1.0, |(weight, _)| weight), token)
        });
        Ok(())
    }
}
