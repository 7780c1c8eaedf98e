//! The effort budget: an answer that took too many tokens has failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// The budget of an effort.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EffortBudgetConfig {
    /// How many times its base budget an answer may take; an effort of `learner.efforts` has a factor of its own.
    pub tau: f64,
    /// Base budget of problems that name none, tokens; absent: their answers may take what they like.
    pub base: Option<u64>,
}

impl Default for EffortBudgetConfig {
    fn default() -> Self {
        Self { tau: 1.0, base: None }
    }
}

impl EffortBudgetConfig {
    /// Refuses a factor that is not positive and a budget of nothing.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        if self.base == Some(0) {
            return Err(AdvantageError::Setting { name: "base", value: 0.0, expected: "at least 1" });
        }
        if self.tau > 0.0 && self.tau.is_finite() {
            return Ok(());
        }
        Err(AdvantageError::Setting { name: "tau", value: self.tau, expected: "finite and positive" })
    }

    /// Whether an answer took more than tau · `base_budget` tokens; exactly that many are within.
    #[must_use]
    pub fn is_exceeded(&self, total_tokens: u64, base_budget: u64) -> bool {
        total_tokens as f64 > self.tau * base_budget as f64
    }
}

/// The reward of an answer: −1 where it took more than tau · `base_budget` tokens, else unchanged. Source: Moonshot AI,
/// "Kimi K3", 2026 (arXiv 2607.24653).
///
/// # Errors
/// When a setting is out of range.
pub fn effort_budget(
    config: &EffortBudgetConfig,
    reward: f64,
    total_tokens: u64,
    base_budget: u64,
) -> Result<f64, AdvantageError> {
    config.validate()?;
    Ok(if config.is_exceeded(total_tokens, base_budget) { -1.0 } else { reward })
}
