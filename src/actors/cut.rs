//! A consistent cut of a threaded run: all producers of experience pause between two steps and show a snapshot.
//!
//! Slow is not dead: an actor inside a long environment step is waited for only so long; its place in the cut stays
//! empty, and what it had in production counts as lost when the cut is resumed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::{Control, Heartbeat, Order};
use super::exit_status::ExitStatus;
use super::role::{Learning, RoleError, Turn, panic_message};

/// Longest wait for the snapshots.
const GRACE: Duration = Duration::from_millis(2500);

/// The producers as the learner's thread sees them.
pub struct Cutter<S> {
    /// Orders to the producers.
    pub controls: Vec<Arc<Control>>,
    /// Their snapshots, each with the producer's index.
    pub snapshots: flume::Receiver<(usize, S)>,
}

impl<S> Cutter<S> {
    /// Pauses the producers and collects their snapshots, in order of the producers.
    fn pause(&self) -> Vec<Option<S>> {
        let actors = self.controls.len();
        // Answers that came too late for an earlier cut.
        drop(self.snapshots.drain());
        self.order(Order::Pause);
        let deadline = Instant::now() + GRACE;
        let mut collected: Vec<Option<S>> = (0..actors).map(|_| None).collect();
        // An actor that has ended for good answers no more, and its control tells.
        let awaited = |(snapshot, control): (&Option<_>, &Arc<Control>)| {
            snapshot.is_none() && control.order() != Order::Stop
        };
        while collected.iter().zip(&self.controls).any(awaited) {
            let Ok((actor, snapshot)) = self.snapshots.recv_deadline(deadline) else { break };
            collected[actor] = Some(snapshot);
        }
        collected
    }

    fn order(&self, order: Order) {
        self.controls.iter().for_each(|control| control.set(order));
    }
}

/// The learner's role in a threaded run: the learner and the means to cut.
pub struct CuttingLearner<L: Learning> {
    role: L,
    cutter: Cutter<L::Snapshot>,
    /// Receives the role when it ends, so that the root can read what it remembers.
    done: flume::Sender<L>,
}

impl<L: Learning> CuttingLearner<L> {
    /// Puts both together.
    #[must_use]
    pub fn new(role: L, cutter: Cutter<L::Snapshot>, done: flume::Sender<L>) -> Self {
        Self { role, cutter, done }
    }

    /// Saves the last checkpoint; the actors stay paused.
    fn save_last(&mut self) -> Result<(), RoleError> {
        let snapshots = self.cutter.pause();
        self.role.save(snapshots)
    }

    fn live(
        &mut self,
        control: &Control,
        heartbeat: &Heartbeat,
        patience: Duration,
    ) -> Result<ExitStatus, RoleError> {
        loop {
            heartbeat.beat();
            if control.order() == Order::Stop {
                return self.save_last().map(|()| ExitStatus::Stopped);
            }
            match self.role.step(patience) {
                Ok(Turn::Finished) => return self.save_last().map(|()| ExitStatus::Completed),
                Ok(_) => {}
                Err(error) => {
                    // The parameters are those of the last good update.
                    if let Err(unsaved) = self.save_last() {
                        tracing::warn!("the last checkpoint could not be saved either: {unsaved}");
                    }
                    return Err(error);
                }
            }
            if self.role.checkpoint_due() && self.role.complete().is_none() {
                let snapshots = self.cutter.pause();
                let saved = self.role.save(snapshots);
                self.cutter.order(Order::Run);
                saved?;
            }
        }
    }

    /// Hands the role back to the root.
    fn hand_over(self) {
        drop(self.done.try_send(self.role));
    }
}

/// Steps the learner until it is complete, fails or is told to stop; saves checkpoints on the way and at the end.
/// Panics are caught: the learner is then lost, and nothing is saved.
pub fn live_learner<L: Learning>(
    mut learner: CuttingLearner<L>,
    control: &Control,
    heartbeat: &Heartbeat,
    patience: Duration,
) -> ExitStatus {
    match catch_unwind(AssertUnwindSafe(|| learner.live(control, heartbeat, patience))) {
        Ok(outcome) => {
            learner.hand_over();
            outcome.unwrap_or_else(ExitStatus::Failed)
        }
        Err(payload) => ExitStatus::Panicked(panic_message(payload.as_ref())),
    }
}
