//! V-trace: off-policy corrected value targets and policy-gradient advantages.
//!
//! Source: Espeholt et al., "IMPALA", 2018 (arXiv 1802.01561), equation 1 and section 4.1, in a form that also
//! bootstraps from the final observation of an episode cut off inside the batch. With the ratio
//! r_t = π(a_t)/μ(a_t), g_t the discount (zero where terminated), e_t = 1 where an episode ends at t, and n_t the
//! value of the successor (the final observation's where truncated, the bootstrap at t = T−1):
//!
//! ```text
//! rho_t = min(rho_bar, r_t)        c_t = lambda · min(c_bar, r_t)
//! delta_t = rho_t (reward_t + g_t n_t − V_t)
//! vs_t = V_t + delta_t + g_t c_t (1 − e_t)(vs_{t+1} − V_{t+1})            (vs_T = V_T: no trace from outside)
//! q_t = n_t if e_t or t = T−1, else vs_{t+1}
//! pg_advantage_t = min(pg_rho_bar, r_t)(reward_t + g_t q_t − V_t)
//! ```
//!
//! Both results are constants for the objective: no gradient flows through them.

#![expect(
    clippy::inline_always,
    reason = "vector widths reach only what is inlined into the dispatched loop"
)]

use pulp::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdvantageError, Boundaries};
use crate::learner::Real;

/// Settings of V-trace. A bound of `inf` does not clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VtraceConfig {
    /// Bound of the ratio in the temporal difference; decides which policy's value is learned. Not below `c_bar`.
    pub rho_bar: f64,
    /// Bound of the ratio in the trace; decides only how fast targets propagate.
    pub c_bar: f64,
    /// Bound of the ratio in front of the policy gradient's advantage.
    pub pg_rho_bar: f64,
    /// Shortens the trace, as in TD(lambda): 1 is the paper's form, 0 looks one step ahead.
    pub lambda: f64,
}

impl Default for VtraceConfig {
    fn default() -> Self {
        Self { rho_bar: 1.0, c_bar: 1.0, pg_rho_bar: 1.0, lambda: 1.0 }
    }
}

impl VtraceConfig {
    /// Refuses bounds that are not positive, a `rho_bar` below `c_bar` and a `lambda` outside [0, 1].
    pub fn validate(&self) -> Result<(), AdvantageError> {
        let bounds = [("rho_bar", self.rho_bar), ("c_bar", self.c_bar), ("pg_rho_bar", self.pg_rho_bar)];
        for (name, value) in bounds {
            if value.is_nan() || value <= 0.0 {
                return Err(AdvantageError::Setting { name, value, expected: "positive (inf: no bound)" });
            }
        }
        if self.rho_bar < self.c_bar {
            return Err(AdvantageError::Bounds { rho_bar: self.rho_bar, c_bar: self.c_bar });
        }
        AdvantageError::check_fraction("lambda", self.lambda)
    }

    /// Where log-ratios are cut before `exp`, so that none overflows: above every bound, by a factor e, so that the
    /// bounds themselves still clip exactly; without bounds, half of the type's range.
    fn log_ratio_limit<F: Real>(&self) -> F {
        let highest = self.rho_bar.max(self.c_bar).max(self.pg_rho_bar);
        let half_range = F::max_value().ln() / F::narrow(2.0);
        let limit = F::narrow(highest.ln() + 1.0);
        if limit < half_range { limit } else { half_range }
    }
}

/// What V-trace reads, apart from the boundaries. Every array is `[T, B]`.
#[derive(Debug, Clone, Copy)]
pub struct VtraceInput<'a, F> {
    /// log π(a)/μ(a), nats; π is the policy being learned, μ the one that acted.
    pub log_rhos: &'a [F],
    /// Rewards.
    pub rewards: &'a [F],
    /// The learner's value of each observation.
    pub values: &'a [F],
    /// Discount of each step, before terminations.
    pub discounts: &'a [F],
}

