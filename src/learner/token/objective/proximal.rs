//! Where the proximal policy comes from, which anchors the trust region of the decoupled objectives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::token::Needs;
use crate::learner::token::batch::Token;

/// How log π_prox, of the policy at the start of the step, becomes known. The approximations place it between the policy
/// μ that sampled a token, of version v_μ, and the current one π, the version that the step is on its way to:
///
/// ```text
/// alpha = (v_prox − v_μ) / (v_π − v_μ) = lag / (lag + 1),   v_π = v_prox + 1
/// log_linear   log π_prox = log μ + alpha (log π − log μ)
/// linear       π_prox = (1 − alpha) μ + alpha π
/// ```
///
/// A token of the consuming version has π_prox = μ. No gradient flows through the approximation. Source: the AReaL
/// framework, "Proximal policy approximation".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProximalPolicy {
    /// Computed by one forward pass before the step's first minibatch.
    #[default]
    Recompute,
    /// Approximated on the way from μ to π in log-probability; costs no forward pass.
    LogLinear,
    /// Approximated on the way from μ to π in probability; costs no forward pass.
    Linear,
}

impl ProximalPolicy {
    /// Which optional arrays an objective around this anchor reads.
    pub(super) fn needs(self) -> Needs {
        match self {
            Self::Recompute => Needs { proximal: true, ..Needs::ADVANTAGES },
            Self::LogLinear | Self::Linear => Needs { versions: true, ..Needs::ADVANTAGES },
        }
    }

    /// The token with its anchor.
    pub(in crate::learner::token) fn anchor(self, token: &Token) -> Token {
        let alpha = token.lag as f64 / (token.lag as f64 + 1.0);
        let proximal = match self {
            Self::Recompute => token.proximal,
            // Without a lag the ratio, which may be of any size, has no part.
            _ if token.lag == 0 => token.behaviour,
            Self::LogLinear => token.behaviour + alpha * token.log_ratio(),
            Self::Linear => {
                let most = token.behaviour.max(token.log_prob);
                let share = |weight: f64, log_prob: f64| weight * (log_prob - most).exp();
                most + (share(1.0 - alpha, token.behaviour) + share(alpha, token.log_prob)).ln()
            }
        };
        Token { proximal, ..*token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(log_prob: f64, behaviour: f64, lag: u64) -> Token {
        Token {
            log_prob,
            behaviour,
            advantage: 1.0,
            proximal: f64::NAN,
            reference: f64::NAN,
            teacher: f64::NAN,
            lag,
        }
    }

    fn anchors(log_prob: f64, behaviour: f64, lag: u64) -> [f64; 2] {
        let token = token(log_prob, behaviour, lag);
        [ProximalPolicy::LogLinear, ProximalPolicy::Linear].map(|kind| kind.anchor(&token).proximal)
    }

    #[test]
    fn the_anchor_lies_so_many_steps_of_the_way_as_its_version_does() {
        // From version 5 to version 9 by way of 8: three of four steps.
        for (from, to) in [(0.2_f64, 0.6_f64), (0.9, 0.01), (1e-300, 0.5)] {
            let [geometric, arithmetic] = anchors(to.ln(), from.ln(), 3);
            assert!((geometric.exp() - from.powf(0.25) * to.powf(0.75)).abs() < 1e-12);
            assert!((arithmetic.exp() - (0.25 * from + 0.75 * to)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_token_of_the_consuming_version_is_anchored_where_it_was_sampled() {
        assert_eq!(anchors(-1.0, -2.5, 0), [-2.5, -2.5]);
        assert_eq!(anchors(-2.5, -2.5, 7), [-2.5, -2.5]);
    }

    #[test]
    fn a_ratio_of_any_size_has_a_finite_anchor() {
        for (log_prob, behaviour) in [(-0.1, -800.0), (-800.0, -0.1), (0.0, 0.0)] {
            assert!(anchors(log_prob, behaviour, 1).iter().all(|anchor| anchor.is_finite()));
        }
    }

    #[test]
    fn what_is_approximated_needs_no_forward_pass() {
        assert!(ProximalPolicy::Recompute.needs().proximal);
        for kind in [ProximalPolicy::LogLinear, ProximalPolicy::Linear] {
            assert!(kind.needs().versions && !kind.needs().proximal);
        }
    }
}
