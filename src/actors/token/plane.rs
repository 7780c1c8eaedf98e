//! The token workload's plane: which groups are in flight, who has them, and what becomes of them.
//!
//! Generators take groups and bring back graded trajectories; the learner draws whole groups from the queue and says
//! what it did with them. Between them stands the pure [`Scheduler`]; this module carries out its commands. One lock
//! guards it all; nothing that takes time happens under it but making a problem's prompt.
//!
//! Invariants:
//! - How many answers a group is made of is settled when it is opened, and stays so over restarts and checkpoints.
//! - A group enters the queue with all of its answers ended, exactly once; or it is dropped with a reason, and
//!   the scheduler puts another in its place.
//! - The queue has room for all that the scheduler lets run ahead, so that entering it never waits.
//! - Groups that are dropped one after another without one that stays end the run with an error that says why.

mod completion;
mod open;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use open::Open;
pub use records::{
    Complete, Ended, GroupCounts, GroupKey, Job, Member, OpenSnapshot, PlaneSnapshot, ReadyGroup, Tracked,
};

use super::efforts;
use crate::actors::parameter_bus::Published;
use crate::actors::queue::QueueSender;
use crate::env::task::{PromptPosition, Prompts, Split, Task};
use crate::learner::token::TokenLearnerConfig;
use crate::learner::token::advantage::PassRates;
use crate::policy::Tokenizer;
use crate::schedule::{Command, Event, Scheduler};
use crate::trajectory::{BufferedTicket, DropReason, Trajectory, Version};

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
    /// Answers to each problem, until [`Plane::set_answers`] says otherwise.
    pub answers: usize,
    /// Positions of the model's context.
    pub context: usize,
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

struct State {
    scheduler: Scheduler,
    prompts: Prompts,
    open: BTreeMap<GroupKey, Open>,
    /// Answers that groups are made of when they are opened now.
    answers: usize,
    /// Groups that wait for a generator, in order of their dispatch.
    waiting: VecDeque<(GroupKey, Vec<Member>)>,
    /// Groups that were ordered and have no problem yet.
    ordered: u64,
    history: VecDeque<Arc<Published>>,
    counts: GroupCounts,
    tracked: Tracked,
    fatal: Option<String>,
    /// Counts changes, so that whoever looked before one does not wait for it.
    signals: u64,
}

/// See the module's documentation.
pub struct Plane {
    task: Arc<dyn Task>,
    tokenizer: Arc<Tokenizer>,
    learner: TokenLearnerConfig,
    context: usize,
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
            answers: parts.answers,
            waiting: VecDeque::new(),
            ordered: 0,
            history: parts.history,
            counts: GroupCounts::default(),
            tracked: Tracked::default(),
            fatal: None,
            signals: 0,
        };
        Self {
            task: parts.task,
            tokenizer: parts.tokenizer,
            learner: parts.learner,
            context: parts.context,
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

    /// Pass rates of the problems' sources, by which groups are judged now.
    #[must_use]
    pub fn pass_rates(&self) -> PassRates {
        self.lock().tracked.pass_rates.folded()
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
        Some(Job { key, members })
    }

    /// Groups that are opened from now on are made of so many answers; those that are open stay as they are.
    pub fn set_answers(&self, answers: usize) {
        self.lock().answers = answers;
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
            waiting.push_back((*key, open.members_to_come(*key)));
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
                size: open.size,
                ended: open.members.values().map(|ended| ended.trajectory.clone()).collect(),
                begun: begun.iter().filter(of_group).cloned().collect(),
            }
        });
        let snapshot = PlaneSnapshot {
            scheduler: state.scheduler.clone(),
            prompts: state.prompts.position(),
            open: open.collect(),
            tracked: state.tracked.clone(),
        };
        (snapshot, state.ordered)
    }

    /// Takes up what a checkpoint holds of the plane; `buffered` makes the ticket of a member that has ended.
    ///
    /// # Errors
    /// When a problem is no longer there.
    pub fn restore(
        &self,
        snapshots: Vec<OpenSnapshot>,
        tracked: Tracked,
        ordered: u64,
        mut buffered: impl FnMut(&Trajectory) -> BufferedTicket,
    ) -> Result<(), String> {
        let mut state = self.lock();
        state.ordered = ordered;
        state.tracked = tracked;
        for OpenSnapshot { key, attempt, size, ended, begun } in snapshots {
            let problem = self.task.problem(Split::Train, key.1).map_err(|error| error.to_string())?;
            let asked = efforts::asked(&problem, &self.learner.efforts, &self.tokenizer)
                .map_err(|error| error.to_string())?;
            let members = ended.into_iter().map(|trajectory| {
                let ticket = buffered(&trajectory);
                (trajectory.id.member, Ended { trajectory, ticket, error: None })
            });
            let members: BTreeMap<u16, Ended> = members.collect();
            let open = Open { problem: Arc::new(problem), asked, members, owner: None, attempt, size };
            let mut rest = open.members_to_come(key);
            for member in &mut rest {
                if let Some(begun) = begun.iter().find(|begun| begun.id == member.trajectory.id) {
                    let prompt = Arc::clone(&member.trajectory.prompt);
                    member.trajectory = Trajectory { prompt, ..begun.clone() };
                    member.begun = true;
                }
            }
            state.open.insert(key, open);
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
            let asked = efforts::asked(&problem, &self.learner.efforts, &self.tokenizer)
                .map_err(|error| error.to_string())?;
            Ok((problem, asked))
        });
        let (problem, asked) = match encoded {
            Ok(encoded) => encoded,
            Err(why) => {
                state.fatal.get_or_insert(format!("problem {prompt} of the task: {why}"));
                return;
            }
        };
        let unusable = |length: &usize| *length >= self.context || *length == 0;
        if let Some(length) = asked.iter().map(|asked| asked.prompt.len()).find(unusable) {
            state.counts.too_long += 1;
            let why = format!(
                "the prompt of problem {prompt} has {length} tokens, and the model's context {}",
                self.context
            );
            tracing::warn!("{why}; the problem is left out");
            return self
                .given_up(state, &format!("{why}; shorten the prompts or take a model with more context"));
        }
        let key = (epoch, prompt);
        let problem = Arc::new(problem);
        let size = state.answers;
        let open = Open { problem, asked, members: BTreeMap::new(), owner: None, attempt: 0, size };
        state.waiting.push_back((key, open.members_to_come(key)));
        state.open.insert(key, open);
    }
}
