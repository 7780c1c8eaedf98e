//! Returns without importance correction: discounted, n-step and UPGO.
//!
//! g_t is the discount of step t (zero where terminated), n_t the value of its successor: nothing where terminated,
//! the final observation's where truncated, the bootstrap at t = T−1, else V_{t+1}.

use super::{AdvantageError, Boundaries};
use crate::learner::Real;

/// Discounted rewards to the end of the episode or of the batch, `[T, B]`, with the final observation's value after
/// a truncation and the bootstrap after the last row:
///
/// ```text
/// R_t = reward_t + g_t x,   x = n_t at an end or at T−1, else R_{t+1}
/// ```
///
/// # Errors
/// When the arrays' lengths do not fit together.
pub fn discounted_returns<F: Real>(
    rewards: &[F],
    discounts: &[F],
    boundaries: &Boundaries<'_, F>,
) -> Result<Vec<F>, AdvantageError> {
    let steps = boundaries.check(&[("rewards", rewards.len()), ("discounts", discounts.len())])?;
    let columns = boundaries.columns();
    let mut returns = vec![F::zero(); rewards.len()];
    for index in (0..steps * columns).rev() {
        let next = following(&returns, index, boundaries);
        returns[index] = rewards[index] + boundaries.discount(index, discounts[index]) * next;
    }
    Ok(returns)
}

/// The sum of `n` discounted rewards and the discounted value of what follows them, `[T, B]`. A window ends early at
/// the end of an episode or of the batch:
///
/// ```text
/// R_t = reward_t + g_t (reward_{t+1} + g_{t+1} (… + g_{t+m−1} n_{t+m−1})),   m ≤ n rewards
/// ```
///
/// # Errors
/// When `n` is 0 or the arrays' lengths do not fit together.
pub fn n_step_returns<F: Real>(
    n: usize,
    rewards: &[F],
    discounts: &[F],
    values: &[F],
    boundaries: &Boundaries<'_, F>,
) -> Result<Vec<F>, AdvantageError> {
    if n == 0 {
        return Err(AdvantageError::Setting { name: "n", value: 0.0, expected: "at least 1" });
    }
    let steps = boundaries.check(&[
        ("rewards", rewards.len()),
        ("discounts", discounts.len()),
        ("values", values.len()),
    ])?;
    let columns = boundaries.columns();
    let window = |start: usize| {
        let mut length = 1;
        let mut last = start;
        while length < n && !boundaries.ends(last) && last + columns < steps * columns {
            length += 1;
            last += columns;
        }
        let beyond = following(values, last, boundaries);
        (0..length).map(|offset| start + offset * columns).rev().fold(beyond, |future, index| {
            rewards[index] + boundaries.discount(index, discounts[index]) * future
        })
    };
    Ok((0..steps * columns).map(window).collect())
}

/// Upgoing returns, `[T, B]`: the return follows the taken actions only while they do at least as well as the value
/// function expected.
///
/// ```text
/// U_t = reward_t + g_t x
/// x = n_t at an end or at T−1, else U_{t+1} if reward_{t+1} + g_{t+1} n_{t+1} ≥ V_{t+1}, else V_{t+1}
/// ```
///
/// Source: Vinyals et al., "Grandmaster level in StarCraft II", 2019, supplementary methods.
///
/// # Errors
/// When the arrays' lengths do not fit together.
pub fn upgo_returns<F: Real>(
    rewards: &[F],
    discounts: &[F],
    values: &[F],
    boundaries: &Boundaries<'_, F>,
) -> Result<Vec<F>, AdvantageError> {
    let steps = boundaries.check(&[
        ("rewards", rewards.len()),
        ("discounts", discounts.len()),
        ("values", values.len()),
    ])?;
    let entries = steps * boundaries.columns();
    let mut returns = vec![F::zero(); entries];
    // The larger of U and V where the step did at least as well as expected: what the step before may continue with.
    let mut continuations = vec![F::zero(); entries];
    for index in (0..entries).rev() {
        let discount = boundaries.discount(index, discounts[index]);
        let one_step = rewards[index] + discount * following(values, index, boundaries);
        returns[index] = rewards[index] + discount * following(&continuations, index, boundaries);
        continuations[index] = if one_step >= values[index] { returns[index] } else { values[index] };
    }
    Ok(returns)
}

/// What follows entry `index` when the next row is read from `rows`.
fn following<F: Real>(rows: &[F], index: usize, boundaries: &Boundaries<'_, F>) -> F {
    let columns = boundaries.columns();
    let next_row = rows.get(index + columns).copied();
    boundaries.successor(index, next_row.unwrap_or_else(|| boundaries.bootstrap[index % columns]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Boundaries<'static, f64> = Boundaries {
        terminated: &[false; 3],
        truncated: &[false; 3],
        final_values: &[777.0; 3],
        bootstrap: &[8.0],
    };

    #[test]
    fn a_window_past_the_end_uses_the_bootstrap() {
        let returns = n_step_returns(2, &[1.0; 3], &[0.5; 3], &[10.0, 20.0, 30.0], &RUNNING).unwrap();
        assert_eq!(returns, [1.0 + 0.5 + 0.25 * 30.0, 1.0 + 0.5 + 0.25 * 8.0, 1.0 + 0.5 * 8.0]);
    }

    #[test]
    fn a_window_longer_than_the_batch_is_the_discounted_return() {
        let (rewards, discounts) = ([1.0, 2.0, 3.0], [0.9, 0.8, 0.7]);
        let n_step = n_step_returns(9, &rewards, &discounts, &[777.0; 3], &RUNNING).unwrap();
        assert_eq!(n_step, discounted_returns(&rewards, &discounts, &RUNNING).unwrap());
    }

    #[test]
    fn a_window_of_no_rewards_is_refused() {
        let refused = n_step_returns(0, &[1.0; 3], &[0.5; 3], &[0.0; 3], &RUNNING);
        assert!(matches!(refused, Err(AdvantageError::Setting { name: "n", .. })));
    }

    #[test]
    fn upgo_stops_following_actions_that_disappoint() {
        // Step 1 yields 0 + 1·V_2 = 0, below V_1 = 5: step 0 continues with V_1. Step 2 yields 8 ≥ V_2.
        let returns = upgo_returns(&[0.0; 3], &[1.0; 3], &[0.0, 5.0, 0.0], &RUNNING).unwrap();
        assert_eq!(returns, [5.0, 8.0, 8.0]);
    }
}
