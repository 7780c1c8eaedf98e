//! The shape that all objectives share: policy loss + value_coef · baseline loss − entropy_coef · entropy.

use candle_core::{Tensor, WithDType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::differentiable::scalar_with_gradient;
use super::{Diagnostics, Evaluation, ObjectiveError};
use crate::learner::Real;

/// How a loss is summed over the entries of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// The sum over entries: the step grows with the batch.
    #[default]
    Sum,
    /// The sum divided by the number of entries that are not masked (at least 1).
    Mean,
}

/// Weights of the parts of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Weight of the baseline loss, which is half a squared error itself.
    pub value_coef: f64,
    /// Weight of the entropy bonus, per nat.
    pub entropy_coef: f64,
    /// How each part is summed over the batch.
    pub reduction: Reduction,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { value_coef: 0.5, entropy_coef: 2.5e-4, reduction: Reduction::Sum }
    }
}

/// A loss and the figures that belong to it.
#[derive(Debug)]
pub struct Loss {
    /// Scalar, to be minimised: call `backward` on it.
    pub total: Tensor,
    /// What was minimised, part by part, and how the batch looked.
    pub diagnostics: Diagnostics,
}

/// Which entries count.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    mask: Option<&'a [bool]>,
    entries: usize,
    selected: usize,
}

impl<'a> Selection<'a> {
    pub(super) fn new(mask: Option<&'a [bool]>, entries: usize) -> Result<Self, ObjectiveError> {
        if let Some(mask) = mask {
            ObjectiveError::check_length("mask", mask.len(), entries)?;
        }
        let selected = mask.map_or(entries, |mask| mask.iter().filter(|&&selected| selected).count());
        Ok(Self { mask, entries, selected })
    }

    /// Number of entries that count.
    pub(super) fn count(&self) -> usize {
        self.selected
    }

    /// The entries that count, in order.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> + use<'a> {
        let mask = self.mask;
        (0..self.entries).filter(move |&index| mask.is_none_or(|mask| mask[index]))
    }

    /// What the sums over entries are multiplied by.
    pub(super) fn scale(&self, reduction: Reduction) -> f64 {
        match reduction {
            Reduction::Sum => 1.0,
            Reduction::Mean => 1.0 / self.selected.max(1) as f64,
        }
    }
}

/// A part of a loss: its sum over the selected entries, and that sum's derivative for every entry.
pub(super) struct Term<F> {
    pub(super) sum: f64,
    pub(super) derivatives: Vec<F>,
}

impl<F: Real> Term<F> {
    /// Sums `term(index) = (summand, derivative)` over the selected entries.
    pub(super) fn over(selection: Selection<'_>, mut term: impl FnMut(usize) -> (f64, F)) -> Self {
        let mut result = Self { sum: 0.0, derivatives: vec![F::zero(); selection.entries] };
        for index in selection.indices() {
            let (summand, derivative) = term(index);
            result.sum += summand;
            result.derivatives[index] = derivative;
        }
        result
    }

    /// The policy-gradient term −Σ A log π(a); no gradient through A.
    pub(super) fn policy_gradient(selection: Selection<'_>, log_probs: &[F], advantages: &[F]) -> Self {
        Self::over(selection, |index| {
            (-advantages[index].widen() * log_probs[index].widen(), -advantages[index])
        })
    }

    /// `scale` · sum as a tensor.
    pub(super) fn into_tensor(mut self, input: &Tensor, scale: f64) -> Result<Tensor, ObjectiveError>
    where
        F: WithDType,
    {
        let factor = F::narrow(scale);
        for derivative in &mut self.derivatives {
            // Not a plain product: a scale of 0 must silence infinite derivatives too.
            *derivative = if factor == F::zero() { F::zero() } else { *derivative * factor };
        }
        Ok(scalar_with_gradient(input, scale * self.sum, self.derivatives)?)
    }
}

/// The three parts of a loss as sums over entries, not yet weighted.
pub(super) struct Parts<F> {
    pub(super) policy: Term<F>,
    pub(super) baseline: Term<F>,
}

/// Adds the entropy bonus to `parts`, weighs them and fills in the losses of `diagnostics`.
pub(super) fn combine<F: Real + WithDType>(
    config: &LossConfig,
    policy: &Evaluation<F>,
    selection: Selection<'_>,
    parts: Parts<F>,
    mut diagnostics: Diagnostics,
) -> Result<Loss, ObjectiveError> {
    let scale = selection.scale(config.reduction);
    let entropy = Term::over(selection, |index| (policy.entropies()[index].widen(), F::one()));
    diagnostics.entropy_mean = entropy.sum / selection.count().max(1) as f64;
    diagnostics.policy_loss = scale * parts.policy.sum;
    diagnostics.baseline_loss = scale * parts.baseline.sum;
    diagnostics.entropy = scale * entropy.sum;
    diagnostics.total_loss = diagnostics.policy_loss + config.value_coef * diagnostics.baseline_loss
        - config.entropy_coef * diagnostics.entropy;
    let total = (parts.policy.into_tensor(&policy.log_prob, scale)?
        + parts.baseline.into_tensor(&policy.value, scale * config.value_coef)?)?;
    let total = (total + entropy.into_tensor(&policy.entropy, -scale * config.entropy_coef)?)?;
    Ok(Loss { total, diagnostics })
}
