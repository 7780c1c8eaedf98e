//! When the learner's turn comes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When places that became free are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// At once.
    #[default]
    Continuous,
    /// When a round begins.
    StartOnly,
}

/// What ends a round of generation, by `rule`. All but the first and the last pause whatever is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum RoundEnd {
    /// A whole batch of groups was dispatched and has ended; a group that was dropped is replaced.
    #[default]
    Batch,
    /// Every answer in flight has ended or has written `tokens` in this round (Kimi k1.5). All complete groups train.
    Budget {
        /// Most tokens of an answer in a round (C).
        tokens: u64,
    },
    /// As many groups as a batch has are complete, of more that were submitted (APRIL).
    Groups {
        /// Groups submitted when fewer than a batch are pending (N').
        submit: u64,
    },
    /// ⌈λNK⌉ answers have ended in this round, and enough groups are complete (Kimi K3). NK is the pool; all complete
    /// groups train.
    Fraction {
        /// Share of the pool (λ).
        lambda: f64,
        /// Fewest complete groups.
        #[serde(default = "one")]
        min_ready: u64,
        /// When places are filled.
        #[serde(default)]
        refill: Refill,
    },
    /// A batch of groups is complete whose share of tokens of older versions is at most this (DeepSeek-V4.1). When the
    /// oldest that are complete have more, fresher ones are waited for.
    Ready {
        /// Share of old tokens in the batch.
        max_old_fraction: f64,
        /// Share of the pool that may be in flight from rounds before while new groups are dispatched; 1: all of it.
        #[serde(default = "all")]
        max_carried: f64,
    },
    /// Never: whenever the learner is free and a batch is complete, it learns, and generation goes on.
    Streaming,
}

fn one() -> u64 {
    1
}

fn all() -> f64 {
    1.0
}

impl RoundEnd {
    /// Whether generation pauses while the learner learns, on whichever devices.
    #[must_use]
    pub fn pauses(&self) -> bool {
        !matches!(self, Self::Batch | Self::Streaming)
    }
}

/// ⌈fraction · count⌉ in exact decimal arithmetic on the fraction as it is written: 0.55 of 20 is 11.
#[must_use]
pub fn exact_ceiling(fraction: f64, count: u64) -> u64 {
    // The shortest decimal that reads back as the same number is what was written.
    let text = format!("{fraction}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let digits: Option<u128> = format!("{whole}{decimals}").parse().ok();
    let scale = 10_u128.checked_pow(decimals.len() as u32);
    match (digits, scale) {
        (Some(digits), Some(scale)) if digits.checked_mul(u128::from(count)).is_some() => {
            (digits * u128::from(count)).div_ceil(scale) as u64
        }
        // A fraction of more digits than any that is written.
        _ => (fraction * count as f64).ceil() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_count_is_exact_as_written() {
        for (fraction, count, expected) in [
            (0.55, 20, 11),
            (0.9, 6, 6),
            (0.75, 4, 3),
            (0.5, 4, 2),
            (0.7, 10, 7),
            (0.51, 2, 2),
            (1e-30, 5, 1),
        ] {
            assert_eq!(exact_ceiling(fraction, count), expected, "{fraction} of {count}");
        }
    }
}
