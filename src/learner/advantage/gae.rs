//! Generalised advantage estimation.
//!
//! Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2016
//! (arXiv 1506.02438), equation 16, with episodes that end inside the batch. With n_t the value of the successor
//! (0 where terminated, the final observation's where truncated, the bootstrap at t = T−1) and e_t = 1 where an
//! episode ends:
//!
//! ```text
//! delta_t = reward_t + gamma n_t − V_t
//! A_t = delta_t + gamma lambda (1 − e_t) A_{t+1},   A_T = 0
//! return_t = A_t + V_t
//! ```

use super::{AdvantageError, Boundaries};
use crate::learner::Real;

/// What [`gae`] gives. Both arrays are `[T, B]`.
#[derive(Debug, Clone, PartialEq)]
pub struct GaeTargets<F> {
    /// Advantages, not normalised.
    pub advantages: Vec<F>,
    /// Targets of the value function.
    pub returns: Vec<F>,
}

/// Computes advantages and returns from `rewards` and `values`, both `[T, B]`; the module's documentation has the
/// formula.
///
/// # Errors
/// When `gamma` or `lambda` is outside [0, 1], or the arrays' lengths do not fit together.
pub fn gae<F: Real>(
    gamma: F,
    lambda: F,
    rewards: &[F],
    values: &[F],
    boundaries: &Boundaries<'_, F>,
) -> Result<GaeTargets<F>, AdvantageError> {
    AdvantageError::check_fraction("gamma", gamma.widen())?;
    AdvantageError::check_fraction("lambda", lambda.widen())?;
    let steps = boundaries.check(&[("rewards", rewards.len()), ("values", values.len())])?;
    let columns = boundaries.columns();
    let mut targets =
        GaeTargets { advantages: vec![F::zero(); values.len()], returns: vec![F::zero(); values.len()] };
    let mut carried = vec![F::zero(); columns];
    for step in (0..steps).rev() {
        for (column, carry) in carried.iter_mut().enumerate() {
            let index = step * columns + column;
            let next_value =
                if step + 1 == steps { boundaries.bootstrap[column] } else { values[index + columns] };
            let following = if boundaries.ends(index) { F::zero() } else { *carry };
            // A successor of value 0 already stands for the missing discount after a termination.
            let delta = rewards[index] + gamma * boundaries.successor(index, next_value) - values[index];
            *carry = delta + gamma * lambda * following;
            targets.advantages[index] = *carry;
            targets.returns[index] = *carry + values[index];
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps of one column, the first of which is truncated.
    fn truncated_then_new_episode(lambda: f64) -> GaeTargets<f64> {
        let boundaries = Boundaries {
            terminated: &[false, false],
            truncated: &[true, false],
            final_values: &[1.0, f64::NAN],
            bootstrap: &[100.0],
        };
        gae(1.0, lambda, &[0.0, 0.0], &[1.0, 100.0], &boundaries).unwrap()
    }

    #[test]
    fn nothing_crosses_from_a_new_episode_into_the_truncated_one() {
        assert_eq!(truncated_then_new_episode(1.0).advantages, [0.0, 0.0]);
    }

    #[test]
    fn a_lambda_outside_its_range_is_refused() {
        let boundaries =
            Boundaries { terminated: &[false], truncated: &[false], final_values: &[0.0], bootstrap: &[0.0] };
        let refused = gae(0.9, 1.5, &[0.0], &[0.0], &boundaries);
        assert!(matches!(refused, Err(AdvantageError::Setting { name: "lambda", .. })));
    }
}
