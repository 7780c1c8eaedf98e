//! The threaded run: every role on a thread of its own, an actix actor standing for each, and the root that watches
//! them all.
//!
//! Order of the end, whatever its cause: the learner stops first (it saves a checkpoint of the paused actors), then
//! everybody is told to stop and is joined; a thread still inside an environment after the grace is left behind and
//! counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::mpsc;

use super::control::{Control, Heartbeat, Order};
use super::cut::{Cutter, CuttingLearner, live_learner};
use super::exit_status::ExitStatus;
use super::interrupt::Interrupt;
use super::learner::LearnerRole;
use super::monitor::Monitor;
use super::restart::RestartBudget;
use super::role::{Learning, PATIENCE, live};
use super::run::Run;
use super::snapshot::RolloutSnapshot;
use super::supervisor::{ChildKind, ChildSpec, Event, Guardian, IsAlive, Tell};

/// Stack of a role's thread. Backpropagation recurses over the graph.
pub(super) const STACK: usize = 32 << 20;
/// Wait for threads to end after they were told to stop.
const GRACE: Duration = Duration::from_secs(3);
/// How often the root looks around.
const TICK: Duration = Duration::from_millis(100);

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// A stop condition was met.
    Completed(String),
    /// A signal asked for the end.
    Interrupted(String),
    /// Something failed for good.
    Failed(String),
}

/// What the root looks after beside the tree, and tells what happens in it.
pub trait Observer {
    /// Called several times a second.
    fn tick(&mut self);

    /// A child of this kind failed and gets another life.
    fn restarted(&mut self, kind: &str);

    /// A thread did not end in time and was left behind.
    fn detached(&mut self);
}

/// The children of a run, the learner aside.
pub struct Tree<S> {
    /// Each with the incarnation of its first life.
    pub children: Vec<(ChildSpec, u32)>,
    /// The producers among them, for a cut.
    pub cutter: Cutter<S>,
}

/// The tree and its root.
struct Root<'a> {
    observer: &'a mut dyn Observer,
    events: mpsc::Receiver<Event>,
    guardians: Vec<Addr<Guardian>>,
    learner: Addr<Guardian>,
}

/// Runs a control run until the end; hands back the learner's role unless it was lost in a panic.
#[must_use]
pub fn run_threaded(
    run: &Arc<Run>,
    learner: LearnerRole,
    snapshots: Vec<Option<RolloutSnapshot>>,
    interrupt: &Interrupt,
    mut monitor: Monitor,
) -> (Ending, Option<LearnerRole>) {
    let tree = control_tree(run, snapshots);
    let mut observer = Watched { run, monitor: &mut monitor };
    run_tree(tree, learner, interrupt, &mut observer)
}

/// Runs a tree until the end; hands back the learner's role unless it was lost in a panic.
pub fn run_tree<L: Learning>(
    tree: Tree<L::Snapshot>,
    learner: L,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> (Ending, Option<L>) {
    let (done, ended) = flume::bounded(1);
    let ending = actix::System::new().block_on(async move {
        let mut root = Root::start(tree, learner, done, observer);
        let ending = root.watch(interrupt).await;
        root.stop().await;
        ending
    });
    (ending, ended.try_recv().ok())
}

/// A control run as the root sees it.
struct Watched<'a> {
    run: &'a Run,
    monitor: &'a mut Monitor,
}

impl Observer for Watched<'_> {
    fn tick(&mut self) {
        self.monitor.tick(self.run);
    }

    fn restarted(&mut self, kind: &str) {
        self.run.note_restart(kind);
    }

    fn detached(&mut self) {
        self.run.note_detached();
    }
}

/// Rollout and inference actors of a control run.
fn control_tree(run: &Arc<Run>, snapshots: Vec<Option<RolloutSnapshot>>) -> Tree<RolloutSnapshot> {
    let actors = run.config.rollout.actors;
    let budget = || Some(RestartBudget::new(run.config.supervision.clone()));
    let (snapshot_sender, snapshot_receiver) = flume::bounded(actors);
    let (mut children, mut controls) = (Vec::new(), Vec::with_capacity(actors));
    for (actor, snapshot) in snapshots.into_iter().enumerate() {
        let control = Arc::<Control>::default();
        controls.push(Arc::clone(&control));
        let incarnation = snapshot.as_ref().map_or(0, |snapshot| snapshot.incarnation);
        let saved = std::sync::Mutex::new(snapshot);
        let (run, sender) = (Arc::clone(run), snapshot_sender.clone());
        let spec = ChildSpec {
            name: format!("rollout {actor}"),
            kind: ChildKind::Rollout,
            control,
            budget: budget(),
            timeout: Some(run.env_timeout()),
            stack: STACK,
            life: Arc::new(move |incarnation, heartbeat, control| {
                // Only the first life continues from the checkpoint.
                let saved = saved.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                let build = || run.rollout(actor as u32, incarnation, saved, heartbeat, sender.clone());
                live(build, control, heartbeat)
            }),
        };
        children.push((spec, incarnation));
    }
    for index in 0..run.inference_actors() {
        let shared = Arc::clone(run);
        let spec = ChildSpec {
            name: format!("inference {index}"),
            kind: ChildKind::Inference,
            control: Arc::default(),
            budget: budget(),
            timeout: None,
            stack: STACK,
            life: Arc::new(move |_, heartbeat, control| {
                live(|| Ok(shared.inference_server(index)), control, heartbeat)
            }),
        };
        children.push((spec, 0));
    }
    Tree { children, cutter: Cutter { controls, snapshots: snapshot_receiver } }
}

