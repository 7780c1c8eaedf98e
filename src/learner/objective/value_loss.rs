//! Regression of the value function to its targets, with or without PPO's clipping.

use candle_core::{Tensor, WithDType};

use super::loss::{Selection, Term};
use super::{ObjectiveError, Reduction};
use crate::learner::Real;

/// Keeps the value function near what it said when the batch was collected.
#[derive(Debug, Clone, Copy)]
pub struct ValueClip<'a, F> {
    /// Values at collection, one for each entry.
    pub old_values: &'a [F],
    /// How far a value may move from its old one before the gradient stops.
    pub range: F,
}

/// A value loss and how often its clipping acted.
#[derive(Debug)]
pub struct ValueLoss {
    /// Scalar, to be minimised.
    pub loss: Tensor,
    /// Fraction of the entries that count where the clipped error was strictly the larger, so that no gradient
    /// flows; `None` without clipping or without entries.
    pub clipped: Option<f64>,
}

/// Half the squared error of `values` (any shape) to `targets`:
///
/// ```text
/// loss = S[ (V − R)² / 2 ],                       without clipping
/// loss = S[ max((V − R)², (V_c − R)²) / 2 ],      V_c = V_old + clip(V − V_old, −range, range)
/// ```
///
/// Source of the clipped form: the reference implementation of Schulman et al., "Proximal policy optimization
/// algorithms", 2017 (arXiv 1707.06347). No gradient flows through R or V_old. S sums over the entries where `mask`
/// is set (all without a mask); with [`Reduction::Mean`] it is divided by their number, at least 1.
///
/// # Errors
/// When numbers of entries differ or a tensor operation fails.
pub fn value_loss<F: Real + WithDType>(
    reduction: Reduction,
    values: &Tensor,
    targets: &[F],
    clip: Option<ValueClip<'_, F>>,
    mask: Option<&[bool]>,
) -> Result<ValueLoss, ObjectiveError> {
    let current = values.flatten_all()?.to_vec1::<F>()?;
    ObjectiveError::check_length("targets", targets.len(), current.len())?;
    let selection = Selection::new(mask, current.len())?;
    let (term, clipped) = match clip {
        None => (squared_error(selection, &current, targets), None),
        Some(clip) => {
            let (term, clipped) = clipped_squared_error(selection, &current, targets, clip)?;
            (term, (selection.count() > 0).then(|| clipped as f64 / selection.count() as f64))
        }
    };
    Ok(ValueLoss { loss: term.into_tensor(values, selection.scale(reduction))?, clipped })
}

/// Σ (V − R)² / 2 and its derivatives V − R.
pub(super) fn squared_error<F: Real>(selection: Selection<'_>, values: &[F], targets: &[F]) -> Term<F> {
    Term::over(selection, |index| {
        let error = values[index] - targets[index];
        (0.5 * error.widen().powi(2), error)
    })
}

/// The clipped form with its derivatives, and in how many entries the clipped error was the larger.
pub(super) fn clipped_squared_error<F: Real>(
    selection: Selection<'_>,
    values: &[F],
    targets: &[F],
    clip: ValueClip<'_, F>,
) -> Result<(Term<F>, usize), ObjectiveError> {
    ObjectiveError::check_length("old_values", clip.old_values.len(), values.len())?;
    if clip.range.is_nan() || clip.range <= F::zero() {
        let (name, value) = ("value_clip", clip.range.widen());
        return Err(ObjectiveError::Setting { name, value, expected: "positive" });
    }
    let mut clipped = 0;
    let term = Term::over(selection, |index| {
        let (value, old) = (values[index], clip.old_values[index]);
        let error = value - targets[index];
        let moved = value - old;
        let bounded = if moved > clip.range {
            old + clip.range
        } else if moved < -clip.range {
            old - clip.range
        } else {
            value
        };
        let bounded_error = bounded - targets[index];
        if bounded_error.abs() > error.abs() {
            clipped += 1;
            (0.5 * bounded_error.widen().powi(2), F::zero())
        } else {
            (0.5 * error.widen().powi(2), error)
        }
    });
    Ok((term, clipped))
}
