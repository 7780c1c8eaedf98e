//! Divergence from a reference policy, as a term of any objective's loss or as part of the reward.
//!
//! With d = log π_ref − log π at a token, the estimators of KL(π‖π_ref), whose samples come from π, are
//!
//! ```text
//! k1 = −d        k2 = d²/2        k3 = exp(d) − 1 − d
//! ```
//!
//! In the loss, coefficient · k is added to each token's loss, with the gradient through log π; with
//! `bias_corrected` it is r k, r = π/μ, with the gradient through both factors, which makes the gradient of k3 that
//! of the divergence when tokens come from μ. In the reward, −coefficient · k of the sampling policy is added to each
//! token's reward, without any gradient. Source: Schulman, "Approximating KL divergence", 2020; Shao et al.,
//! "DeepSeekMath", 2024 (arXiv 2402.03300) for k3 in the loss; DeepSeek-AI, "DeepSeek-V3.2", 2025 (arXiv 2512.02556)
//! for the correction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::Token;
use super::objective::Term;
use super::{Shape, TokenLossError};
use crate::learner::Real;

/// Which estimator of the divergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// −d: unbiased as a value; in a loss its gradient is that of log π alone.
    K1,
    /// d²/2: biased as a value, but its gradient is that of the divergence on policy.
    K2,
    /// exp(d) − 1 − d: unbiased and never negative.
    #[default]
    K3,
}

impl KlEstimator {
    /// The estimate for d = log π_ref − log π.
    #[must_use]
    pub fn estimate(self, d: f64) -> f64 {
        match self {
            Self::K1 => -d,
            Self::K2 => d * d / 2.0,
            Self::K3 => d.exp_m1() - d,
        }
    }

    /// Its derivative with respect to log π.
    fn slope(self, d: f64) -> f64 {
        match self {
            Self::K1 => 1.0,
            Self::K2 => -d,
            Self::K3 => -d.exp_m1(),
        }
    }
}

/// The reference KL term of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReferenceKlConfig {
    /// Its weight, per nat; 0: no such term.
    pub coefficient: f64,
    /// The estimator.
    pub estimator: KlEstimator,
    /// Weigh each token by π/μ, gradient through both factors.
    pub bias_corrected: bool,
}

impl Default for ReferenceKlConfig {
    fn default() -> Self {
        Self { coefficient: 0.0, estimator: KlEstimator::K3, bias_corrected: false }
    }
}

impl ReferenceKlConfig {
    /// Refuses a negative coefficient.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_not_negative("reference_kl.coefficient", self.coefficient)
    }

    /// Whether there is such a term.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.coefficient > 0.0
    }

    /// The estimate at a token and its slope, before the coefficient.
    pub(super) fn term(&self, token: &Token) -> Term {
        let d = token.reference - token.log_prob;
        let (value, slope) = (self.estimator.estimate(d), self.estimator.slope(d));
        if self.bias_corrected {
            let ratio = token.ratio();
            Term { value: ratio * value, slope: ratio * (value + slope) }
        } else {
            Term { value, slope }
        }
    }
}

/// Mean over the loss tokens of the estimate of the divergence of the policy of `log_probs` from the reference, nats a
/// token; `None` without a loss token. Both arrays have one entry a token; what stands at others is not read.
///
/// # Errors
/// When a length does not fit.
pub fn mean_divergence<F: Real>(
    estimator: KlEstimator,
    shape: &Shape<'_>,
    log_probs: &[F],
    reference: &[F],
) -> Result<Option<f64>, TokenLossError> {
    shape.validate()?;
    TokenLossError::check_length("log_probs", log_probs.len(), shape.tokens())?;
    TokenLossError::check_length("reference", reference.len(), shape.tokens())?;
    let (mut sum, mut tokens) = (0.0, 0_usize);
    for token in (0..shape.rows.len()).flat_map(|row| shape.loss_tokens(row)) {
        sum += estimator.estimate(reference[token].widen() - log_probs[token].widen());
        tokens += 1;
    }
    Ok((tokens > 0).then(|| sum / tokens as f64))
}

/// The reward −coefficient · k that each loss token gets for leaving the reference policy, with k of the policy that
/// sampled it (`log_probs`, usually those recorded while sampling); 0 at tokens that are not loss tokens, which are
/// not read. Both arrays have one entry a token.
///
/// # Errors
/// When a length does not fit or the coefficient is negative.
pub fn reference_kl_rewards<F: Real>(
    coefficient: f64,
    estimator: KlEstimator,
    shape: &Shape<'_>,
    log_probs: &[F],
    reference: &[F],
) -> Result<Vec<F>, TokenLossError> {
    TokenLossError::check_not_negative("coefficient of the reference KL reward", coefficient)?;
    shape.validate()?;
    TokenLossError::check_length("log_probs", log_probs.len(), shape.tokens())?;
    TokenLossError::check_length("reference", reference.len(), shape.tokens())?;
    let mut rewards = vec![F::zero(); shape.tokens()];
    for token in (0..shape.rows.len()).flat_map(|row| shape.loss_tokens(row)) {
        let d = reference[token].widen() - log_probs[token].widen();
        rewards[token] = F::narrow(-coefficient * estimator.estimate(d));
    }
    Ok(rewards)
}
