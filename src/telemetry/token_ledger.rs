//! The ledger in words of the token workload.
//!
//! The books themselves count units and what is in them ([`LedgerSnapshot`]). In control those are unrolls and
//! environment steps, here they are trajectories and tokens; this view renames, and changes no figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trajectory::{Amount, DropReason, LedgerSnapshot};

/// Trajectories and the tokens in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenAmount {
    /// Trajectories.
    pub trajectories: u64,
    /// Tokens.
    pub tokens: u64,
}

impl From<Amount> for TokenAmount {
    fn from(Amount { unrolls, steps }: Amount) -> Self {
        Self { trajectories: unrolls, tokens: steps }
    }
}

impl From<TokenAmount> for Amount {
    fn from(TokenAmount { trajectories, tokens }: TokenAmount) -> Self {
        Self { unrolls: trajectories, steps: tokens }
    }
}

/// What became of every trajectory and token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenLedger {
    /// Everything ever asked for.
    pub submitted: TokenAmount,
    /// In generation or grading.
    pub live: TokenAmount,
    /// In the queue, or blocked on its way into it.
    pub buffered: TokenAmount,
    /// Learned from.
    pub consumed: TokenAmount,
    /// Lost, by reason; reasons that never occurred are absent.
    pub dropped: BTreeMap<DropReason, TokenAmount>,
}

impl From<LedgerSnapshot> for TokenLedger {
    fn from(books: LedgerSnapshot) -> Self {
        Self {
            submitted: books.submitted.into(),
            live: books.live.into(),
            buffered: books.buffered.into(),
            consumed: books.consumed.into(),
            dropped: books.dropped.into_iter().map(|(reason, amount)| (reason, amount.into())).collect(),
        }
    }
}

impl From<TokenLedger> for LedgerSnapshot {
    fn from(view: TokenLedger) -> Self {
        Self {
            submitted: view.submitted.into(),
            live: view.live.into(),
            buffered: view.buffered.into(),
            consumed: view.consumed.into(),
            dropped: view.dropped.into_iter().map(|(reason, amount)| (reason, amount.into())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Ledger;

    #[test]
    fn the_view_names_trajectories_and_tokens_and_loses_nothing() {
        let ledger = Ledger::default();
        let mut kept = ledger.begin();
        kept.step(120);
        kept.complete().consume();
        let mut lost = ledger.begin();
        lost.step(7);
        lost.discard(DropReason::Stale);
        let _live = ledger.begin();

        let view = TokenLedger::from(ledger.snapshot());
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["consumed"], serde_json::json!({"trajectories": 1, "tokens": 120}));
        assert_eq!(json["dropped"]["stale"], serde_json::json!({"trajectories": 1, "tokens": 7}));
        assert_eq!(json["live"]["trajectories"], 1);
        assert!(!json.to_string().contains("unrolls") && !json.to_string().contains("steps"));
        assert_eq!(LedgerSnapshot::from(view), ledger.snapshot());
    }
}
