//! Regression of a token-level value function to its targets, with or without PPO's clipping.
//!
//! The same loss as [`objective::value_loss`](crate::learner::objective::value_loss) of the control workload, for
//! rows of tokens in micro-batches: any aggregation, plain slices, the gradient in closed form.

use super::{Denominators, Shape, TokenLossError};
use crate::learner::Real;

/// Keeps the value function near what it said when the batch was collected.
#[derive(Debug, Clone, Copy)]
pub struct TokenValueClip<'a, F> {
    /// Values at collection, one entry a token.
    pub old_values: &'a [F],
    /// How far a value may move from its old one before the gradient stops.
    pub range: f64,
}

/// A value loss with its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenValueLoss<F> {
    /// What is minimised: a micro-batch's share of its batch.
    pub loss: f64,
    /// d loss / d V, one entry a token; 0 at tokens that are not learned from.
    pub gradient: Vec<F>,
    /// Loss tokens where the clipped square was strictly the larger, so that no gradient flows; `None` without
    /// clipping.
    pub clipped: Option<usize>,
    /// Loss tokens.
    pub loss_tokens: usize,
}

impl<F> TokenValueLoss<F> {
    /// Share of the loss tokens that were clipped; `None` without clipping or without loss tokens.
    #[must_use]
    pub fn clip_frac(&self) -> Option<f64> {
        let clipped = self.clipped.filter(|_| self.loss_tokens > 0)?;
        Some(clipped as f64 / self.loss_tokens as f64)
    }
}

/// Half the squared error of `values` to `targets`, aggregated with the weights in `denominators`:
///
/// ```text
/// l = (V − R)²/2;   with a clip: max((V − R)², (V_c − R)²)/2,  V_c = V_old + clip(V − V_old, −range, range)
/// ```
///
/// No gradient flows through R or V_old. Source of the clipped form: the reference implementation of Schulman et al.,
/// "Proximal policy optimization algorithms", 2017 (arXiv 1707.06347). All arrays have one entry a token.
///
/// # Errors
/// When lengths do not fit together or the range is not positive.
pub fn token_value_loss<F: Real>(
    shape: &Shape<'_>,
    denominators: &Denominators,
    values: &[F],
    targets: &[F],
    clip: Option<TokenValueClip<'_, F>>,
) -> Result<TokenValueLoss<F>, TokenLossError> {
    shape.validate()?;
    let weights = denominators.weights();
    TokenLossError::check_length("weights of the denominators", weights.len(), shape.rows.len())?;
    TokenLossError::check_length("values", values.len(), shape.tokens())?;
    TokenLossError::check_length("targets", targets.len(), shape.tokens())?;
    if let Some(clip) = clip {
        TokenLossError::check_length("old_values", clip.old_values.len(), shape.tokens())?;
        TokenLossError::check_positive("value_clip", clip.range)?;
    }
    let mut result = TokenValueLoss {
        loss: 0.0,
        gradient: vec![F::zero(); shape.tokens()],
        clipped: clip.map(|_| 0),
        loss_tokens: 0,
    };
    for (row, &weight) in weights.iter().enumerate() {
        for token in shape.loss_tokens(row) {
            let (value, target) = (values[token].widen(), targets[token].widen());
            let error = value - target;
            let bounded = clip.map(|clip| {
                let old = clip.old_values[token].widen();
                old + (value - old).clamp(-clip.range, clip.range) - target
            });
            let larger = bounded.filter(|bounded| bounded.abs() > error.abs());
            result.loss += weight * 0.5 * larger.unwrap_or(error).powi(2);
            result.loss_tokens += 1;
            if larger.is_some() {
                result.clipped = result.clipped.map(|clipped| clipped + 1);
            } else {
                result.gradient[token] = F::narrow(weight * error);
            }
        }
    }
    Ok(result)
}
