//! SAPO: a soft gate in place of the clip.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::{Aggregation, TokenLossError};

/// The ratio r = π/μ through a sigmoid, whose slope at r = 1 is that of the ratio itself:
///
/// ```text
/// l = −(4/t) σ(t (r − 1)) A,   t = tau_pos where A > 0, else tau_neg
/// ```
///
/// Stop-gradient: A, μ. Default aggregation: seq_mean. Source: Gao et al., "Soft adaptive policy optimization", 2025
/// (arXiv 2511.20347).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SapoConfig {
    /// Steepness with positive advantages.
    pub tau_pos: f64,
    /// Steepness with other advantages.
    pub tau_neg: f64,
}

impl Default for SapoConfig {
    fn default() -> Self {
        Self { tau_pos: 1.0, tau_neg: 1.05 }
    }
}

impl SapoConfig {
    fn term(&self, ratio: f64, advantage: f64) -> Term {
        if advantage == 0.0 {
            return Term::default();
        }
        let steepness = if advantage > 0.0 { self.tau_pos } else { self.tau_neg };
        // exp underflows to 0 before the ratio overflows, so that a ratio without bound has no slope.
        let decay = (-steepness * (ratio - 1.0)).exp();
        let gate = (1.0 + decay).recip();
        let slope = if gate < 1.0 { 4.0 * gate * (1.0 - gate) * ratio } else { 0.0 };
        Term { value: -4.0 / steepness * gate * advantage, slope: -slope * advantage }
    }
}

impl Objective for SapoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_positive("tau_pos", self.tau_pos)?;
        TokenLossError::check_positive("tau_neg", self.tau_neg)
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqMean
    }
}

impl RowObjective for SapoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, _| self.term(ratio, token.advantage));
        Ok(())
    }
}
