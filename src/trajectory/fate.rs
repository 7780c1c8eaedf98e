//! What became of the tokens of an update's batch: learned from, or left out for one of a few reasons.
//!
//! Invariant: each token of a pass over the batch has exactly one fate, so that the counts add up to the tokens after the
//! prompts. Where several reasons hold, the first in the order of [`TokenFate::ALL`] after `learned` counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whether a token was learned from, or why not. A token whose ratio is merely clipped was learned from: the clip is
/// part of the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenFate {
    /// The objective took it in.
    Learned,
    /// The task's, not the model's.
    Observation,
    /// Of an answer that could not be graded.
    Ungraded,
    /// Of an answer that was cut off, where those are left out (`learner.mask_truncated`).
    Truncated,
    /// Sampled too many updates ago for the loss mask (`learner.max_token_age`).
    Age,
    /// Of an answer that the objective did not choose: not the best one, or not one of a pair.
    NotChosen,
    /// Older than the objective's `max_lag`.
    Lag,
    /// Of a sequence that the objective shut out as a whole.
    SequenceGate,
    /// Its ratio, weight or probability was below the objective's bounds.
    OffPolicyLow,
    /// Its ratio, weight or probability was above the objective's bounds.
    OffPolicyHigh,
}

impl TokenFate {
    /// All of them, `learned` first.
    pub const ALL: [Self; 10] = [
        Self::Learned,
        Self::Observation,
        Self::Ungraded,
        Self::Truncated,
        Self::Age,
        Self::NotChosen,
        Self::Lag,
        Self::SequenceGate,
        Self::OffPolicyLow,
        Self::OffPolicyHigh,
    ];

    /// The label value used in metrics and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Observation => "observation",
            Self::Ungraded => "ungraded",
            Self::Truncated => "truncated",
            Self::Age => "age",
            Self::NotChosen => "not_chosen",
            Self::Lag => "lag",
            Self::SequenceGate => "sequence_gate",
            Self::OffPolicyLow => "off_policy_low",
            Self::OffPolicyHigh => "off_policy_high",
        }
    }
}

/// Tokens by their fate; fates without tokens have no entry. Written as a table of names and counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenFates(BTreeMap<TokenFate, u64>);

impl TokenFates {
    /// Counts `tokens` tokens.
    pub fn add(&mut self, fate: TokenFate, tokens: u64) {
        if tokens > 0 {
            *self.0.entry(fate).or_default() += tokens;
        }
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(fate, tokens)| self.add(fate, tokens));
    }

    /// Tokens of one fate.
    #[must_use]
    pub fn get(&self, fate: TokenFate) -> u64 {
        self.0.get(&fate).copied().unwrap_or_default()
    }

    /// All tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Fates that have tokens, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (TokenFate, u64)> + '_ {
        self.0.iter().map(|(&fate, &tokens)| (fate, tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn fates_are_listed_once_each_under_the_names_that_files_use() {
        for (place, fate) in TokenFate::ALL.into_iter().enumerate() {
            assert_eq!(fate as usize, place);
            assert_eq!(serde_json::to_value(fate).unwrap(), fate.as_str());
        }
    }

    #[test]
    fn counts_add_up_and_are_written_as_a_table_without_zeros() {
        let mut fates = TokenFates::default();
        fates.add(TokenFate::Lag, 3);
        fates.add(TokenFate::Learned, 40);
        fates.add(TokenFate::Ungraded, 0);
        let mut twice = fates.clone();
        twice.merge(&fates);
        assert_eq!((twice.total(), twice.get(TokenFate::Lag), twice.get(TokenFate::Age)), (86, 6, 0));
        assert_eq!(serde_json::to_string(&fates).unwrap(), r#"{"learned":40,"lag":3}"#);
        assert_eq!(serde_json::from_str::<TokenFates>(r#"{"lag":3,"learned":40}"#).unwrap(), fates);
        let kind = codec::Kind::new(*b"TEST");
        let bytes = codec::encode(kind, &fates).unwrap();
        assert_eq!(codec::decode::<TokenFates>(kind, &bytes, 1024).unwrap(), fates);
    }
}
