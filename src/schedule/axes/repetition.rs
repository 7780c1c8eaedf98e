//! Early stop of answers that have begun to repeat themselves (Kimi k1.5; the thresholds are our reading).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An answer is stopped when its last tokens are copies of one short period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RepetitionStop {
    /// Fewest tokens that must repeat.
    pub tokens: usize,
    /// Fewest copies of the period.
    pub copies: usize,
    /// Longest period, tokens.
    pub period: usize,
    /// Added to the reward of an answer that was stopped.
    pub penalty: f64,
}

impl Default for RepetitionStop {
    fn default() -> Self {
        Self { tokens: 128, copies: 4, period: 64, penalty: -1.0 }
    }
}

impl RepetitionStop {
    /// Whether an answer that ends in these tokens is to be stopped. Costs `period` comparisons for most answers.
    #[must_use]
    pub fn repeats(&self, tokens: &[u32]) -> bool {
        (1..=self.period.min(tokens.len())).any(|period| {
            let needed = self.tokens.max(self.copies * period);
            // The run of tokens that equal the one a period before, and the first period itself.
            needed <= tokens.len()
                && (0..needed - period).all(|back| {
                    let last = tokens.len() - 1 - back;
                    tokens[last] == tokens[last - period]
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enough_copies_of_a_short_period_stop_an_answer() {
        let rule = RepetitionStop::default();
        let cycle = |period: u32, length: u32| (0..length).map(|i| i % period).collect::<Vec<_>>();
        assert!(rule.repeats(&cycle(1, 128)) && !rule.repeats(&cycle(1, 127)));
        assert!(rule.repeats(&cycle(32, 128)), "four copies");
        assert!(!rule.repeats(&cycle(33, 131)) && rule.repeats(&cycle(33, 132)), "four copies take 132");
        assert!(rule.repeats(&cycle(64, 256)) && !rule.repeats(&cycle(65, 1000)), "the period is too long");
        let mut after = (1000..2000).collect::<Vec<_>>();
        after.extend(cycle(5, 200));
        assert!(rule.repeats(&after), "what came before does not matter");
        after.push(7);
        assert!(!rule.repeats(&after), "and it must last to the end");
        assert!(!rule.repeats(&[]));
    }
}
