//! On-policy distillation: the teacher's log-probability of each token the student sampled as its reward.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use crate::learner::Real;
use crate::learner::token::batch::Token;
use crate::learner::token::{Aggregation, Figure, Needs, TokenBatch, TokenLossError};

/// Distillation on the student's own tokens, with r = π/μ:
///
/// ```text
/// a = clip(sg[log π_teacher − log π], −r_max, r_max) + alpha A
/// w = sg[r] where low ≤ r ≤ high, else 0;   1 without importance
/// l = −w a log π
/// ```
///
/// Stop-gradient: a, w. A teacher equal to the student gives no gradient. Default aggregation: seq_mean; removed tokens
/// stay in the denominators. Sources: Xiaomi, "MiMo-V2-Flash", 2026 (arXiv 2601.02780); Agarwal et al., "On-policy
/// distillation of language models", 2023 (arXiv 2306.13649).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MopdConfig {
    /// Smallest ratio that is kept.
    pub low: f64,
    /// Largest ratio that is kept.
    pub high: f64,
    /// Largest size of the teacher's term, nats; absent: no bound.
    pub r_max: Option<f64>,
    /// Weight of the outcome's advantage, added after the clip; 0: none is read.
    pub alpha: f64,
    /// Whether tokens are weighed by the ratio.
    pub importance: bool,
}

impl Default for MopdConfig {
    fn default() -> Self {
        Self { low: 0.2, high: 5.0, r_max: None, alpha: 0.0, importance: true }
    }
}

impl MopdConfig {
    fn advantage(&self, token: &Token) -> f64 {
        let bound = self.r_max.unwrap_or(f64::INFINITY);
        let reward = (token.teacher - token.log_prob).clamp(-bound, bound);
        if self.alpha == 0.0 { reward } else { reward + self.alpha * token.advantage }
    }

    /// The advantage a of each token of a batch; 0 at tokens that are not loss tokens.
    ///
    /// # Errors
    /// When a setting is out of range, lengths do not fit together, or an array that is needed is absent.
    pub fn token_advantages<F: Real>(&self, batch: &TokenBatch<'_, F>) -> Result<Vec<F>, TokenLossError> {
        self.validate()?;
        batch.validate()?;
        batch.provide("mopd", self.needs())?;
        let mut advantages = vec![F::zero(); batch.shape.tokens()];
        for index in (0..batch.shape.rows.len()).flat_map(|row| batch.shape.loss_tokens(row)) {
            advantages[index] = F::narrow(self.advantage(&batch.token(index)));
        }
        Ok(advantages)
    }
}

impl Objective for MopdConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_bounds(["low", "high"], [self.low, self.high])?;
        let bound = self.r_max.unwrap_or(1.0);
        TokenLossError::check("r_max", bound, bound > 0.0, "positive, or absent")?;
        TokenLossError::check_not_negative("alpha", self.alpha)
    }

    fn needs(&self) -> Needs {
        Needs { teacher: true, advantages: self.alpha != 0.0, ..Needs::default() }
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqMean
    }
}

impl RowObjective for MopdConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        terms.each_ratio(row, |token, ratio, diagnostics| {
            let (low, high) = (ratio < self.low, ratio > self.high);
            let gap = token.log_prob - token.teacher;
            diagnostics.masked(self.importance && low, self.importance && high);
            diagnostics.record(Figure::ReverseKlK1, gap);
            diagnostics.flag(Figure::RewardClipFrac, self.r_max.is_some_and(|bound| gap.abs() > bound));
            let weight = match self.importance {
                false => 1.0,
                true if low || high => 0.0,
                true => ratio,
            };
            Term::policy_gradient(weight, &Token { advantage: self.advantage(token), ..*token })
        });
        Ok(())
    }
}
