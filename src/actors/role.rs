//! A role: a synchronous object that is stepped, by a thread of its own or by the serial loop.
//!
//! A role owns no thread, reads no clock to decide anything, and never waits longer than the patience it is given;
//! so the same code runs threaded and serially, and between any two steps it can be paused or stopped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::control::{Control, Heartbeat, Order};
use super::exit_status::ExitStatus;
use crate::env::EnvError;
use crate::generate::GenerateError;
use crate::learner::LearnerError;

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It did something.
    Worked,
    /// It found nothing to do within its patience.
    Waiting,
    /// It will never have anything to do again.
    Finished,
}

/// What can end a role.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// An environment failed or broke its contract.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// A forward pass failed.
    #[error("inference on {device} failed: {source}")]
    Inference {
        /// Where it ran.
        device: String,
        /// candle's account.
        source: candle_core::Error,
    },
    /// The learner cannot go on.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// Generation failed.
    #[error(transparent)]
    Generation(Box<GenerateError>),
    /// Nothing is left to learn from.
    #[error("{0}")]
    Starved(String),
    /// An evaluation ended in another way than with a result.
    #[error("the evaluation {0}")]
    Evaluation(String),
    /// A file of the run could not be written or read.
    #[error("{0}")]
    Files(String),
}

impl From<GenerateError> for RoleError {
    fn from(error: GenerateError) -> Self {
        Self::Generation(Box::new(error))
    }
}

/// See the module's documentation.
pub trait Role {
    /// Does one piece of work, waiting at most `patience` for something to work on.
    ///
    /// # Errors
    /// When this life of the role cannot go on.
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError>;

    /// Called once for each pause, between two steps: the moment to show a snapshot.
    fn pause(&mut self) {}

    /// Called once after a step that failed: the moment to account for what is lost with this life.
    fn fail(&mut self) {}
}

/// A learner's role: it also saves what a run is resumed from.
pub trait Learning: Role + Send + 'static {
    /// What a producer of experience shows of itself in a consistent cut.
    type Snapshot: Send + 'static;

    /// Saves a checkpoint. `snapshots` are those of the paused producers, in order, `None` for one that did not
    /// answer. Experience in the queue stays there.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save(&mut self, snapshots: Vec<Option<Self::Snapshot>>) -> Result<(), RoleError>;

    /// Whether a checkpoint is due at this border.
    fn checkpoint_due(&self) -> bool;

    /// Which stop condition was met.
    fn complete(&self) -> Option<&str>;
}

/// How long a threaded role waits before it looks at its orders again.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Builds a role and steps it until it finishes, fails or is told to stop. Panics are caught.
pub fn live<R: Role>(
    build: impl FnOnce() -> Result<R, RoleError>,
    control: &Control,
    heartbeat: &Heartbeat,
) -> ExitStatus {
    let life = || -> Result<ExitStatus, RoleError> {
        let mut role = build()?;
        let mut answered = 0;
        loop {
            heartbeat.beat();
            match control.order() {
                Order::Stop => return Ok(ExitStatus::Stopped),
                Order::Pause => {
                    let pause = control.pauses();
                    if std::mem::replace(&mut answered, pause) != pause {
                        role.pause();
                    }
                    control.wait_while_paused(pause, PATIENCE);
                }
                Order::Run => {
                    let turn = role.step(PATIENCE).inspect_err(|_| role.fail())?;
                    if turn == Turn::Finished {
                        return Ok(ExitStatus::Completed);
                    }
                }
            }
        }
    };
    match catch_unwind(AssertUnwindSafe(life)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => ExitStatus::Failed(error),
        Err(payload) => ExitStatus::Panicked(panic_message(payload.as_ref())),
    }
}

/// What a panic said.
pub(super) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scripted(Vec<Result<Turn, &'static str>>);

    impl Role for Scripted {
        fn step(&mut self, _: Duration) -> Result<Turn, RoleError> {
            self.0.remove(0).map_err(|message| {
                assert!(message != "panic", "the role fell over");
                RoleError::Files(message.into())
            })
        }
    }

    fn run(script: Vec<Result<Turn, &'static str>>) -> ExitStatus {
        live(|| Ok(Scripted(script)), &Control::default(), &Heartbeat::default())
    }

    #[test]
    fn every_way_to_end_has_its_status() {
        assert!(matches!(run(vec![Ok(Turn::Worked), Ok(Turn::Finished)]), ExitStatus::Completed));
        assert!(matches!(run(vec![Err("disk full")]), ExitStatus::Failed(_)));
        assert_eq!(run(vec![Err("panic")]).to_string(), "panicked: the role fell over");
        let control = Control::default();
        control.set(Order::Stop);
        control.set(Order::Run);
        let status = live(|| Ok(Scripted(vec![])), &control, &Heartbeat::default());
        assert!(matches!(status, ExitStatus::Stopped), "stop is final");
    }
}
