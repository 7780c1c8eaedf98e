//! The serial run: no thread computes but this one, and the roles are stepped in a fixed order, so that a run is a
//! pure function of its configuration.
//!
//! One round: the learner consumes what it can, every rollout actor produces one unroll (local inference) or takes
//! one step (central inference), and the inference actors answer. Between any two updates the state of the whole is
//! what a checkpoint keeps, and the learner goes first, so a run resumed from any checkpoint continues exactly: with
//! local inference every update falls on an unroll border of every actor; with central inference answers on their way
//! are forgotten at every update, and given again under the new version. Failed actors are restarted at once; time
//! plays no part in their budget.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::control::Heartbeat;
use super::exit_status::ExitStatus;
use super::inference::InferenceServer;
use super::interrupt::Interrupt;
use super::learner::LearnerRole;
use super::monitor::Monitor;
use super::restart::{Decision, RestartBudget};
use super::role::{Learning, Role, RoleError, Turn, panic_message};
use super::rollout::Rollout;
use super::run::Run;
use super::snapshot::RolloutSnapshot;
use super::supervisor::ChildKind;
use super::threaded::Ending;

/// A rollout actor and what is needed to build another life of it.
struct Seat {
    actor: u32,
    incarnation: u32,
    rollout: Option<Rollout>,
    budget: RestartBudget,
    heartbeat: Arc<Heartbeat>,
}

/// Runs until the end.
///
/// # Errors
/// When an actor cannot be built, or the learner or a checkpoint fails.
pub fn run_serial(
    run: &Arc<Run>,
    learner: &mut LearnerRole,
    snapshots: Vec<Option<RolloutSnapshot>>,
    interrupt: &Interrupt,
    mut monitor: Monitor,
) -> Ending {
    let outcome = (|| {
        let mut seats = Vec::with_capacity(snapshots.len());
        for (actor, snapshot) in snapshots.into_iter().enumerate() {
            seats.push(Seat::new(run, actor as u32, snapshot)?);
        }
        let mut servers: Vec<InferenceServer> =
            (0..run.inference_actors()).map(|index| run.inference_server(index)).collect();
        rounds(run, learner, &mut seats, &mut servers, interrupt, &mut monitor)
    })();
    outcome.unwrap_or_else(|error| Ending::Failed(error.to_string()))
}

fn rounds(
    run: &Run,
    learner: &mut LearnerRole,
    seats: &mut [Seat],
    servers: &mut [InferenceServer],
    interrupt: &Interrupt,
    monitor: &mut Monitor,
) -> Result<Ending, RoleError> {
    let save = |learner: &mut LearnerRole, seats: &[Seat]| {
        learner.save(seats.iter().map(|seat| seat.rollout.as_ref().map(Rollout::snapshot)).collect())
    };
    loop {
        while learner.complete().is_none() && interrupt.signal().is_none() {
            match learner.step(Duration::ZERO) {
                Ok(Turn::Worked) => {}
                Ok(Turn::Waiting | Turn::Finished) => break,
                Err(error) => {
                    save(learner, seats)?;
                    return Err(error);
                }
            }
            seats.iter_mut().filter_map(|seat| seat.rollout.as_mut()).for_each(Rollout::forget_answers);
            servers.iter_mut().for_each(InferenceServer::forget);
            if learner.complete().is_none() && learner.checkpoint_due() {
                save(learner, seats)?;
            }
        }
        monitor.tick(run);
        if learner.complete().is_some() {
            save(learner, seats)?;
            return Ok(Ending::Completed(String::new()));
        }
        if let Some(signal) = interrupt.signal() {
            save(learner, seats)?;
            return Ok(Ending::Interrupted(format!("stopped by {signal}")));
        }
        for seat in &mut *seats {
            if let Err(status) = seat.produce(run) {
                let cause = format!(
                    "rollout {} failed more often than supervision allows; last: {status}",
                    seat.actor
                );
                save(learner, seats)?;
                return Ok(Ending::Failed(cause));
            }
        }
        for server in &mut *servers {
            server.step(Duration::ZERO)?;
        }
    }
}

impl Seat {
    fn new(run: &Run, actor: u32, snapshot: Option<RolloutSnapshot>) -> Result<Self, RoleError> {
        let mut seat = Self {
            actor,
            incarnation: snapshot.as_ref().map_or(0, |snapshot| snapshot.incarnation),
            rollout: None,
            budget: RestartBudget::new(run.config.supervision.clone()),
            heartbeat: Arc::default(),
        };
        seat.build(run, snapshot)?;
        Ok(seat)
    }

    fn build(&mut self, run: &Run, snapshot: Option<RolloutSnapshot>) -> Result<(), RoleError> {
        // Snapshots are taken directly here; nobody listens on the channel.
        let (snapshots, _) = flume::bounded(1);
        let rollout = run.rollout(self.actor, self.incarnation, snapshot, &self.heartbeat, snapshots)?;
        self.rollout = Some(rollout);
        Ok(())
    }

    /// One unroll with local inference, one step with central inference; restarts the actor when it fails.
    fn produce(&mut self, run: &Run) -> Result<(), ExitStatus> {
        loop {
            let status = match catch_unwind(AssertUnwindSafe(|| self.step(run))) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => ExitStatus::Failed(error),
                Err(payload) => ExitStatus::Panicked(panic_message(payload.as_ref())),
            };
            self.rollout.take().iter_mut().for_each(Rollout::fail);
            if self.budget.on_failure(Duration::ZERO) == Decision::Escalate {
                return Err(status);
            }
            tracing::warn!("rollout {} {status}; restarting", self.actor);
            run.note_restart(ChildKind::Rollout.as_str());
            self.incarnation += 1;
        }
    }

    fn step(&mut self, run: &Run) -> Result<(), RoleError> {
        if self.rollout.is_none() {
            self.build(run, None)?;
        }
        let Some(rollout) = &mut self.rollout else { return Ok(()) };
        loop {
            let turn = rollout.step(Duration::ZERO)?;
            if turn != Turn::Worked || !rollout.is_local() || rollout.at_border() {
                return Ok(());
            }
        }
    }
}
