//! Kimi K3: a ratio that loses its gradient outside its bounds, and a square that pulls it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::token::{Aggregation, TokenLossError};

/// The value of the ratio's term outside its bounds; the gradient is 0 either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// That of the nearer bound.
    #[default]
    Clamp,
    /// 0.
    Zero,
}

/// The importance-weighted advantage inside bounds of r = π/μ, and a square on the log-ratio of all tokens:
///
/// ```text
/// l = −clip(r, alpha, beta) A + tau (log r)²;   d/d log π = −r A 1[alpha ≤ r ≤ beta] + 2 tau log r
/// ```
///
/// The clip masks the gradient whatever the sign of A. Stop-gradient: A, μ. Default aggregation: prompt_mean. Source:
/// Moonshot AI, "Kimi K3", 2026 (arXiv 2607.24653), whose values of alpha, beta and tau are not published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct K3Config {
    /// Smallest ratio with a gradient.
    pub alpha: f64,
    /// Largest ratio with a gradient.
    pub beta: f64,
    /// Strength of the square.
    pub tau: f64,
    /// The value outside the bounds.
    pub outside: Outside,
}

impl Default for K3Config {
    fn default() -> Self {
        Self { alpha: 0.5, beta: 2.0, tau: 0.05, outside: Outside::Clamp }
    }
}

impl K3Config {
    /// Whether the gradient passes at a ratio.
    #[must_use]
    pub fn passes(&self, ratio: f64) -> bool {
        (self.alpha..=self.beta).contains(&ratio)
    }
}

impl Objective for K3Config {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_bounds(["alpha", "beta"], [self.alpha, self.beta])?;
        TokenLossError::check_not_negative("tau", self.tau)
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::PromptMean
    }
}

impl RowObjective for K3Config {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            diagnostics.masked(ratio < self.alpha, ratio > self.beta);
            let loss = |ratio: f64| if token.advantage == 0.0 { 0.0 } else { -ratio * token.advantage };
            let term = if self.passes(ratio) {
                Term { value: loss(ratio), slope: loss(ratio) }
            } else if self.outside == Outside::Clamp {
                Term { value: loss(ratio.clamp(self.alpha, self.beta)), slope: 0.0 }
            } else {
                Term::default()
            };
            term.plus_square(self.tau, token.log_ratio())
        });
        Ok(())
    }
}
