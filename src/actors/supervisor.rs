//! Supervision of one child: an actix actor that owns its thread, passes orders on, notices its end and decides
//! about another life.
//!
//! actix carries the control plane only. Its own supervision keeps the failed object and does not survive a panic,
//! so a guardian owns a factory instead: every life is built anew inside its own thread, unwinding is caught there,
//! and the exit status comes back through a one-shot channel. What the guardian cannot decide alone goes to the root
//! as an [`Event`] through a bounded channel.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::control::{Control, Heartbeat, Order};
use super::exit_status::ExitStatus;
use super::restart::{Decision, RestartBudget};

/// How often a guardian looks at its child's heartbeat.
const LOOK: Duration = Duration::from_millis(250);

/// What a child is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// Steps environments.
    Rollout,
    /// Answers requests for actions.
    Inference,
    /// Generates answers.
    Generator,
    /// Updates the parameters.
    Learner,
}

impl ChildKind {
    /// The label value used in metrics and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Inference => "inference",
            Self::Generator => "generator",
            Self::Learner => "learner",
        }
    }
}

/// One life: built and run inside the child's thread. Receives the incarnation and the heartbeat to show.
pub type Life = Arc<dyn Fn(u32, &Arc<Heartbeat>, &Control) -> ExitStatus + Send + Sync>;

/// What a guardian needs to know about its child.
pub struct ChildSpec {
    /// For messages and thread names, such as `rollout 3`.
    pub name: String,
    /// What it is for.
    pub kind: ChildKind,
    /// Runs one life.
    pub life: Life,
    /// Orders to it.
    pub control: Arc<Control>,
    /// Restarts; `None`: its failure goes to the root at once.
    pub budget: Option<RestartBudget>,
    /// Longest silence before it counts as hung; `None`: it may be silent for ever.
    pub timeout: Option<Duration>,
    /// Stack of its thread, bytes.
    pub stack: usize,
}

/// What the root is told.
#[derive(Debug)]
pub enum Event {
    /// A child failed and gets another life.
    Restarting {
        /// Its kind.
        kind: ChildKind,
    },
    /// A child ended for good.
    Ended {
        /// Its name.
        name: String,
        /// Its kind.
        kind: ChildKind,
        /// How.
        status: ExitStatus,
    },
    /// A child is silent for too long.
    Hung {
        /// Its name.
        name: String,
        /// The environment it is in, if any.
        env: Option<u32>,
        /// How long.
        silence: Duration,
    },
}

/// Passes an order on to the child.
#[derive(Debug, Clone, Copy)]
pub struct Tell(pub Order);

impl Message for Tell {
    type Result = ();
}

/// Asks whether the child's thread is alive.
#[derive(Debug, Clone, Copy)]
pub struct IsAlive;

impl Message for IsAlive {
    type Result = bool;
}

/// See the module's documentation.
pub struct Guardian {
    spec: ChildSpec,
    events: mpsc::Sender<Event>,
    started: Instant,
    incarnation: u32,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
    /// Calls into environments at the last look, and when that number was first seen.
    calls: (u64, Instant),
    reported_hung: bool,
}

impl Guardian {
    /// A guardian whose child's first life has this incarnation.
    #[must_use]
    pub fn new(spec: ChildSpec, incarnation: u32, events: mpsc::Sender<Event>) -> Self {
        Self {
            spec,
            events,
            started: Instant::now(),
            incarnation,
            heartbeat: Arc::default(),
            thread: None,
            calls: (0, Instant::now()),
            reported_hung: false,
        }
    }

    /// Reports to the root. The channel has room for one event of each child at least; when the root is gone the
    /// process is ending.
    fn report(&self, event: Event) {
        if let Err(error) = self.events.try_send(event) {
            tracing::warn!("{}: the root no longer listens: {error}", self.spec.name);
        }
    }

    fn start_life(&mut self, context: &mut Context<Self>) {
        let (sender, exit) = oneshot::channel();
        self.heartbeat = Arc::default();
        self.heartbeat.beat();
        let (life, heartbeat) = (Arc::clone(&self.spec.life), Arc::clone(&self.heartbeat));
        let (control, incarnation) = (Arc::clone(&self.spec.control), self.incarnation);
        let body = move || {
            // The guardian may be gone already when the process is ending.
            drop(sender.send(life(incarnation, &heartbeat, &control)));
        };
        let builder = std::thread::Builder::new().name(self.spec.name.clone()).stack_size(self.spec.stack);
        match builder.spawn(body) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.report(Event::Ended {
                    name: self.spec.name.clone(),
                    kind: self.spec.kind,
                    status: ExitStatus::Panicked(format!("its thread could not be started: {error}")),
                });
                return;
            }
        }
        context.spawn(exit.into_actor(self).map(|status, guardian, context| {
            let status = status.unwrap_or_else(|_| ExitStatus::Panicked("it vanished".into()));
            guardian.on_exit(status, context);
        }));
    }

    fn on_exit(&mut self, status: ExitStatus, context: &mut Context<Self>) {
        // The thread has sent its last word; joining takes no time.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        let may_restart = status.is_failure() && self.spec.control.order() != Order::Stop;
        let decision = match &mut self.spec.budget {
            Some(budget) if may_restart => budget.on_failure(self.started.elapsed()),
            _ => Decision::Escalate,
        };
        match decision {
            Decision::Restart { after } => {
                tracing::warn!("{} {status}; restarting in {after:.1?}", self.spec.name);
                self.incarnation += 1;
                self.report(Event::Restarting { kind: self.spec.kind });
                context.run_later(after, Self::start_life);
            }
            Decision::Escalate => {
                // Nobody is left to answer a pause.
                self.spec.control.set(Order::Stop);
                self.report(Event::Ended { name: self.spec.name.clone(), kind: self.spec.kind, status });
            }
        }
    }

    fn look(&mut self) {
        let calls = self.heartbeat.calls();
        if std::mem::replace(&mut self.calls.0, calls) != calls {
            self.calls.1 = Instant::now();
        }
        let silence = self.heartbeat.silence().min(self.calls.1.elapsed());
        let hung = self.thread.is_some() && self.spec.timeout.is_some_and(|timeout| silence > timeout);
        if hung && !std::mem::replace(&mut self.reported_hung, true) {
            let env = self.heartbeat.place();
            // If it ever comes back it has nothing to do; and nobody waits for its answer to a pause.
            self.spec.control.set(Order::Stop);
            self.report(Event::Hung { name: self.spec.name.clone(), env, silence });
        }
    }
}

impl Actor for Guardian {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.start_life(context);
        context.run_interval(LOOK, |guardian, _| guardian.look());
    }
}

impl Handler<Tell> for Guardian {
    type Result = ();

    fn handle(&mut self, Tell(order): Tell, _: &mut Self::Context) {
        self.spec.control.set(order);
    }
}

impl Handler<IsAlive> for Guardian {
    type Result = bool;

    fn handle(&mut self, _: IsAlive, _: &mut Self::Context) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}
