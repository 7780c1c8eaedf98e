//! Preferences: the best and the worst answer to each prompt as a pair.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{Objective, PairObjective, Term};
use crate::learner::token::{Needs, TokenLossError};

const NEEDS: Needs = Needs {
    advantages: false,
    proximal: false,
    reference: true,
    teacher: false,
    versions: false,
    rewards: true,
};

/// Online direct preference optimisation. A prompt's pair is its rows of the largest and the smallest reward (the first
/// of several); a prompt whose rewards are all equal has none. With S the sum of log π over a row's loss tokens:
///
/// ```text
/// h = [S(chosen) − S(rejected)] − [S_ref(chosen) − S_ref(rejected)]
/// loss = mean over pairs of −log σ(beta h)
/// ```
///
/// Stop-gradient: S_ref. Denominator: the pairs of the whole batch; aggregations concern the entropy bonus only, and
/// no further reference KL is accepted. Both rows of a pair must be in one micro-batch. Source: Guo et al., "Direct
/// language model alignment from online AI feedback", 2024 (arXiv 2402.04792), after Rafailov et al., 2023
/// (arXiv 2305.18290).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OnlineDpoConfig {
    /// How strongly the reference holds.
    pub beta: f64,
}

impl Default for OnlineDpoConfig {
    fn default() -> Self {
        Self { beta: 0.1 }
    }
}

impl Objective for OnlineDpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_positive("beta", self.beta)
    }

    fn needs(&self) -> Needs {
        NEEDS
    }
}

impl PairObjective for OnlineDpoConfig {
    fn pair(&self, margin: f64) -> Term {
        let x = self.beta * margin;
        // −log σ(x) = log(1 + exp(−x)), without overflow for either sign.
        let value = (-x.abs()).exp().ln_1p() + (-x).max(0.0);
        Term { value, slope: -self.beta / (1.0 + x.exp()) }
    }
}

/// Identity preference optimisation on the same pairs, with the same h:
///
/// ```text
/// loss = mean over pairs of (h − 1/(2 beta))²
/// ```
///
/// Log-probabilities are summed, not averaged over the length. Everything else is as for
/// [`OnlineDpoConfig`]. Source: Azar et al., "A general theoretical paradigm to understand learning from human
/// preferences", 2023 (arXiv 2310.12036).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IpoConfig {
    /// The margin aimed at is 1/(2 beta).
    pub beta: f64,
}

impl Default for IpoConfig {
    fn default() -> Self {
        Self { beta: 0.1 }
    }
}

impl Objective for IpoConfig {
    fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_positive("beta", self.beta)
    }

    fn needs(&self) -> Needs {
        NEEDS
    }
}

impl PairObjective for IpoConfig {
    fn pair(&self, margin: f64) -> Term {
        let error = margin - (2.0 * self.beta).recip();
        Term { value: error * error, slope: 2.0 * error }
    }
}
