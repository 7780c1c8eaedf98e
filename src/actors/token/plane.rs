//! The token workload's plane: which groups are in flight, who has them, and what becomes of them.
//!
//! The pure [`FlowScheduler`] decides; this module tells it what happened and carries out what it says (`command`).
//! Generators take members, stop them on its word and bring back graded trajectories; complete groups wait here until
//! they are a batch, which the learner takes whole. One lock guards it all; nothing that takes time happens under it
//! but making a problem's prompt.
//!
//! Invariants:
//! - How many answers a group is made of is settled when it is launched, and stays so over restarts and checkpoints.
//! - A member is in one place: nowhere yet, stopped and here, with one generator, or ended and here.
//! - A group becomes ready with all of its answers ended, exactly once; or it is dropped with a reason, and the
//!   scheduler puts another in its place.
//! - The learner gets a batch only when nothing that was to stop for it is still being generated, and generators that give
//!   their memory back for it have done so.
//! - Groups that are dropped one after another without one that stays end the run with an error that says why.

mod command;
mod completion;
mod figures;
mod open;
mod problems;
mod records;
mod snapshot;
#[cfg(test)]
mod tests;
mod traced;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use open::{At, HostCache, Open, Seat};
pub use records::{
    BegunMember, Complete, Ended, FlightFigures, GroupCounts, GroupKey, Member, OpenSnapshot, Order,
    PlaneSnapshot, ReadyGroup, SeatSnapshot, StandingGroup, Stored, Tracked,
};
pub use snapshot::Tickets;

use crate::actors::parameter_bus::Published;
use crate::env::task::{Prompts, Task};
use crate::learner::token::TokenLearnerConfig;
use crate::policy::Tokenizer;
use crate::schedule::axes::{EngineLoad, RoundEnd, WeightPush};
use crate::schedule::flow::{FlowEvent, FlowScheduler, FlowSettings, MemberId};
use crate::schedule::trace::TraceWriter;
use crate::trajectory::{DropReason, TrajectoryId, Version};

/// Most groups a run gives up one after another, in batches, before it ends.
const FRUITLESS_BATCHES: u64 = 16;

/// What the plane is made of.
pub struct PlaneParts {
    /// The task.
    pub task: Arc<dyn Task>,
    /// Its problems' prompts are encoded with it.
    pub tokenizer: Arc<Tokenizer>,
    /// What groups are made of, and what is learned from them.
    pub learner: TokenLearnerConfig,
    /// Positions of the model's context.
    pub context: usize,
    /// Positions of stopped members whose keys and values are kept.
    pub host_cache_tokens: usize,
    /// Generators.
    pub generators: usize,
    /// Whether the run is a function of its settings alone, so that its schedule must not know the time.
    pub serial: bool,
    /// The order of the problems.
    pub prompts: Prompts,
    /// The schedule.
    pub scheduler: FlowScheduler,
    /// Where every event and command is written, if anywhere.
    pub trace: Option<TraceWriter>,
    /// The initial policy, or that of a checkpoint with the older versions that are still generated with; the latest
    /// first.
    pub history: VecDeque<Arc<Published>>,
}

struct State {
    scheduler: FlowScheduler,
    trace: Option<TraceWriter>,
    /// What happened and is not dealt with.
    events: VecDeque<FlowEvent>,
    /// Whether commands are being carried out.
    obeying: bool,
    /// Answers that have ended, and what a checkpoint's clock showed.
    answers: f64,
    prompts: Prompts,
    /// Problems of each source that were drawn and not given to a group.
    drawn: Vec<VecDeque<GroupKey>>,
    /// Groups that have a problem and are not complete.
    open: BTreeMap<u64, Open>,
    ids: BTreeMap<GroupKey, u64>,
    /// Members that wait for a generator, in the order in which they were let go; their groups may have no problem yet.
    runnable: VecDeque<MemberId>,
    /// Complete groups that are to be graded as a whole.
    whole: VecDeque<u64>,
    /// Complete groups that stay.
    ready: BTreeMap<u64, ReadyGroup>,
    /// The batch that the learner is to take.
    batch: Option<Vec<ReadyGroup>>,
    /// For each generator.
    orders: Vec<VecDeque<Order>>,
    /// Keys and values of members that were stopped.
    cache: HostCache,
    /// Members that were told to stop and have not.
    pausing: BTreeSet<MemberId>,
    /// Generators that have memory which they will give back for the learner's turn.
    lent: BTreeSet<usize>,
    /// What each engine shows.
    loads: Vec<EngineLoad>,
    history: VecDeque<Arc<Published>>,
    counts: GroupCounts,
    /// Most answers in flight since somebody asked.
    most_in_flight: u64,
    tracked: Tracked,
    fatal: Option<String>,
    closed: bool,
    /// Counts changes, so that whoever looked before one does not wait for it.
    signals: u64,
}

