//! Where evaluations run: in line during a serial run, else on a thread of their own, one at a time.
//!
//! An evaluation on a thread is watched like any role: a panic is caught, and one that shows no life for longer than
//! `env.timeout_seconds` is left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::control::Heartbeat;
use super::evaluation::{EvaluationResult, evaluate};
use super::interrupt::Interrupt;
use super::parameter_bus::Published;
use super::role::{RoleError, panic_message};
use super::run::Run;

type Outcome = Result<Option<EvaluationResult>, RoleError>;

/// How often an evaluation that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// See the module's documentation.
pub struct Evaluator {
    threaded: bool,
    abandoned: Arc<AtomicBool>,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<Outcome>>,
    result: Option<EvaluationResult>,
}

impl Evaluator {
    /// An idle evaluator.
    #[must_use]
    pub fn new(threaded: bool) -> Self {
        Self { threaded, abandoned: Arc::default(), heartbeat: Arc::default(), thread: None, result: None }
    }

    /// Whether an evaluation may be started.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.thread.is_none()
    }

    /// Starts `episodes` episodes of `published`.
    ///
    /// # Errors
    /// When an environment fails, or the thread cannot be started.
    pub fn start(
        &mut self,
        run: &Arc<Run>,
        published: Arc<Published>,
        episodes: usize,
    ) -> Result<(), RoleError> {
        let (run, abandoned) = (Arc::clone(run), Arc::clone(&self.abandoned));
        self.heartbeat = Arc::default();
        self.heartbeat.beat();
        let heartbeat = Arc::clone(&self.heartbeat);
        let work = move || -> Outcome {
            let envs = run.evaluation_envs(episodes)?;
            let go_on = || {
                heartbeat.beat();
                !abandoned.load(Ordering::Relaxed)
            };
            let config = &run.config;
            evaluate(&run.policy, &published, envs, config.seed, episodes, config.env.reward_clip, &go_on)
        };
        let guarded = move || {
            let caught = catch_unwind(AssertUnwindSafe(work));
            caught.unwrap_or_else(|payload| {
                Err(failed(&format!("panicked: {}", panic_message(payload.as_ref()))))
            })
        };
        if self.threaded {
            let spawned = std::thread::Builder::new().name("evaluation".into()).spawn(guarded);
            self.thread = Some(spawned.map_err(|error| failed(&format!("has no thread: {error}")))?);
        } else {
            self.result = guarded()?;
        }
        Ok(())
    }

    /// The result of the evaluation that finished since the last call.
    ///
    /// # Errors
    /// When it failed, or has been silent for longer than `timeout`.
    pub fn result(&mut self, timeout: Duration) -> Result<Option<EvaluationResult>, RoleError> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let outcome = thread.join().unwrap_or_else(|_| Err(failed("vanished")));
            self.result = outcome?;
        } else if self.thread.is_some() && self.heartbeat.silence() > timeout {
            self.thread = None;
            let seconds = timeout.as_secs_f64();
            return Err(failed(&format!("has been silent for {seconds:.1} s (env.timeout_seconds)")));
        }
        Ok(self.result.take())
    }

    /// Waits for the evaluation in hand; `None` when a signal came first.
    ///
    /// # Errors
    /// As [`Evaluator::result`].
    pub fn wait(&mut self, timeout: Duration, interrupt: &Interrupt) -> Outcome {
        loop {
            let result = self.result(timeout)?;
            if result.is_some() || self.is_idle() {
                return Ok(result);
            }
            if interrupt.signal().is_some() {
                self.abandon();
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Abandons the evaluation in hand: its thread ends after its next step, and nobody waits for that.
    pub fn abandon(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.thread = None;
    }
}

fn failed(how: &str) -> RoleError {
    RoleError::Evaluation(how.into())
}
