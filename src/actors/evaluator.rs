//! Where evaluations during training run: in line for a serial run, else on a thread of their own, one at a time.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::control::{Control, Order};
use super::evaluation::{EvaluationResult, evaluate};
use super::parameter_bus::Published;
use super::role::RoleError;
use super::run::Run;

type Outcome = Result<Option<EvaluationResult>, RoleError>;

/// See the module's documentation.
pub struct Evaluator {
    threaded: bool,
    control: Arc<Control>,
    thread: Option<JoinHandle<Outcome>>,
    result: Option<EvaluationResult>,
}

impl Evaluator {
    /// An idle evaluator.
    #[must_use]
    pub fn new(threaded: bool) -> Self {
        Self { threaded, control: Arc::default(), thread: None, result: None }
    }

    /// Whether an evaluation may be started.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.thread.is_none()
    }

    /// Starts evaluating `published`.
    ///
    /// # Errors
    /// When an environment fails, or the thread cannot be started.
    pub fn start(&mut self, run: &Arc<Run>, published: Arc<Published>) -> Result<(), RoleError> {
        let run = Arc::clone(run);
        let control = Arc::clone(&self.control);
        let work = move || -> Outcome {
            let config = &run.config.evaluation;
            let envs = run.evaluation_envs(config.episodes)?;
            let go_on = || control.order() != Order::Stop;
            evaluate(&run.policy, &published, envs, run.config.seed, config.episodes, &go_on)
        };
        if self.threaded {
            let spawned = std::thread::Builder::new().name("evaluation".into()).spawn(work);
            self.thread =
                Some(spawned.map_err(|error| RoleError::Files(format!("evaluation thread: {error}")))?);
        } else {
            self.result = work()?;
        }
        Ok(())
    }

    /// The result of the evaluation that finished since the last call.
    ///
    /// # Errors
    /// When it failed.
    pub fn result(&mut self) -> Result<Option<EvaluationResult>, RoleError> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            self.result = join(thread)?;
        }
        Ok(self.result.take())
    }

    /// Abandons the evaluation in hand.
    pub fn stop(&mut self) {
        self.control.set(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // Its result is not wanted any more; an environment that hangs must not hold up the end of the run.
            if thread.is_finished() {
                drop(thread.join());
            }
        }
    }
}

fn join(thread: JoinHandle<Outcome>) -> Outcome {
    thread.join().unwrap_or_else(|_| Err(RoleError::Files("the evaluation panicked".into())))
}