/// What V-trace gives. Every array is `[T, B]`.
#[derive(Debug, Clone, PartialEq)]
pub struct VtraceTargets<F> {
    /// Targets of the value function.
    pub vs: Vec<F>,
    /// Advantages of the policy gradient, with their clipped ratio already in front.
    pub pg_advantages: Vec<F>,
}

/// Computes V-trace targets and advantages; see the module's documentation for the formula.
///
/// # Errors
/// When the settings contradict each other or the arrays' lengths do not fit together.
pub fn vtrace<F: Real>(
    config: &VtraceConfig,
    input: &VtraceInput<'_, F>,
    boundaries: &Boundaries<'_, F>,
) -> Result<VtraceTargets<F>, AdvantageError> {
    config.validate()?;
    let steps = boundaries.check(&[
        ("log_rhos", input.log_rhos.len()),
        ("rewards", input.rewards.len()),
        ("values", input.values.len()),
        ("discounts", input.discounts.len()),
    ])?;
    let limit = config.log_ratio_limit();
    // The ratios live in the array that becomes the advantages: each is read just before it is overwritten.
    let ratios = input.log_rhos.iter().map(|&x| at_most(x, limit).exp()).collect();
    let mut targets = VtraceTargets { vs: vec![F::zero(); input.values.len()], pg_advantages: ratios };
    Arch::new().dispatch(
        #[inline(always)]
        || scan(config, steps, input, boundaries, &mut targets),
    );
    Ok(targets)
}

/// The backward recursion over time, all columns of a row at once.
#[inline(always)]
fn scan<F: Real>(
    config: &VtraceConfig,
    steps: usize,
    input: &VtraceInput<'_, F>,
    boundaries: &Boundaries<'_, F>,
    targets: &mut VtraceTargets<F>,
) {
    let columns = boundaries.columns();
    let (rho_bar, c_bar) = (F::narrow(config.rho_bar), F::narrow(config.c_bar));
    let (pg_rho_bar, lambda) = (F::narrow(config.pg_rho_bar), F::narrow(config.lambda));
    // vs_{t+1} − V_{t+1}, kept apart because the difference of the stored values would lose digits.
    let mut corrections = vec![F::zero(); columns];
    for step in (0..steps).rev() {
        let row = step * columns..(step + 1) * columns;
        let (head, tail) = targets.vs.split_at_mut(row.end);
        let vs = &mut head[row.clone()];
        let pg_advantages = &mut targets.pg_advantages[row.clone()];
        let (next_values, next_vs): (&[F], &[F]) = if step + 1 == steps {
            (boundaries.bootstrap, boundaries.bootstrap)
        } else {
            (&input.values[row.end..row.end + columns], &tail[..columns])
        };
        let (rewards, values) = (&input.rewards[row.clone()], &input.values[row.clone()]);
        let discounts = &input.discounts[row.clone()];
        let ends = Boundaries {
            terminated: &boundaries.terminated[row.clone()],
            truncated: &boundaries.truncated[row.clone()],
            final_values: &boundaries.final_values[row],
            bootstrap: boundaries.bootstrap,
        };
        for column in 0..columns {
            let ratio = pg_advantages[column];
            let discount = ends.discount(column, discounts[column]);
            let (reward, value) = (rewards[column], values[column]);
            let successor = ends.successor(column, next_values[column]);
            let carried = if ends.ends(column) { F::zero() } else { corrections[column] };
            let delta = at_most(ratio, rho_bar) * (reward + discount * successor - value);
            let correction = delta + discount * lambda * at_most(ratio, c_bar) * carried;
            let successor_target = if ends.ends(column) { successor } else { next_vs[column] };
            corrections[column] = correction;
            vs[column] = value + correction;
            pg_advantages[column] =
                at_most(ratio, pg_rho_bar) * (reward + discount * successor_target - value);
        }
    }
}

/// The smaller of both, except that NaN stays NaN (`Float::min` would hide it behind the bound).
#[inline(always)]
fn at_most<F: Real>(value: F, bound: F) -> F {
    if value > bound { bound } else { value }
}

#[cfg(test)]
#[path = "vtrace_tests.rs"]
mod tests;
