//! The account of every unroll and environment step: submitted = live + buffered + consumed + dropped.
//!
//! "Submitted" begins with the first step taken. A unit is *live* while an actor is producing it, *buffered* while it
//! stands in the queue (or blocks in `send`), then either *consumed* by an update or *dropped* with a reason. All
//! figures are counted where the change happens, under one lock, so every snapshot balances.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Why experience was not learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// Older than `learner.max_lag` updates at consumption.
    Stale,
    /// The update's loss or gradient was not finite.
    NonFinite,
    /// Nothing of the batch was left after masking.
    Masked,
    /// The environment showed a non-finite or misshapen observation or reward.
    BadEnv,
    /// The actor panicked or was restarted in the middle of the unroll.
    ActorRestart,
    /// The run stopped.
    Shutdown,
}

impl DropReason {
    /// The label value used in metrics and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::NonFinite => "non_finite",
            Self::Masked => "masked",
            Self::BadEnv => "bad_env",
            Self::ActorRestart => "actor_restart",
            Self::Shutdown => "shutdown",
        }
    }

    /// Every reason, in the order of the label values' declaration.
    pub const ALL: [Self; 6] =
        [Self::Stale, Self::NonFinite, Self::Masked, Self::BadEnv, Self::ActorRestart, Self::Shutdown];
}

/// Unrolls and the environment steps in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Unrolls.
    pub unrolls: u64,
    /// Environment steps.
    pub steps: u64,
}

impl Amount {
    fn add(&mut self, unrolls: u64, steps: u64) {
        self.unrolls += unrolls;
        self.steps += steps;
    }

    fn take(&mut self, unrolls: u64, steps: u64) {
        debug_assert!(self.unrolls >= unrolls && self.steps >= steps, "the ledger went negative");
        self.unrolls = self.unrolls.saturating_sub(unrolls);
        self.steps = self.steps.saturating_sub(steps);
    }
}

/// All figures at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerSnapshot {
    /// Everything ever begun.
    pub submitted: Amount,
    /// In production by an actor.
    pub live: Amount,
    /// In the queue, or blocked on its way into it.
    pub buffered: Amount,
    /// Learned from.
    pub consumed: Amount,
    /// Lost, by reason; reasons that never occurred are absent.
    pub dropped: BTreeMap<DropReason, Amount>,
}

impl LedgerSnapshot {
    /// Whether submitted = live + buffered + consumed + dropped, in unrolls and in steps.
    #[must_use]
    pub fn balances(&self) -> bool {
        let mut sum = Amount::default();
        for part in [&self.live, &self.buffered, &self.consumed].into_iter().chain(self.dropped.values()) {
            sum.add(part.unrolls, part.steps);
        }
        sum == self.submitted
    }
}

/// The account. Shared by reference; every method is one atomic transition.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<LedgerSnapshot>);

impl Ledger {
    /// A ledger that continues from a snapshot (a checkpoint's).
    #[must_use]
    pub fn resume(snapshot: LedgerSnapshot) -> Self {
        Self(Mutex::new(snapshot))
    }

    fn with<R>(&self, change: impl FnOnce(&mut LedgerSnapshot) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An actor takes the first step of an unroll.
    pub fn begin(&self) {
        self.with(|s| {
            s.submitted.add(1, 0);
            s.live.add(1, 0);
        });
    }

    /// An actor took `steps` environment steps of a live unroll.
    pub fn step(&self, steps: u64) {
        self.with(|s| {
            s.submitted.add(0, steps);
            s.live.add(0, steps);
        });
    }

    /// A complete unroll leaves its actor.
    pub fn buffer(&self, steps: u64) {
        self.with(|s| {
            s.live.take(1, steps);
            s.buffered.add(1, steps);
        });
    }

    /// A live unroll is lost with the steps it already had.
    pub fn drop_live(&self, steps: u64, reason: DropReason) {
        self.with(|s| {
            s.live.take(1, steps);
            s.dropped.entry(reason).or_default().add(1, steps);
        });
    }

    /// A buffered unroll is lost.
    pub fn drop_buffered(&self, steps: u64, reason: DropReason) {
        self.with(|s| {
            s.buffered.take(1, steps);
            s.dropped.entry(reason).or_default().add(1, steps);
        });
    }

    /// A buffered unroll was learned from.
    pub fn consume(&self, steps: u64) {
        self.with(|s| {
            s.buffered.take(1, steps);
            s.consumed.add(1, steps);
        });
    }

    /// All figures now.
    #[must_use]
    pub fn snapshot(&self) -> LedgerSnapshot {
        self.with(|s| s.clone())
    }
}
