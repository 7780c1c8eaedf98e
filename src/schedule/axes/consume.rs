//! What of the finished work is learned from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which tokens are left out of the loss for their age, by `rule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum TokenMask {
    /// None.
    #[default]
    None,
    /// All that an older version sampled.
    Old,
    /// Those with a lag above this.
    LagAbove {
        /// Updates.
        lag: u64,
    },
}

impl TokenMask {
    /// Whether a token of `sampled` is learned from at `version`.
    #[must_use]
    pub fn keeps(self, version: u64, sampled: u64) -> bool {
        let lag = version.saturating_sub(sampled);
        match self {
            Self::None => true,
            Self::Old => lag == 0,
            Self::LagAbove { lag: most } => lag <= most,
        }
    }
}

/// Groups of short answers complete first, and the first batches would be of them alone: while a run warms up, groups
/// whose mean length is below a quantile of what has completed are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShortDrop {
    /// Updates for which it holds (W).
    pub updates: u64,
    /// Quantile of the mean lengths of the last 1024 complete groups.
    pub quantile: f64,
}

impl Default for ShortDrop {
    fn default() -> Self {
        Self { updates: 5, quantile: 0.25 }
    }
}

/// What of the finished work is learned from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumeFilter {
    /// A group with an answer whose oldest token is more updates behind is dropped, and another takes its place.
    pub max_head_lag: Option<u64>,
    /// Tokens that are left out of the loss. A group of which nothing is left is dropped.
    pub mask: TokenMask,
    /// Whether groups whose rewards are all alike are dropped. Whoever grades says so.
    pub zero_advantage: bool,
    /// Dropping groups of short answers while a run warms up.
    pub short_drop: Option<ShortDrop>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_keep_tokens_by_their_lag() {
        let kept = |mask: TokenMask| [5, 4, 3, 0].map(|sampled| mask.keeps(5, sampled));
        assert_eq!(kept(TokenMask::None), [true; 4]);
        assert_eq!(kept(TokenMask::Old), [true, false, false, false]);
        assert_eq!(kept(TokenMask::LagAbove { lag: 2 }), [true, true, true, false]);
    }
}
