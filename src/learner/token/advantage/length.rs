//! Rewards for short answers, and penalties for answers that run into the limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// The length reward of each answer of one group, to be added to its reward:
///
/// ```text
/// L = 1/2 − (length − min)/(max − min);   correct: L, wrong: min(0, L);   all lengths equal: 0
/// ```
///
/// min and max are over all answers of the group, right or wrong; lengths are in tokens. Source: Kimi team, "Kimi
/// k1.5", 2025 (arXiv 2501.12599), which enables it after a warm-up.
///
/// # Errors
/// When the arrays differ in length.
pub fn length_rewards(lengths: &[usize], correct: &[bool]) -> Result<Vec<f64>, AdvantageError> {
    let (got, expected) = (correct.len(), lengths.len());
    if got != expected {
        return Err(AdvantageError::Length { name: "correct", got, expected });
    }
    let shortest = lengths.iter().copied().min().unwrap_or(0);
    let range = lengths.iter().copied().max().unwrap_or(0) - shortest;
    let reward = |(&length, &correct): (&usize, &bool)| {
        if range == 0 {
            return 0.0;
        }
        let reward = 0.5 - (length - shortest) as f64 / range as f64;
        if correct { reward } else { reward.min(0.0) }
    };
    Ok(lengths.iter().zip(correct).map(reward).collect())
}

/// The penalty for an answer that comes close to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverlongPenaltyConfig {
    /// The limit, tokens.
    pub max_length: usize,
    /// Tokens before the limit over which the penalty grows.
    pub buffer: usize,
    /// Penalty at the limit.
    #[serde(default = "one")]
    pub factor: f64,
}

fn one() -> f64 {
    1.0
}

impl OverlongPenaltyConfig {
    /// Refuses a buffer that is empty or longer than the limit, and a factor below 0.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        let refuse = |name, value, expected| Err(AdvantageError::Setting { name, value, expected });
        if self.buffer == 0 || self.buffer > self.max_length {
            return refuse("buffer", self.buffer as f64, "at least 1 and at most max_length");
        }
        if !(self.factor >= 0.0 && self.factor.is_finite()) {
            return refuse("factor", self.factor, "finite and at least 0");
        }
        Ok(())
    }
}

/// The penalty of an answer of `length` tokens, to be added to its reward:
///
/// ```text
/// 0 up to max_length − buffer, then −factor · min(length − (max_length − buffer), buffer)/buffer
/// ```
///
/// Source: Yu et al., "DAPO", 2025 (arXiv 2503.14476), equation 13.
///
/// # Errors
/// When a setting is out of range.
pub fn overlong_penalty(config: &OverlongPenaltyConfig, length: usize) -> Result<f64, AdvantageError> {
    config.validate()?;
    let over = length.saturating_sub(config.max_length - config.buffer).min(config.buffer);
    if over == 0 {
        return Ok(0.0);
    }
    Ok(-config.factor * over as f64 / config.buffer as f64)
}
