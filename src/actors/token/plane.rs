//! The token workload's plane: which groups are in flight, who has them, and what becomes of them.
//!
//! Generators take groups and bring back graded trajectories; the learner draws whole groups from the queue and says
//! what it did with them. Between them stands the pure [`Scheduler`]; this module carries out its commands. One lock
//! guards it all; nothing that takes time happens under it but making a problem's prompt.
//!
//! Invariants:
//! - A group enters the queue whole, with all of its members ended, exactly once; or it is dropped with a reason, and
//!   the scheduler puts another in its place.
//! - The queue has room for all that the scheduler lets run ahead, so that entering it never waits.
//! - Groups that are dropped one after another without one that stays end the run with an error that says why.

mod records;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use records::{Ended, GroupCounts, GroupKey, Job, Member, OpenSnapshot, PlaneSnapshot, ReadyGroup};

use super::conversation::prompt_ids;
use crate::actors::parameter_bus::Published;
use crate::actors::queue::QueueSender;
use crate::env::task::{Problem, PromptPosition, Prompts, Split, Task};
use crate::policy::Tokenizer;
use crate::schedule::{Command, Event, Scheduler};
use crate::trajectory::{BufferedTicket, DropReason, Group, Trajectory, TrajectoryId, Version};

/// Most groups a run gives up one after another, in batches, before it ends.
const FRUITLESS_BATCHES: u64 = 16;

/// What the plane is made of.
pub struct PlaneParts {
    /// The task.
    pub task: Arc<dyn Task>,
    /// Its problems' prompts are encoded with it.
    pub tokenizer: Arc<Tokenizer>,
    /// Members of a group.
    pub group_size: usize,
    /// Positions of the model's context.
    pub context: usize,
    /// Whether groups whose rewards are all alike are dropped and refilled.
    pub drop_zero_variance: bool,
    /// Generators.
    pub generators: usize,
    /// The learner's queue.
    pub queue: QueueSender<ReadyGroup>,
    /// The order of the problems.
    pub prompts: Prompts,
    /// The schedule.
    pub scheduler: Scheduler,
    /// The initial policy, or that of a checkpoint with the older versions that are still generated with; the latest
    /// first.
    pub history: VecDeque<Arc<Published>>,
}

/// A group that is not complete.
#[derive(Debug)]
struct Open {
    problem: Arc<Problem>,
    prompt: Arc<[u32]>,
    members: BTreeMap<u16, Ended>,
    /// Which generator has it; `None` while it waits for one.
    owner: Option<usize>,
    attempt: u16,
}

struct State {
    scheduler: Scheduler,
    prompts: Prompts,
    open: BTreeMap<GroupKey, Open>,
    /// Groups that wait for a generator, in order of their dispatch.
    waiting: VecDeque<(GroupKey, Vec<Member>)>,
    /// Groups that were ordered and have no problem yet.
    ordered: u64,
    history: VecDeque<Arc<Published>>,
    counts: GroupCounts,
    fruitless: u64,
    fatal: Option<String>,
    /// Counts changes, so that whoever looked before one does not wait for it.
    signals: u64,
}

