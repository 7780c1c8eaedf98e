//! The effort budget: an answer that took too many tokens has failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// Settings of [`effort_budget`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffortBudgetConfig {
    /// How many times its base budget an answer may take.
    pub tau: f64,
}

impl EffortBudgetConfig {
    /// Refuses a factor that is not positive.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        if self.tau > 0.0 && self.tau.is_finite() {
            return Ok(());
        }
        Err(AdvantageError::Setting { name: "tau", value: self.tau, expected: "finite and positive" })
    }
}

/// The reward of an answer: −1 where it took more than tau · `base_budget` tokens (exactly that many are within), else
/// unchanged. Source: Moonshot AI, "Kimi K3", 2026 (arXiv 2607.24653).
///
/// # Errors
/// When tau is out of range.
pub fn effort_budget(
    config: &EffortBudgetConfig,
    reward: f64,
    total_tokens: u64,
    base_budget: u64,
) -> Result<f64, AdvantageError> {
    config.validate()?;
    let over = total_tokens as f64 > config.tau * base_budget as f64;
    Ok(if over { -1.0 } else { reward })
}