/// The scheduler's clock. It goes on from where a checkpoint left it.
enum Clock {
    /// Seconds.
    Wall {
        /// When it was started.
        since: Instant,
        /// What it showed then.
        base: f64,
    },
    /// A second for each answer that ends.
    Answers,
}

/// See the module's documentation.
pub struct Plane {
    task: Arc<dyn Task>,
    tokenizer: Arc<Tokenizer>,
    learner: TokenLearnerConfig,
    context: usize,
    settings: FlowSettings,
    state: Mutex<State>,
    changed: Condvar,
    clock: Clock,
}

impl Plane {
    /// A plane with nothing in flight.
    #[must_use]
    pub fn new(parts: PlaneParts) -> Self {
        let base = parts.scheduler.now();
        let clock = if parts.serial { Clock::Answers } else { Clock::Wall { since: Instant::now(), base } };
        let settings = parts.scheduler.settings().clone();
        let state = State {
            scheduler: parts.scheduler,
            trace: parts.trace,
            events: VecDeque::new(),
            obeying: false,
            answers: base,
            prompts: parts.prompts,
            drawn: vec![VecDeque::new(); settings.sources.len()],
            open: BTreeMap::new(),
            ids: BTreeMap::new(),
            runnable: VecDeque::new(),
            whole: VecDeque::new(),
            ready: BTreeMap::new(),
            batch: None,
            orders: vec![VecDeque::new(); parts.generators],
            cache: HostCache { most: parts.host_cache_tokens, used: 0, refused: 0 },
            pausing: BTreeSet::new(),
            lent: BTreeSet::new(),
            loads: vec![EngineLoad::default(); parts.generators],
            history: parts.history,
            counts: GroupCounts::default(),
            most_in_flight: 0,
            tracked: Tracked::default(),
            fatal: None,
            closed: false,
            signals: 0,
        };
        Self {
            task: parts.task,
            tokenizer: parts.tokenizer,
            learner: parts.learner,
            context: parts.context,
            settings,
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schedule.
    #[must_use]
    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Generation begins: the initial policy, or that of a checkpoint, is ready.
    pub fn start(&self, latest: Arc<Published>) {
        let mut state = self.lock();
        state.history[0] = latest;
        if let Some(offer) = self.look_ahead(&mut state) {
            self.tell(&mut state, offer);
        }
        self.tell(&mut state, FlowEvent::Started);
    }

    /// The learner published a version.
    pub fn published(&self, published: Arc<Published>) {
        let mut state = self.lock();
        state.history.push_front(published);
        self.tell(&mut state, FlowEvent::Published);
        // Versions that generators are told to load never go backwards.
        let oldest = Version(state.scheduler.loaded().unwrap_or_default());
        state.history.retain(|published| published.version >= oldest);
    }

    /// The learner made nothing of its batch.
    pub fn skipped(&self) {
        self.tell(&mut self.lock(), FlowEvent::Skipped);
    }

    /// Time has passed; for schedules that go by it.
    pub fn tick(&self) {
        if matches!(self.settings.push, WeightPush::Interval { .. }) {
            self.tell(&mut self.lock(), FlowEvent::Tick);
        }
    }

    /// What an engine shows; for schedules that go by it.
    pub fn observe(&self, generator: usize, load: EngineLoad) {
        if self.settings.admission.throttle.is_none() {
            return;
        }
        let mut state = self.lock();
        state.loads[generator] = load;
        let all = state.loads.iter().fold(EngineLoad::default(), |all, load| EngineLoad {
            active: all.active + load.active,
            queued: all.queued + load.queued,
            kv_use: all.kv_use.max(load.kv_use),
            preemptions: all.preemptions + load.preemptions,
        });
        state.loads[generator].preemptions = 0;
        self.tell(&mut state, FlowEvent::Load { load: all });
    }

    /// The spread of importance ratios that an update found; for schedules that go by it.
    pub fn measured(&self, spread: f64) {
        if matches!(self.settings.push, WeightPush::Adaptive { .. }) {
            self.tell(&mut self.lock(), FlowEvent::Measured { spread });
        }
    }

    /// An update was made: what was graded since the one before moves the pass rates.
    pub fn fold_passes(&self) {
        self.fold(&mut self.lock());
    }

    fn fold(&self, state: &mut State) {
        if let Some(rubric) = self.learner.advantage.rubric() {
            state.tracked.pass_rates.fold(rubric.decay);
        }
    }

    /// The weights that generators are to use now.
    #[must_use]
    pub fn weights(&self) -> Option<Arc<Published>> {
        let state = self.lock();
        let version = Version(state.scheduler.loaded()?);
        state.history.iter().find(|published| published.version == version).cloned()
    }

    /// What a generator is to do with members that it has, in order.
    #[must_use]
    pub fn orders(&self, generator: usize) -> VecDeque<Order> {
        std::mem::take(&mut self.lock().orders[generator])
    }

    /// Whether a generator has fewer members than come to each when those that wait are shared out too.
    #[must_use]
    pub fn is_short(&self, generator: usize) -> bool {
        let state = self.lock();
        let mut counts = vec![0_usize; state.orders.len()];
        for seat in state.open.values().flat_map(|open| &open.seats) {
            if let At::With(owner) = seat.at {
                counts[owner] += 1;
            }
        }
        let all = counts.iter().sum::<usize>() + state.runnable.len();
        counts[generator] < all.div_ceil(counts.len())
    }

    /// Members of one group for a generator, if any wait.
    #[must_use]
    pub fn take(&self, generator: usize) -> Option<Vec<Member>> {
        let mut state = self.lock();
        let group = loop {
            let group = state.runnable.front()?.group;
            if state.fatal.is_some() {
                return None;
            }
            if state.open.contains_key(&group) || self.open(&mut state, group) {
                break group;
            }
        };
        let State { open, runnable, scheduler, cache, .. } = &mut *state;
        let open = open.get_mut(&group)?;
        let loaded = Version(scheduler.loaded().unwrap_or_default());
        let keeps = |version: Version| self.settings.resume.keeps_kv(version != loaded);
        let mut members = Vec::new();
        while let Some(id) = runnable.pop_front_if(|id| id.group == group) {
            let Some(mut member) = open.hand_out(id.member, generator, cache, keeps) else { continue };
            if let RoundEnd::Budget { tokens } = self.settings.round_end {
                // What was stopped in the middle of a round has what was left of its budget. What has ended for the
                // schedule and is made again for its grade has none: nobody would let it go on.
                let actions = member.trajectory.action_count();
                let left = member.pause_at.filter(|most| *most > actions);
                let budget = left.unwrap_or(actions + tokens as usize);
                member.pause_at = scheduler.is_in_flight(id).then_some(budget);
            }
            members.push(member);
        }
        Some(members)
    }

    /// A complete group to be graded as a whole, if one waits for that.
    #[must_use]
    pub fn take_whole(&self, generator: usize) -> Option<Complete> {
        let mut state = self.lock();
        let State { whole, open, .. } = &mut *state;
        let group = whole.pop_front()?;
        let open = open.get_mut(&group)?;
        open.grader = Some(generator);
        let graded = open.ended().filter(|(_, ended)| ended.trajectory.reward.is_some());
        let of_member = |(member, ended): (u32, &Ended)| {
            (Arc::clone(&open.asked(member).problem), ended.trajectory.clone())
        };
        Some(Complete { group, problem: Arc::clone(&open.problem), graded: graded.map(of_member).collect() })
    }

    /// Groups that are launched from now on are made of so many answers; those that are in flight stay as they are.
    pub fn set_answers(&self, answers: usize) {
        self.tell(&mut self.lock(), FlowEvent::Members { members: answers as u32 });
    }

    /// Nothing more comes: gives up what waits here, each for its own reason.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.open.clear();
        state.ready.clear();
        state.batch = None;
        self.signal(&mut state);
    }

    /// A generator lost all it had: those of its members that may be repeated begin anew, with random draws of their
    /// own.
    pub fn lost(&self, generator: usize) {
        let mut state = self.lock();
        state.orders[generator].clear();
        state.lent.remove(&generator);
        let State { open, whole, .. } = &mut *state;
        let mut lost = Vec::new();
        for (&group, open) in open.iter_mut() {
            if open.grader == Some(generator) {
                open.grader = None;
                whole.push_back(group);
            }
            for (member, seat) in (0_u32..).zip(&mut open.seats) {
                if matches!(seat.at, At::With(owner) if owner == generator) {
                    seat.at = At::Fresh;
                    lost.push((MemberId { group, member }, seat.told));
                }
            }
        }
        for (id, told) in lost {
            state.pausing.remove(&id);
            if told {
                // For the schedule it has ended: only its grade is missing.
                command::begin_anew(&mut state, id);
            } else {
                self.tell(&mut state, FlowEvent::Lost { id });
            }
        }
        self.signal(&mut state);
    }

    /// How often something changed so far; for [`Self::wait`].
    #[must_use]
    pub fn signals(&self) -> u64 {
        self.lock().signals
    }

    /// Waits until something has changed since `seen`, at most `patience`.
    pub fn wait(&self, seen: u64, patience: Duration) {
        let state = self.lock();
        let unchanged = |state: &mut State| state.signals == seen;
        drop(
            self.changed
                .wait_timeout_while(state, patience, unchanged)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        self.signal(&mut self.lock());
    }

    fn signal(&self, state: &mut State) {
        state.signals += 1;
        self.changed.notify_all();
    }
}
