//! What becomes of a group once its members have ended: graded as a whole where the task does that, then to the learner
//! or dropped. Whether a group says anything is judged by all of its answers; where only some are kept
//! (`learner.keep`), the others are dropped for that reason before the group enters the queue.
//!
//! A group that waits for a grader of groups stays open with its generator: it is in a checkpoint like any other, and
//! begins anew if the generator is lost. When such a grader fails, a rubric keeps the members' own grades: where those
//! lack its scores, the plain advantages stay. Any other advantage has no use for half a grade, and the group is dropped
//! as not graded. In neither case is anything taken for reward 0.

use std::sync::Arc;
use std::time::Duration;

use super::open::Open;
use super::records::{Complete, Ended, GroupKey, ReadyGroup};
use super::{FRUITLESS_BATCHES, Plane, State};
use crate::env::task::GradeError;
use crate::learner::token::{GroupRewards, Keep};
use crate::schedule::Event;
use crate::trajectory::{DropReason, Group, Reward, Trajectory, Version};

impl Plane {
    /// A member has ended. The group that it completes is handed back to be graded as a whole, or goes to the learner,
    /// or is dropped.
    #[must_use]
    pub fn ended(&self, mut ended: Ended) -> Option<Complete> {
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
            return None;
        };
        open.members.insert(id.member, ended);
        self.settle(&mut state, key)
    }

    /// What follows when all members of a group have ended, as after a checkpoint that was taken at that moment.
    #[must_use]
    pub fn all_ended(&self, key: GroupKey) -> Option<Complete> {
        self.settle(&mut self.lock(), key)
    }

    /// The grades of a group as a whole, or why there are none.
    pub fn group_judged(&self, key: GroupKey, attempt: u16, grades: Result<Vec<Reward>, GradeError>) {
        let mut state = self.lock();
        let whole = |open: &&mut Open| open.attempt == attempt && open.is_whole();
        // Of an attempt that was given up, otherwise.
        let Some(open) = state.open.get_mut(&key).filter(whole) else { return };
        let graded = open.members.values_mut().filter(|ended| ended.trajectory.reward.is_some());
        match grades {
            Ok(grades) => {
                graded.zip(grades).for_each(|(ended, grade)| ended.trajectory.reward = Some(grade));
            }
            Err(error) => {
                let keep = self.learner.advantage.rubric().is_some();
                tracing::warn!("group {}/{} was not graded as a whole: {error}", key.0, key.1);
                if !keep {
                    graded.for_each(|ended| ended.trajectory.reward = None);
                }
                state.counts.group_grading_errors += 1;
            }
        }
        if let Some(open) = state.open.remove(&key) {
            self.complete(&mut state, key, open);
        }
    }

    fn settle(&self, state: &mut State, key: GroupKey) -> Option<Complete> {
        let open = state.open.get(&key).filter(|open| open.is_whole())?;
        let graded = open.members.iter().filter(|(_, ended)| ended.trajectory.reward.is_some());
        let graded: Vec<_> = if self.task.grades_groups() { graded.collect() } else { Vec::new() };
        if graded.is_empty() {
            let open = state.open.remove(&key)?;
            self.complete(state, key, open);
            return None;
        }
        let of_member = |(&member, ended): (&u16, &Ended)| {
            (Arc::clone(&open.asked(member).problem), ended.trajectory.clone())
        };
        Some(Complete {
            key,
            attempt: open.attempt,
            problem: Arc::clone(&open.problem),
            graded: graded.into_iter().map(of_member).collect(),
        })
    }

    fn complete(&self, state: &mut State, key: GroupKey, open: Open) {
        let error = open.members.values().find_map(|ended| ended.error.clone());
        let (trajectories, tickets): (Vec<_>, Vec<_>) =
            open.members.into_values().map(|ended| (ended.trajectory, ended.ticket)).unzip();
        let group = Group {
            epoch: key.0,
            prompt: key.1,
            source: Arc::clone(&open.problem.source),
            budget: open.problem.budget(),
            members: trajectories,
        };
        let version = Version(state.scheduler.admission().version());
        let ready = ReadyGroup { group, tickets, others: Vec::new(), queued_at: version };
        let Some(last) = ready.group.rewards().into_iter().flatten().next() else {
            state.counts.ungraded += 1;
            ready.discard(DropReason::GradingFailed);
            let error = error.map_or_else(String::new, |error| format!(" (the last: {error})"));
            return self
                .given_up(state, &format!("no answer could be graded{error}; correct what grades them"));
        };
        match self.says_something(state, &ready.group, version) {
            Ok(true) => {}
            Ok(false) => {
                state.counts.zero_variance += 1;
                ready.discard(DropReason::ZeroVariance);
                let why = format!(
                    "every group's rewards were all alike (the last: {last}); make the task easier or the model \
                     better (a warm-up), sample more members a group, or set learner.drop_zero_variance = false"
                );
                return self.given_up(state, &why);
            }
            Err(why) => {
                ready.discard(DropReason::GradingFailed);
                state.fatal.get_or_insert(why);
                return;
            }
        }
        let ready = match self.kept(state, ready, version) {
            Ok(ready) => ready,
            Err(why) => {
                state.fatal.get_or_insert(why);
                return;
            }
        };
        state.tracked.fruitless = 0;
        if self.queue.offer(ready, Duration::ZERO).is_err() {
            // Only when the queue is closed, at the end of a run; the tickets book the rest.
            return;
        }
        self.tell(state, Event::Accepted);
    }

    /// What the learner gets of a group, all of whose answers have been looked at.
    fn kept(&self, state: &State, ready: ReadyGroup, version: Version) -> Result<ReadyGroup, String> {
        let config = &self.learner;
        if config.keep == Keep::All {
            return Ok(ready);
        }
        let grading = state.tracked.pass_rates.grading(config, &ready.group.source);
        let rewards = GroupRewards::of(config, &ready.group, grading, version);
        let rewards = rewards.map_err(|error| error.to_string())?.rewards();
        let cut_off = |member: &Trajectory| member.finish.is_some_and(|finish| !finish.is_terminal());
        let learned = |member: &Trajectory| !(config.mask_truncated && cut_off(member));
        let learned: Vec<bool> = ready.group.members.iter().map(learned).collect();
        Ok(ready.keep(&config.keep.members(&rewards, &learned)))
    }

    /// Counts the passes of a graded group; whether it is to be learned from.
    fn says_something(&self, state: &mut State, group: &Group, version: Version) -> Result<bool, String> {
        let (config, drops) = (&self.learner, self.learner.drop_zero_variance);
        if !drops && config.advantage.rubric().is_none() {
            return Ok(true);
        }
        let grading = state.tracked.pass_rates.grading(config, &group.source);
        let rewards = GroupRewards::of(config, group, grading, version).map_err(|error| error.to_string())?;
        if config.advantage.rubric().is_some() {
            state.tracked.pass_rates.count(&group.source, rewards.passes());
        }
        let compared = rewards.compared(config, &rewards.rewards()).map_err(|error| error.to_string())?;
        Ok(!(drops && compared.is_some_and(|compared| compared.zero_variance)))
    }

    /// A group is dropped and another ordered in its place, unless that went on for too long. `why` says what to do.
    pub(super) fn given_up(&self, state: &mut State, why: &str) {
        state.tracked.fruitless += 1;
        let most = FRUITLESS_BATCHES * state.scheduler.admission().batch();
        if state.tracked.fruitless >= most {
            state.fatal.get_or_insert(format!("{most} groups in a row left nothing to learn from: {why}"));
            return;
        }
        // Where a whole batch was dropped there may be no update for long, and sources that are solved by now should
        // not be graded as if they were not.
        if state.tracked.fruitless.is_multiple_of(state.scheduler.admission().batch()) {
            self.fold(state);
        }
        self.tell(state, Event::Rejected);
    }
}
