//! GSPO: the clipped surrogate of a ratio of whole sequences.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, Row, RowObjective, Term, Terms};
use super::surrogate::Surrogate;
use crate::learner::token::batch::Token;
use crate::learner::token::{Aggregation, Figure, TokenLossError};

/// The clipped surrogate of the geometric mean of a sequence's ratios, s = exp(mean over its loss tokens of
/// log π/μ):
///
/// ```text
/// l = −C(s, A) at each token of the sequence, so that seq_mean is the mean over sequences of −C(s, A)
/// ```
///
/// The gradient flows through s, 1/n to each of its n tokens. Stop-gradient: A, μ. One advantage a sequence; others
/// are refused. Default aggregation: seq_mean. Source: Zheng et al., "Group sequence policy optimization", 2025
/// (arXiv 2507.18071). The ratio and the clip fractions are reported over sequences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GspoConfig {
    /// The ratio may fall to 1 − this before the gradient of negative advantages stops.
    pub clip_low: f64,
    /// The ratio may rise to 1 + this before the gradient of positive advantages stops.
    pub clip_high: f64,
}

impl Default for GspoConfig {
    fn default() -> Self {
        Self { clip_low: 3e-4, clip_high: 4e-4 }
    }
}

impl Objective for GspoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        Surrogate::new(self.clip_low, self.clip_high).validate()
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::SeqMean
    }
}

impl RowObjective for GspoConfig {
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError> {
        let ratio = row.mean(Token::log_ratio).exp();
        let surrogate = Surrogate::new(self.clip_low, self.clip_high);
        terms.diagnostics().record(Figure::RatioMean, ratio);
        let term = surrogate.counted(ratio, row.advantage()?, terms.diagnostics());
        // n tokens with the same loss, each of which moves log s by 1/n: the slope of one is that of the sequence.
        terms.whole(Term { value: term.value * row.tokens.len() as f64, slope: term.slope });
        Ok(())
    }
}
