//! The K2.5 type: a mask on how far a token's probability moved, and a square on its log-ratio.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::TokenLossError;

/// The importance-weighted advantage of the tokens whose probability has not yet moved far where it is pushed, with
/// r = π/μ:
///
/// ```text
/// l = −keep r A + tau (log r)²
/// keep = 0 where A > 0 and π − μ > p_delta, or A < 0 and π − μ < −p_delta; else 1
/// ```
///
/// Stop-gradient: keep, A, μ. Default aggregation: token_mean; removed tokens stay in the denominators. Source: Kimi
/// team, "Kimi K2.5", 2026 (arXiv 2602.02276), in the form of an open implementation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct K25Config {
    /// How far a probability may move.
    pub p_delta: f64,
    /// Strength of the square.
    pub tau: f64,
}

impl Default for K25Config {
    fn default() -> Self {
        Self { p_delta: 0.2, tau: 1e-3 }
    }
}

impl Objective for K25Config {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_not_negative("p_delta", self.p_delta)?;
        TokenLossError::check_not_negative("tau", self.tau)
    }
}

impl RowObjective for K25Config {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let moved = token.log_prob.exp() - token.behaviour.exp();
            let fallen = token.advantage < 0.0 && moved < -self.p_delta;
            let risen = token.advantage > 0.0 && moved > self.p_delta;
            diagnostics.masked(fallen, risen);
            let kept = !fallen && !risen && token.advantage != 0.0;
            let loss = if kept { -ratio * token.advantage } else { 0.0 };
            Term { value: loss, slope: loss }.plus_square(self.tau, token.log_ratio())
        });
        Ok(())
    }
}
