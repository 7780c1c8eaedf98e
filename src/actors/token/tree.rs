//! The two ways to run the roles of a token run: on threads under supervision, or one after another on one thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::generator::{Generator, GeneratorSnapshot};
use super::learner::TokenLearnerRole;
use super::monitor::TokenMonitor;
use super::run::TokenRun;
use crate::actors::control::Control;
use crate::actors::cut::Cutter;
use crate::actors::exit_status::ExitStatus;
use crate::actors::interrupt::Interrupt;
use crate::actors::restart::{Decision, RestartBudget};
use crate::actors::role::{Learning, Role, RoleError, Turn, live, panic_message};
use crate::actors::supervisor::{ChildKind, ChildSpec};
use crate::actors::threaded::{Ending, Observer, STACK, Tree};

/// The generators under supervision.
#[must_use]
pub fn token_tree(run: &Arc<TokenRun>) -> Tree<GeneratorSnapshot> {
    let generators = run.plane.generators();
    let (sender, receiver) = flume::bounded(generators.max(1));
    let (mut children, mut controls) = (Vec::new(), Vec::new());
    for index in 0..generators {
        let control = Arc::<Control>::default();
        controls.push(Arc::clone(&control));
        let (run, sender) = (Arc::clone(run), sender.clone());
        let budget = Some(RestartBudget::new(run.config.supervision.clone()));
        let spec = ChildSpec {
            name: format!("generator {index}"),
            kind: ChildKind::Generator,
            control,
            budget,
            timeout: None,
            stack: STACK,
            life: Arc::new(move |incarnation, heartbeat, control| {
                let build = || run.generator(index, incarnation, sender.clone());
                live(build, control, heartbeat)
            }),
        };
        children.push((spec, 0));
    }
    Tree { children, cutter: Cutter { controls, snapshots: receiver } }
}

/// A generator and what is needed to build another life of it.
struct Seat {
    index: usize,
    incarnation: u32,
    generator: Option<Generator>,
    budget: RestartBudget,
}

/// Runs the roles one after another on this thread: the learner as long as it can, then one step of each generator.
/// A pure function of the configuration, but for what depends on the clock.
pub fn run_token_serial(
    run: &Arc<TokenRun>,
    learner: &mut TokenLearnerRole,
    interrupt: &Interrupt,
    monitor: &mut TokenMonitor,
) -> Ending {
    let outcome = (|| {
        let mut seats = Vec::new();
        for index in 0..run.plane.generators() {
            let budget = RestartBudget::new(run.config.supervision.clone());
            let mut seat = Seat { index, incarnation: 0, generator: None, budget };
            seat.build(run)?;
            seats.push(seat);
        }
        rounds(run, learner, &mut seats, interrupt, monitor)
    })();
    outcome.unwrap_or_else(|error| Ending::Failed(error.to_string()))
}

fn rounds(
    run: &Arc<TokenRun>,
    learner: &mut TokenLearnerRole,
    seats: &mut [Seat],
    interrupt: &Interrupt,
    monitor: &mut TokenMonitor,
) -> Result<Ending, RoleError> {
    let save = |learner: &mut TokenLearnerRole, seats: &mut [Seat]| {
        let snapshots = seats.iter_mut().map(|seat| seat.generator.as_mut().map(Generator::snapshot));
        learner.save(snapshots.collect())
    };
    loop {
        while learner.complete().is_none() && interrupt.signal().is_none() {
            if run.plane.awaits_memory() {
                // Without a step: generators do what they would do if nobody waited for their memory.
                let generators = seats.iter_mut().filter_map(|seat| seat.generator.as_mut());
                generators.for_each(Generator::give_back_memory);
            }
            match learner.step(Duration::ZERO) {
                Ok(Turn::Worked) => {}
                Ok(Turn::Waiting | Turn::Finished) => break,
                Err(error) => {
                    save(learner, seats)?;
                    return Err(error);
                }
            }
            monitor.tick();
            if learner.complete().is_none() && learner.checkpoint_due() {
                save(learner, seats)?;
            }
        }
        monitor.tick();
        if learner.complete().is_some() {
            save(learner, seats)?;
            return Ok(Ending::Completed(String::new()));
        }
        if let Some(signal) = interrupt.signal() {
            save(learner, seats)?;
            return Ok(Ending::Interrupted(format!("stopped by {signal}")));
        }
        for index in 0..seats.len() {
            if let Err(status) = seats[index].step(run) {
                let cause =
                    format!("generator {index} failed more often than supervision allows; last: {status}");
                save(learner, seats)?;
                return Ok(Ending::Failed(cause));
            }
        }
    }
}

impl Seat {
    fn build(&mut self, run: &Arc<TokenRun>) -> Result<(), RoleError> {
        // Snapshots are taken directly here; nobody listens on the channel.
        let (snapshots, _) = flume::bounded(1);
        self.generator = Some(run.generator(self.index, self.incarnation, snapshots)?);
        Ok(())
    }

    fn step(&mut self, run: &Arc<TokenRun>) -> Result<(), ExitStatus> {
        loop {
            let attempt = catch_unwind(AssertUnwindSafe(|| -> Result<(), RoleError> {
                if self.generator.is_none() {
                    self.build(run)?;
                }
                if let Some(generator) = &mut self.generator {
                    generator.step(Duration::ZERO)?;
                }
                Ok(())
            }));
            let status = match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => ExitStatus::Failed(error),
                Err(payload) => ExitStatus::Panicked(panic_message(payload.as_ref())),
            };
            if let Some(mut lost) = self.generator.take() {
                lost.fail();
            }
            if self.budget.on_failure(Duration::ZERO) == Decision::Escalate {
                return Err(status);
            }
            tracing::warn!("generator {} {status}; restarting", self.index);
            run.note_restart(ChildKind::Generator.as_str());
            self.incarnation += 1;
        }
    }
}
