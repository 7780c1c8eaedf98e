//! V-trace over the action tokens of one row, skipping the observations between them.
//!
//! With a_1 … a_l the action tokens of the row, the row's terminal reward added to the reward of a_l, and r_i = π/μ of
//! a_i, it is [`vtrace()`] with the action tokens as steps of one column:
//!
//! ```text
//! delta_i = min(rho_bar, r_i) (reward_i + gamma V(a_{i+1}) − V(a_i)),   V(a_{l+1}) = bootstrap
//! v_i = V(a_i) + delta_i + gamma lambda min(c_bar, r_i) (v_{i+1} − V(a_{i+1})),   v_{l+1} = V(a_{l+1})
//! A_i = w_i (reward_i + gamma v_{i+1} − V(a_i)),   w_i = min(pg_rho_bar, r_i), or 1 where not `weighted`
//! ```
//!
//! v_i are the value targets, A_i the advantages; no gradient flows through either. π is the policy at the start of the
//! step. Source: Espeholt et al., "IMPALA", 2018 (arXiv 1802.01561).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::skip_observation_gae::TokenRow;
use super::{AdvantageError, Boundaries, VtraceConfig, VtraceInput, vtrace};
use crate::learner::Real;

/// Settings of [`token_vtrace`]. A bound of `inf` does not clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenVtraceConfig {
    /// Discount of one action token.
    pub gamma: f64,
    /// Bound of the ratio in the temporal difference; decides which policy's value is learned. Not below `c_bar`.
    pub rho_bar: f64,
    /// Bound of the ratio in the trace; decides only how fast targets propagate.
    pub c_bar: f64,
    /// Bound of the ratio in front of the advantage.
    pub pg_rho_bar: f64,
    /// Shortens the trace: 1 is the paper's form, 0 looks one token ahead.
    pub lambda: f64,
    /// Whether advantages carry their bounded ratio in front. An objective that weighs by π/μ itself needs this off.
    pub weighted: bool,
}

impl Default for TokenVtraceConfig {
    fn default() -> Self {
        let VtraceConfig { rho_bar, c_bar, pg_rho_bar, lambda } = VtraceConfig::default();
        Self { gamma: 1.0, rho_bar, c_bar, pg_rho_bar, lambda, weighted: true }
    }
}

impl TokenVtraceConfig {
    /// Refuses what [`VtraceConfig::validate`] refuses, and a `gamma` outside [0, 1].
    ///
    /// # Errors
    /// Names the setting.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        AdvantageError::check_fraction("gamma", self.gamma)?;
        self.bounds().validate()
    }

    fn bounds(&self) -> VtraceConfig {
        let Self { rho_bar, c_bar, pg_rho_bar, lambda, .. } = *self;
        VtraceConfig { rho_bar, c_bar, pg_rho_bar, lambda }
    }
}

/// What [`token_vtrace`] gives; every array has one entry a token, 0 at observations.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVtraceTargets<F> {
    /// Advantages for the policy.
    pub advantages: Vec<F>,
    /// Targets of the value function.
    pub value_targets: Vec<F>,
}

