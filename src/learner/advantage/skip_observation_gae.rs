//! Generalised advantage estimation over the action tokens of one row, skipping the observations between them.
//!
//! With a_1 … a_l the action tokens of the row, and the row's terminal reward added to the reward of a_l:
//!
//! ```text
//! delta_i = reward_i + gamma V(a_{i+1}) − V(a_i),   V(a_{l+1}) = bootstrap
//! A_i = delta_i + gamma lambda A_{i+1},             A_{l+1} = 0
//! ```
//!
//! Two advantages come of it: the policy's, whose lambda grows with the row (max(0, 1 − 1/(alpha l)) unless it is
//! fixed), and the critic's, with lambda 1. Source: the length-adaptive estimation of Yue et al., "VAPO", 2025
//! (arXiv 2504.05118), applied across turns. Rewards belong to action tokens: attach an environment's reward to the
//! action before it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdvantageError;
use crate::learner::Real;

/// Settings of [`skip_observation_gae`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkipObservationGaeConfig {
    /// Discount of one action token.
    pub gamma: f64,
    /// How fast the policy's lambda approaches 1 with the number of action tokens.
    pub alpha: f64,
    /// A fixed lambda for the policy in place of the rule.
    pub lambda_policy: Option<f64>,
}

impl Default for SkipObservationGaeConfig {
    fn default() -> Self {
        Self { gamma: 1.0, alpha: 1.5, lambda_policy: None }
    }
}

/// One row of tokens; every array has one entry a token.
#[derive(Debug, Clone, Copy)]
pub struct TokenRow<'a, F> {
    /// Reward given at each token; read only at action tokens.
    pub token_rewards: &'a [F],
    /// The critic's value at each token; read only at action tokens.
    pub values: &'a [F],
    /// Which tokens the policy chose.
    pub action_mask: &'a [bool],
    /// Reward of the whole row, added at the last action token.
    pub terminal_reward: F,
    /// Value after the last action token: 0, unless the row was stopped by its length.
    pub bootstrap: F,
}

/// What [`skip_observation_gae`] gives; every array has one entry a token, 0 at observations.
#[derive(Debug, Clone, PartialEq)]
pub struct SkipObservationGaeTargets<F> {
    /// The lambda used for the policy; `None` in a row without action tokens.
    pub lambda_policy: Option<F>,
    /// Advantages for the policy.
    pub advantages_policy: Vec<F>,
    /// Advantages with lambda 1, for the critic.
    pub advantages_critic: Vec<F>,
    /// Targets of the value function: the critic's advantages plus the values.
    pub value_targets: Vec<F>,
}

/// Computes the advantages and value targets of one row; the module's documentation has the formula.
///
/// # Errors
/// When a setting is out of range or the arrays' lengths differ.
pub fn skip_observation_gae<F: Real>(
    config: &SkipObservationGaeConfig,
    row: &TokenRow<'_, F>,
) -> Result<SkipObservationGaeTargets<F>, AdvantageError> {
    AdvantageError::check_fraction("gamma", config.gamma)?;
    if config.alpha.is_nan() || config.alpha <= 0.0 {
        return Err(AdvantageError::Setting { name: "alpha", value: config.alpha, expected: "positive" });
    }
    if let Some(lambda) = config.lambda_policy {
        AdvantageError::check_fraction("lambda_policy", lambda)?;
    }
    let tokens = row.action_mask.len();
    AdvantageError::check_length("token_rewards", row.token_rewards.len(), tokens)?;
    AdvantageError::check_length("values", row.values.len(), tokens)?;

    let actions: Vec<usize> = (0..tokens).filter(|&token| row.action_mask[token]).collect();
    let gamma = F::narrow(config.gamma);
    let lambda =
        config.lambda_policy.unwrap_or_else(|| (1.0 - 1.0 / (config.alpha * actions.len() as f64)).max(0.0));
    let lambda_policy = (!actions.is_empty()).then(|| F::narrow(lambda));
    let mut targets = SkipObservationGaeTargets {
        lambda_policy,
        advantages_policy: vec![F::zero(); tokens],
        advantages_critic: vec![F::zero(); tokens],
        value_targets: vec![F::zero(); tokens],
    };
    let (mut policy, mut critic) = (F::zero(), F::zero());
    let mut next_value = row.bootstrap;
    let mut extra_reward = row.terminal_reward;
    for &token in actions.iter().rev() {
        let value = row.values[token];
        let delta = row.token_rewards[token] + extra_reward + gamma * next_value - value;
        policy = delta + gamma * F::narrow(lambda) * policy;
        critic = delta + gamma * critic;
        targets.advantages_policy[token] = policy;
        targets.advantages_critic[token] = critic;
        targets.value_targets[token] = critic + value;
        next_value = value;
        extra_reward = F::zero();
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::advantage::{Boundaries, gae};

    #[test]
    fn without_observations_it_is_plain_gae() {
        let config = SkipObservationGaeConfig { gamma: 0.95, lambda_policy: Some(0.9), ..Default::default() };
        let (rewards, values) = ([0.5_f64, -1.0, 2.0], [0.1, 0.7, -0.4]);
        let row = TokenRow {
            token_rewards: &rewards,
            values: &values,
            action_mask: &[true; 3],
            terminal_reward: 0.0,
            bootstrap: 1.5,
        };
        let boundaries = Boundaries {
            terminated: &[false; 3],
            truncated: &[false; 3],
            final_values: &[0.0; 3],
            bootstrap: &[1.5],
        };
        let plain = gae(0.95_f64, 0.9, &rewards, &values, &boundaries).unwrap();
        for (a, b) in
            skip_observation_gae(&config, &row).unwrap().advantages_policy.iter().zip(&plain.advantages)
        {
            assert!((a - b).abs() < 1e-12);
        }
    }

    #[test]
    fn what_stands_at_observations_is_never_read() {
        let row = |filler: f64| {
            skip_observation_gae(
                &SkipObservationGaeConfig::default(),
                &TokenRow {
                    token_rewards: &[1.0, filler, 2.0],
                    values: &[0.5, filler, 0.25],
                    action_mask: &[true, false, true],
                    terminal_reward: 3.0,
                    bootstrap: 0.0,
                },
            )
            .unwrap()
        };
        assert_eq!(row(0.0), row(f64::NAN));
    }
}