/// See the module's documentation.
pub struct Plane {
    task: Arc<dyn Task>,
    tokenizer: Arc<Tokenizer>,
    group_size: usize,
    context: usize,
    drop_zero_variance: bool,
    generators: usize,
    queue: QueueSender<ReadyGroup>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Plane {
    /// A plane with nothing in flight.
    #[must_use]
    pub fn new(parts: PlaneParts) -> Self {
        let state = State {
            scheduler: parts.scheduler,
            prompts: parts.prompts,
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            ordered: 0,
            history: parts.history,
            counts: GroupCounts::default(),
            fruitless: 0,
            fatal: None,
            signals: 0,
        };
        Self {
            task: parts.task,
            tokenizer: parts.tokenizer,
            group_size: parts.group_size,
            context: parts.context,
            drop_zero_variance: parts.drop_zero_variance,
            generators: parts.generators,
            queue: parts.queue,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Generation begins: the initial policy, or that of a checkpoint, is ready.
    pub fn start(&self, latest: Arc<Published>) {
        let mut state = self.lock();
        state.history[0] = latest;
        self.tell(&mut state, Event::Started);
    }

    /// The learner published a version.
    pub fn published(&self, published: Arc<Published>) {
        let mut state = self.lock();
        state.history.push_front(published);
        self.tell(&mut state, Event::Published);
        // Versions that generators are told to load never go backwards.
        let oldest = Version(state.scheduler.loaded().unwrap_or_default());
        state.history.retain(|published| published.version >= oldest);
    }

    /// Versions before the latest that generators use or will be told to use, oldest last.
    #[must_use]
    pub fn older_versions(&self) -> Vec<Arc<Published>> {
        self.lock().history.iter().skip(1).cloned().collect()
    }

    /// The learner threw a group of its queue away.
    pub fn discarded(&self, groups: usize) {
        let mut state = self.lock();
        for _ in 0..groups {
            self.tell(&mut state, Event::Discarded);
        }
    }

    /// The weights that generators are to use now.
    #[must_use]
    pub fn weights(&self) -> Option<Arc<Published>> {
        let state = self.lock();
        let version = Version(state.scheduler.loaded()?);
        state.history.iter().find(|published| published.version == version).cloned()
    }

    /// A group for a generator, if one waits. With several generators each takes its share of what is there.
    pub fn take(&self, generator: usize) -> Option<Job> {
        let mut state = self.lock();
        while state.waiting.is_empty() && state.ordered > 0 && state.fatal.is_none() {
            state.ordered -= 1;
            self.order(&mut state);
        }
        let (key, members) = state.waiting.pop_front()?;
        let open = state.open.get_mut(&key)?;
        open.owner = Some(generator);
        Some(Job { key, problem: Arc::clone(&open.problem), members })
    }

    /// How many batches generation may be ahead of learning.
    #[must_use]
    pub fn lead(&self) -> u64 {
        self.lock().scheduler.lead()
    }

    /// Number of generators that share the work.
    #[must_use]
    pub fn generators(&self) -> usize {
        self.generators
    }

    /// Nothing more comes: gives up what had ended of groups that are not complete, each member for its own reason.
    pub fn close(&self) {
        self.lock().open.clear();
    }

    /// A member has ended. The group that it completes goes to the learner, or is dropped.
    pub fn ended(&self, mut ended: Ended) {
        let mut state = self.lock();
        let id = ended.trajectory.id;
        let key = (id.epoch, id.prompt);
        if ended.error.is_some() {
            state.counts.grading_errors += 1;
            ended.ticket = ended.ticket.useless(DropReason::GradingFailed);
        }
        let Some(open) = state.open.get_mut(&key).filter(|open| open.attempt == id.attempt) else {
            // Of an attempt that was given up.
            ended.ticket.discard(DropReason::ActorRestart);
            return;
        };
        open.members.insert(id.member, ended);
        if open.members.len() == self.group_size
            && let Some(open) = state.open.remove(&key)
        {
            self.complete(&mut state, key, open);
        }
    }

    /// A generator lost all it had: its groups begin anew, with random draws of their own.
    pub fn lost(&self, generator: usize) {
        let mut state = self.lock();
        let State { open, waiting, .. } = &mut *state;
        for (key, open) in open.iter_mut().filter(|(_, open)| open.owner == Some(generator)) {
            open.owner = None;
            open.attempt += 1;
            for (_, ended) in std::mem::take(&mut open.members) {
                ended.ticket.discard(DropReason::ActorRestart);
            }
            waiting.push_back((*key, members(*key, open.attempt, &open.prompt, self.group_size)));
        }
        self.signal(&mut state);
    }

    /// Why the run cannot go on.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        self.lock().fatal.clone()
    }

    /// What became of groups so far.
    #[must_use]
    pub fn counts(&self) -> GroupCounts {
        self.lock().counts
    }

    /// Passes over the task's problems, the unfinished one as a fraction; 0 when there is no end to them.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        let PromptPosition { epoch, taken, len } = self.lock().prompts.position();
        f64::from(epoch) + len.map_or(0.0, |len| f64::from(taken) / f64::from(len.max(1)))
    }

    /// Groups that are not complete.
    #[must_use]
    pub fn open_groups(&self) -> usize {
        let state = self.lock();
        state.open.len() + state.ordered as usize
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

    /// The plane at an update border, with what the generators show of the members that have begun; and how many
    /// groups were ordered that have no problem yet.
    #[must_use]
    pub fn snapshot(&self, begun: &[Trajectory]) -> (PlaneSnapshot, u64) {
        let state = self.lock();
        let open = state.open.iter().map(|(&key, open)| {
            let of_group = |t: &&Trajectory| (t.id.epoch, t.id.prompt) == key && t.id.attempt == open.attempt;
            OpenSnapshot {
                key,
                attempt: open.attempt,
                ended: open.members.values().map(|ended| ended.trajectory.clone()).collect(),
                begun: begun.iter().filter(of_group).cloned().collect(),
            }
        });
        let snapshot = PlaneSnapshot {
            scheduler: state.scheduler.clone(),
            prompts: state.prompts.position(),
            open: open.collect(),
        };
        (snapshot, state.ordered)
    }

    /// Takes up the open groups of a checkpoint; `buffered` makes the ticket of a member that has ended.
    ///
    /// # Errors
    /// When a problem is no longer there.
    pub fn restore(
        &self,
        snapshots: Vec<OpenSnapshot>,
        ordered: u64,
        mut buffered: impl FnMut(&Trajectory) -> BufferedTicket,
    ) -> Result<(), String> {
        let mut state = self.lock();
        state.ordered = ordered;
        for OpenSnapshot { key, attempt, ended, begun } in snapshots {
            let problem = self.task.problem(Split::Train, key.1).map_err(|error| error.to_string())?;
            let prompt: Arc<[u32]> =
                prompt_ids(&self.tokenizer, &problem).map_err(|error| error.to_string())?.into();
            let ended: BTreeMap<u16, Ended> = ended
                .into_iter()
                .map(|trajectory| {
                    let ticket = buffered(&trajectory);
                    (trajectory.id.member, Ended { trajectory, ticket, error: None })
                })
                .collect();
            let mut rest = members(key, attempt, &prompt, self.group_size);
            rest.retain(|member| !ended.contains_key(&member.trajectory.id.member));
            for member in &mut rest {
                if let Some(begun) = begun.iter().find(|begun| begun.id == member.trajectory.id) {
                    let trajectory = Trajectory { prompt: Arc::clone(&prompt), ..begun.clone() };
                    *member = Member { trajectory, begun: true };
                }
            }
            let problem = Arc::new(problem);
            state.open.insert(key, Open { problem, prompt, members: ended, owner: None, attempt });
            state.waiting.push_back((key, rest));
        }
        Ok(())
    }

    fn tell(&self, state: &mut State, event: Event) {
        for command in state.scheduler.on(event) {
            if let Command::Dispatch(groups) = command {
                state.ordered += groups;
            }
        }
        self.signal(state);
    }

    /// Makes the next problem into a waiting group.
    fn order(&self, state: &mut State) {
        let (epoch, prompt) = state.prompts.next();
        let made = self.task.problem(Split::Train, prompt).map_err(|error| error.to_string());
        let encoded = made.and_then(|problem| {
            let ids = prompt_ids(&self.tokenizer, &problem).map_err(|error| error.to_string())?;
            Ok((problem, ids))
        });
        match encoded {
            Err(why) => {
                state.fatal.get_or_insert(format!("problem {prompt} of the task: {why}"));
            }
            Ok((_, ids)) if ids.len() >= self.context || ids.is_empty() => {
                state.counts.too_long += 1;
                let why = format!(
                    "the prompt of problem {prompt} has {} tokens, and the model's context {}",
                    ids.len(),
                    self.context
                );
                tracing::warn!("{why}; the problem is left out");
                self.given_up(state, &why);
            }
            Ok((problem, ids)) => {
                let key = (epoch, prompt);
                let prompt: Arc<[u32]> = ids.into();
                let rest = members(key, 0, &prompt, self.group_size);
                let problem = Arc::new(problem);
                let open = Open { problem, prompt, members: BTreeMap::new(), owner: None, attempt: 0 };
                state.open.insert(key, open);
                state.waiting.push_back((key, rest));
            }
        }
    }

    fn complete(&self, state: &mut State, key: GroupKey, open: Open) {
        let (trajectories, tickets): (Vec<_>, Vec<_>) =
            open.members.into_values().map(|ended| (ended.trajectory, ended.ticket)).unzip();
        let group = Group {
            epoch: key.0,
            prompt: key.1,
            source: Arc::clone(&open.problem.source),
            members: trajectories,
        };
        let queued_at = Version(state.scheduler.admission().version());
        let ready = ReadyGroup { group, tickets, queued_at };
        let rewards: Vec<f64> = ready.group.rewards().into_iter().flatten().collect();
        if rewards.is_empty() {
            state.counts.ungraded += 1;
            ready.discard(DropReason::GradingFailed);
            return self.given_up(state, "no answer could be graded");
        }
        if self.drop_zero_variance && all_alike(&rewards) {
            state.counts.zero_variance += 1;
            ready.discard(DropReason::ZeroVariance);
            let why = format!("every group's rewards were all alike (the last: {})", rewards[0]);
            return self.given_up(state, &why);
        }
        state.fruitless = 0;
        if self.queue.offer(ready, Duration::ZERO).is_err() {
            // Only when the queue is closed, at the end of a run; the tickets book the rest.
            return;
        }
        self.tell(state, Event::Accepted);
    }

    /// A group is dropped and another ordered in its place, unless that went on for too long.
    fn given_up(&self, state: &mut State, why: &str) {
        state.fruitless += 1;
        let most = FRUITLESS_BATCHES * state.scheduler.admission().batch();
        if state.fruitless >= most {
            state.fatal.get_or_insert(format!(
                "{most} groups in a row left nothing to learn from: {why}; make the task easier or the model better \
                 (a warm-up), sample more members a group, or set learner.drop_zero_variance = false"
            ));
            return;
        }
        self.tell(state, Event::Rejected);
    }
}

/// Whether rewards are all alike, so that a group says nothing about its members' relative worth.
fn all_alike(rewards: &[f64]) -> bool {
    let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
    rewards.len() < 2 || rewards.iter().all(|reward| (reward - mean).abs() < 1e-6)
}

/// The members of a group, none of them begun.
fn members(key: GroupKey, attempt: u16, prompt: &Arc<[u32]>, count: usize) -> Vec<Member> {
    let id = |member| TrajectoryId { epoch: key.0, prompt: key.1, member, attempt };
    let member =
        |member| Member { trajectory: Trajectory::new(id(member), Arc::clone(prompt)), begun: false };
    (0..count as u16).map(member).collect()
}
