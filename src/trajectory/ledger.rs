//! The account of every unroll and environment step: submitted = live + buffered + consumed + dropped.
//!
//! "Submitted" begins with the first step taken. A unit is *live* while an actor is producing it, *buffered* while it
//! stands in the queue (or waits to enter it), then either *consumed* by an update or *dropped* with a reason. All
//! figures are counted where the change happens, under one lock, so every snapshot balances.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Why experience was not learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// Older than `learner.max_lag` updates at consumption.
    Stale,
    /// The update's loss or gradient was not finite.
    NonFinite,
    /// Nothing of the batch, or of a group, was left after masking.
    Masked,
    /// The environment showed a non-finite or misshapen observation or reward.
    BadEnv,
    /// The actor panicked or was restarted in the middle of the unroll.
    ActorRestart,
    /// All rewards of a group were alike: nothing says which answer was better.
    ZeroVariance,
    /// The answer could not be graded.
    GradingFailed,
    /// Other answers of its group were kept to learn from.
    NotKept,
    /// The answers of its group were short while the run warmed up.
    Short,
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
            Self::ZeroVariance => "zero_variance",
            Self::GradingFailed => "grading_failed",
            Self::NotKept => "not_kept",
            Self::Short => "short",
            Self::Shutdown => "shutdown",
        }
    }

    /// Every reason, in the order of the label values' declaration.
    pub const ALL: [Self; 10] = [
        Self::Stale,
        Self::NonFinite,
        Self::Masked,
        Self::BadEnv,
        Self::ActorRestart,
        Self::ZeroVariance,
        Self::GradingFailed,
        Self::NotKept,
        Self::Short,
        Self::Shutdown,
    ];
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

/// The account. Every transition is made by a ticket: a [`LiveTicket`] while an actor produces an unroll, a
/// [`BufferedTicket`] from there to the update. A ticket that is dropped without a word (a panic unwinds, a queue is
/// torn down) books its unroll as dropped, so that nothing can be lost silently.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    figures: LedgerSnapshot,
    closed: bool,
}

impl Ledger {
    /// A ledger that continues from a snapshot; what was live or buffered in it must be adopted or written off.
    #[must_use]
    pub fn resume(snapshot: LedgerSnapshot) -> Self {
        Self(Arc::new(Mutex::new(Books { figures: snapshot, closed: false })))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a transition, unless the books are closed.
    fn with(&self, change: impl FnOnce(&mut LedgerSnapshot)) {
        let mut books = self.books();
        if !books.closed {
            change(&mut books.figures);
        }
    }

    /// Ends the account: what is still live or buffered is booked as dropped in the shutdown, and tickets that a
    /// thread left behind still holds change nothing any more.
    pub fn close(&self) {
        let mut books = self.books();
        books.closed = true;
        let rest = [std::mem::take(&mut books.figures.live), std::mem::take(&mut books.figures.buffered)];
        for amount in rest.into_iter().filter(|amount| *amount != Amount::default()) {
            let lost = books.figures.dropped.entry(DropReason::Shutdown).or_default();
            lost.add(amount.unrolls, amount.steps);
        }
    }

    /// Books what a resumed snapshot calls live or buffered beyond what was adopted as lost in the shutdown.
    pub fn write_off(&self, live: Amount, buffered: Amount) {
        self.with(|s| {
            s.live.take(live.unrolls, live.steps);
            s.buffered.take(buffered.unrolls, buffered.steps);
            for amount in [live, buffered].into_iter().filter(|amount| *amount != Amount::default()) {
                s.dropped.entry(DropReason::Shutdown).or_default().add(amount.unrolls, amount.steps);
            }
        });
    }

    /// An actor is about to take the first step of an unroll.
    #[must_use]
    pub fn begin(&self) -> LiveTicket {
        self.with(|s| {
            s.submitted.add(1, 0);
            s.live.add(1, 0);
        });
        self.adopt_live(0)
    }

    /// The ticket of an unroll that a resumed ledger already counts as live with `steps` steps.
    #[must_use]
    pub fn adopt_live(&self, steps: u64) -> LiveTicket {
        LiveTicket { ledger: self.clone(), steps, open: true }
    }

    /// The ticket of an unroll that a resumed ledger already counts as buffered with `steps` steps.
    #[must_use]
    pub fn adopt_buffered(&self, steps: u64) -> BufferedTicket {
        BufferedTicket { ledger: self.clone(), steps, open: true, useless: None }
    }

    /// All figures now.
    #[must_use]
    pub fn snapshot(&self) -> LedgerSnapshot {
        self.books().figures.clone()
    }

    /// Environment steps taken so far, whatever became of them.
    #[must_use]
    pub fn submitted_steps(&self) -> u64 {
        self.books().figures.submitted.steps
    }
}

/// Why a ticket that nobody closed was dropped.
fn lost_without_a_word() -> DropReason {
    if std::thread::panicking() { DropReason::ActorRestart } else { DropReason::Shutdown }
}

/// An unroll in production.
#[derive(Debug)]
pub struct LiveTicket {
    ledger: Ledger,
    steps: u64,
    open: bool,
}

impl LiveTicket {
    /// Books environment steps just taken.
    pub fn step(&mut self, steps: u64) {
        self.steps += steps;
        self.ledger.with(|s| {
            s.submitted.add(0, steps);
            s.live.add(0, steps);
        });
    }