impl<'a> Root<'a> {
    fn start<L: Learning>(
        tree: Tree<L::Snapshot>,
        learner: L,
        done: flume::Sender<L>,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let (reports, events) = mpsc::channel(16 * (tree.children.len() + 1));
        let start = |(spec, incarnation)| Guardian::new(spec, incarnation, reports.clone()).start();
        let guardians = tree.children.into_iter().map(start).collect();
        let learner = learner_spec(CuttingLearner::new(learner, tree.cutter, done));
        let learner = Guardian::new(learner, 0, reports.clone()).start();
        Self { observer, events, guardians, learner }
    }

    /// Watches until something ends the run; the learner has ended when this returns, unless it hangs.
    async fn watch(&mut self, interrupt: &Interrupt) -> Ending {
        let mut tick = tokio::time::interval(TICK);
        let mut ending = None;
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                _ = tick.tick() => None,
            };
            match event {
                Some(Event::Restarting { kind }) => self.observer.restarted(kind.as_str()),
                Some(Event::Ended { kind: ChildKind::Learner, status, .. }) => {
                    return match (ending, status) {
                        // The first failure is the cause; but nothing else hides that the learner failed in stopping.
                        (Some(failed @ Ending::Failed(_)), _) => failed,
                        (_, failure) if failure.is_failure() => Ending::Failed(format!("learner: {failure}")),
                        (Some(ending), _) => ending,
                        (None, ExitStatus::Completed) => Ending::Completed(String::new()),
                        (None, _) => Ending::Interrupted("stopped".into()),
                    };
                }
                // A rollout actor ends by itself only when the learner has closed the queue.
                Some(Event::Ended { name, status, .. }) if status.is_failure() => {
                    let cause = format!("{name} failed more often than supervision allows; last: {status}");
                    ending.get_or_insert(Ending::Failed(cause));
                    self.stop_learner().await;
                }
                Some(Event::Hung { name, env, silence }) => {
                    let place = env.map(|env| format!(" in environment {env}")).unwrap_or_default();
                    let seconds = silence.as_secs_f64();
                    let cause =
                        format!("{name} has been silent{place} for {seconds:.1} s (env.timeout_seconds)");
                    ending.get_or_insert(Ending::Failed(cause));
                    self.stop_learner().await;
                }
                Some(Event::Ended { .. }) => {}
                None => {
                    self.observer.tick();
                    if let (None, Some(signal)) = (&ending, interrupt.signal()) {
                        ending = Some(Ending::Interrupted(format!("stopped by {signal}")));
                        self.stop_learner().await;
                    }
                }
            }
        }
    }

    async fn stop_learner(&self) {
        tell(&self.learner, Order::Stop).await;
    }

    /// Tells everybody to stop and waits for the threads.
    async fn stop(&mut self) {
        for guardian in &self.guardians {
            tell(guardian, Order::Stop).await;
        }
        let deadline = Instant::now() + GRACE;
        for guardian in &self.guardians {
            while guardian.send(IsAlive).await.unwrap_or(false) {
                if Instant::now() >= deadline {
                    self.observer.detached();
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        self.observer.tick();
    }
}

/// Passes an order on; a guardian that is gone has no child any more.
async fn tell(guardian: &Addr<Guardian>, order: Order) {
    if let Err(error) = guardian.send(Tell(order)).await {
        tracing::debug!("order {order:?} not delivered: {error}");
    }
}

/// The learner is never restarted and may take as long as it needs.
fn learner_spec<L: Learning>(learner: CuttingLearner<L>) -> ChildSpec {
    let learner = std::sync::Mutex::new(Some(learner));
    ChildSpec {
        name: "learner".into(),
        kind: ChildKind::Learner,
        control: Arc::default(),
        budget: None,
        timeout: None,
        stack: STACK,
        life: Arc::new(move |_, heartbeat: &Arc<Heartbeat>, control| {
            let taken = learner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            let Some(learner) = taken else { return ExitStatus::Panicked("it has ended before".into()) };
            live_learner(learner, control, heartbeat, PATIENCE)
        }),
    }
}