/// Computes the advantages and value targets of one row; the module's documentation has the formula. `log_ratios` are
/// log π/μ (nats), one entry a token; like values and rewards they are read at action tokens only.
///
/// # Errors
/// When a setting is out of range or the arrays' lengths differ.
pub fn token_vtrace<F: Real>(
    config: &TokenVtraceConfig,
    row: &TokenRow<'_, F>,
    log_ratios: &[F],
) -> Result<TokenVtraceTargets<F>, AdvantageError> {
    config.validate()?;
    let tokens = row.action_mask.len();
    AdvantageError::check_length("token_rewards", row.token_rewards.len(), tokens)?;
    AdvantageError::check_length("values", row.values.len(), tokens)?;
    AdvantageError::check_length("log_ratios", log_ratios.len(), tokens)?;
    let actions: Vec<usize> = (0..tokens).filter(|&token| row.action_mask[token]).collect();
    let mut targets =
        TokenVtraceTargets { advantages: vec![F::zero(); tokens], value_targets: vec![F::zero(); tokens] };
    let Some(last) = actions.len().checked_sub(1) else { return Ok(targets) };
    let gather = |values: &[F]| -> Vec<F> { actions.iter().map(|&token| values[token]).collect() };
    let (values, mut rewards) = (gather(row.values), gather(row.token_rewards));
    rewards[last] = rewards[last] + row.terminal_reward;
    let gamma = F::narrow(config.gamma);
    let (never, steps) = (vec![false; actions.len()], actions.len());
    let found = vtrace(
        &config.bounds(),
        &VtraceInput {
            log_rhos: &gather(log_ratios),
            rewards: &rewards,
            values: &values,
            discounts: &vec![gamma; steps],
        },
        &Boundaries {
            terminated: &never,
            truncated: &never,
            final_values: &vec![F::zero(); steps],
            bootstrap: &[row.bootstrap],
        },
    )?;
    for (index, &token) in actions.iter().enumerate() {
        targets.value_targets[token] = found.vs[index];
        targets.advantages[token] = if config.weighted {
            found.pg_advantages[index]
        } else {
            let next = found.vs.get(index + 1).copied().unwrap_or(row.bootstrap);
            rewards[index] + gamma * next - values[index]
        };
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::advantage::{SkipObservationGaeConfig, skip_observation_gae};

    const MASK: [bool; 5] = [true, false, true, true, false];

    fn row<'a>(rewards: &'a [f64], values: &'a [f64], bootstrap: f64) -> TokenRow<'a, f64> {
        TokenRow { token_rewards: rewards, values, action_mask: &MASK, terminal_reward: 2.0, bootstrap }
    }

    const REWARDS: [f64; 5] = [0.5, 0.0, -1.0, 0.25, 0.0];
    const VALUES: [f64; 5] = [0.1, 7.0, 0.7, -0.4, 7.0];

    #[test]
    fn on_policy_it_is_the_return_less_the_value() {
        for (gamma, bootstrap, weighted) in [(1.0, 0.0, true), (0.9, 1.5, true), (0.9, 0.0, false)] {
            let config = TokenVtraceConfig { gamma, weighted, ..Default::default() };
            let found = token_vtrace(&config, &row(&REWARDS, &VALUES, bootstrap), &[0.0; 5]).unwrap();
            let config = SkipObservationGaeConfig { gamma, lambda_policy: Some(1.0), ..Default::default() };
            let gae = skip_observation_gae(&config, &row(&REWARDS, &VALUES, bootstrap)).unwrap();
            for token in 0..MASK.len() {
                assert!((found.value_targets[token] - gae.value_targets[token]).abs() < 1e-12);
                assert!((found.advantages[token] - gae.advantages_policy[token]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn what_stands_at_observations_is_never_read() {
        let of = |filler: f64| {
            let fill = |mut values: [f64; 5]| {
                [1, 4].into_iter().for_each(|token| values[token] = filler);
                values
            };
            let (rewards, values, log_ratios) =
                (fill(REWARDS), fill(VALUES), fill([0.3, 0.0, -0.7, 0.2, 0.0]));
            token_vtrace(&TokenVtraceConfig::default(), &row(&rewards, &values, 0.0), &log_ratios).unwrap()
        };
        assert_eq!(of(0.0), of(f64::NAN));
        assert_eq!((of(0.0).advantages[1], of(0.0).value_targets[4]), (0.0, 0.0));
    }

    #[test]
    fn the_ratio_in_front_is_left_out_where_the_objective_has_it() {
        let log_ratios = [0.4, 0.0, -0.9, 0.0, 0.0];
        let of = |weighted| {
            let config = TokenVtraceConfig { pg_rho_bar: f64::INFINITY, weighted, ..Default::default() };
            token_vtrace(&config, &row(&REWARDS, &VALUES, 0.0), &log_ratios).unwrap()
        };
        let (with, without) = (of(true), of(false));
        assert_eq!(with.value_targets, without.value_targets);
        for token in [0, 2, 3] {
            let expected = log_ratios[token].exp() * without.advantages[token];
            assert!((with.advantages[token] - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_row_without_actions_has_nothing() {
        let row = TokenRow { action_mask: &[false; 5], ..row(&REWARDS, &VALUES, 0.0) };
        let found = token_vtrace(&TokenVtraceConfig::default(), &row, &[f64::NAN; 5]).unwrap();
        assert_eq!((found.advantages, found.value_targets), (vec![0.0; 5], vec![0.0; 5]));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |text: &str| {
            toml::from_str::<TokenVtraceConfig>(text).unwrap().validate().unwrap_err().to_string()
        };
        assert!(refused("gamma = 1.5").contains("gamma"));
        assert!(refused("rho_bar = 0.5").contains("c_bar"));
        assert!(refused("pg_rho_bar = 0.0").contains("pg_rho_bar"));
        assert!(refused("lambda = -0.1").contains("lambda"));
    }
}