    /// Environment steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The unroll is complete and leaves its actor.
    #[must_use]
    pub fn complete(mut self) -> BufferedTicket {
        self.open = false;
        self.ledger.with(|s| {
            s.live.take(1, self.steps);
            s.buffered.add(1, self.steps);
        });
        self.ledger.adopt_buffered(self.steps)
    }

    /// The unroll is lost.
    pub fn discard(mut self, reason: DropReason) {
        self.book(reason);
    }

    fn book(&mut self, reason: DropReason) {
        if std::mem::take(&mut self.open) {
            self.ledger.with(|s| {
                s.live.take(1, self.steps);
                s.dropped.entry(reason).or_default().add(1, self.steps);
            });
        }
    }
}

impl Drop for LiveTicket {
    fn drop(&mut self) {
        self.book(lost_without_a_word());
    }
}

/// A complete unroll on its way to the learner.
#[derive(Debug)]
pub struct BufferedTicket {
    ledger: Ledger,
    steps: u64,
    open: bool,
    useless: Option<DropReason>,
}

impl BufferedTicket {
    /// Nothing can be learned from the unroll, for this reason. It travels on with those it belongs to, but whatever
    /// becomes of them, it is booked as dropped, and so.
    #[must_use]
    pub fn useless(mut self, reason: DropReason) -> Self {
        self.useless = Some(reason);
        self
    }

    /// The unroll was learned from.
    pub fn consume(mut self) {
        if let Some(reason) = self.useless {
            return self.book(reason);
        }
        self.open = false;
        self.ledger.with(|s| {
            s.buffered.take(1, self.steps);
            s.consumed.add(1, self.steps);
        });
    }

    /// The unroll is lost.
    pub fn discard(mut self, reason: DropReason) {
        self.book(reason);
    }

    fn book(&mut self, reason: DropReason) {
        let reason = self.useless.unwrap_or(reason);
        if std::mem::take(&mut self.open) {
            self.ledger.with(|s| {
                s.buffered.take(1, self.steps);
                s.dropped.entry(reason).or_default().add(1, self.steps);
            });
        }
    }
}

impl Drop for BufferedTicket {
    fn drop(&mut self) {
        self.book(lost_without_a_word());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_nothing_can_be_learned_from_is_dropped_for_its_own_reason_whatever_becomes_of_it() {
        let ledger = Ledger::default();
        let useless = || ledger.begin().complete().useless(DropReason::GradingFailed);
        useless().consume();
        useless().discard(DropReason::Stale);
        drop(useless());
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.dropped.len(), 1);
        assert_eq!(snapshot.dropped[&DropReason::GradingFailed].unrolls, 3);
        assert!(snapshot.balances());
    }

    #[test]
    fn a_panicking_actor_books_its_partial_unroll_as_lost_in_a_restart() {
        let ledger = Ledger::default();
        let inside = ledger.clone();
        let outcome = std::thread::spawn(move || {
            let mut ticket = inside.begin();
            ticket.step(3);
            panic!("the environment crashed");
        })
        .join();
        assert!(outcome.is_err());
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.dropped[&DropReason::ActorRestart], Amount { unrolls: 1, steps: 3 });
        assert!(snapshot.balances());
    }

    #[test]
    fn tickets_left_over_at_the_end_are_booked_as_shutdown() {
        let ledger = Ledger::default();
        let mut first = ledger.begin();
        first.step(4);
        drop(first.complete());
        drop(ledger.begin());
        let snapshot = ledger.snapshot();
        assert_eq!(snapshot.dropped[&DropReason::Shutdown], Amount { unrolls: 2, steps: 4 });
        assert!(snapshot.balances());
    }

    proptest! {
        #[test]
        fn the_ledger_balances_after_any_sequence_of_transitions(
            commands in proptest::collection::vec((0u8..6, 0usize..8, 1u64..9), 0..200)
        ) {
            let ledger = Ledger::default();
            let (mut live, mut buffered) = (Vec::new(), Vec::new());
            let mut taken = 0;
            for (command, index, steps) in commands {
                match command {
                    0 => live.push(ledger.begin()),
                    1 if !live.is_empty() => {
                        let at = index % live.len();
                        LiveTicket::step(&mut live[at], steps);
                        taken += steps;
                    }
                    2 if !live.is_empty() => buffered.push(live.swap_remove(index % live.len()).complete()),
                    3 if !live.is_empty() => live.swap_remove(index % live.len()).discard(DropReason::BadEnv),
                    4 if !buffered.is_empty() => buffered.swap_remove(index % buffered.len()).consume(),
                    5 if !buffered.is_empty() => {
                        buffered.swap_remove(index % buffered.len()).discard(DropReason::Stale);
                    }
                    _ => {}
                }
                let snapshot = ledger.snapshot();
                prop_assert!(snapshot.balances());
                prop_assert_eq!(snapshot.live.unrolls, live.len() as u64);
                prop_assert_eq!(snapshot.buffered.unrolls, buffered.len() as u64);
                prop_assert_eq!(snapshot.submitted.steps, taken);
            }
        }
    }
}
