//! Best of n: imitation of the best answer to each prompt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowChoice, RowObjective, Term, Terms};
use crate::learner::token::{Aggregation, Needs, TokenLossError};

/// The negative log-likelihood of the row with the largest reward of each prompt (the first of several):
///
/// ```text
/// l = −log π at tokens of chosen rows; other rows count nowhere
/// ```
///
/// Stop-gradient: the choice. Default aggregation: seq_sum_mean, the mean over prompts of −Σ_t log π; denominators
/// count chosen rows only. Source: Noukhovitch et al., "Asynchronous RLHF", 2024 (arXiv 2410.18252).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BestOfNConfig {}

impl Objective for BestOfNConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { rewards: true, ..Needs::default() }
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqSumMean
    }
}

impl RowObjective for BestOfNConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, _, _| Term { value: -token.log_prob, slope: -1.0 });
        Ok(())
    }

    fn choice(&self) -> RowChoice {
        RowChoice::BestOfPrompt
    }
}
