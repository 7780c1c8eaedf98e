//! REINFORCE: the policy gradient without any correction for the policy lag.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::TokenLossError;

/// REINFORCE:
///
/// ```text
/// l = −A log π
/// ```
///
/// Stop-gradient: A. Default aggregation: token_mean. Source: Williams, "Simple statistical gradient-following
/// algorithms for connectionist reinforcement learning", 1992.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReinforceConfig {}

impl Objective for ReinforceConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Ok(())
    }
}

impl RowObjective for ReinforceConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, _, _| Term::policy_gradient(1.0, token));
        Ok(())
    }
}
