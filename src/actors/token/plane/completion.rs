//! What becomes of a group once its members have ended: graded as a whole where the task does that, then to the learner
//! or dropped. Whether a group says anything is judged by all of its answers; where only some are kept
//! (`learner.keep`), the others are dropped for that reason before the group enters the queue.
//!
//! A group that waits for a grader of groups stays open: it is in a checkpoint like any other, and is graded by another
//! generator if its own is lost. When such a grader fails, a rubric keeps the members' own grades: where those
//! lack its scores, the plain advantages stay. Any other advantage has no use for half a grade, and the group is dropped
//! as not graded. In neither case is anything taken for reward 0.

use std::time::Instant;

use super::open::At;
use super::records::{Ended, ReadyGroup};
use super::{FRUITLESS_BATCHES, Plane, State};
use crate::env::task::GradeError;
use crate::learner::token::{GroupRewards, Keep};
use crate::schedule::flow::FlowEvent;
use crate::trajectory::{DropReason, Group, Reward, Trajectory, Version};

impl Plane {
    /// A member has ended and was graded, or could not be.
    pub fn ended(&self, mut ended: Ended) {
        self.sampled(&ended.trajectory);
        let mut state = self.lock();
        let id = ended.trajectory.id;
        if ended.error.is_some() {
            state.counts.grading_errors += 1;
            ended.ticket = ended.ticket.useless(DropReason::GradingFailed);
        }
        if state.closed {
            // The end of a run: the ticket books it.
            return;
        }
        let State { open, ids, .. } = &mut *state;
        let group = ids.get(&(id.epoch, id.prompt)).copied();
        let seat = group.and_then(|group| open.get_mut(&group)).and_then(|open| open.seat(id));
        let (Some(group), Some(seat)) = (group, seat) else {
            // Of an attempt that was given up.
            return ended.ticket.discard(DropReason::ActorRestart);
        };
        seat.at = At::Ended(Box::new(ended));
        self.settle(&mut state, group);
        self.signal(&mut state);
    }

    /// The grades of a group as a whole, or why there are none.
    pub fn group_judged(&self, group: u64, grades: Result<Vec<Reward>, GradeError>) {
        let mut state = self.lock();
        let State { open, counts, .. } = &mut *state;
        let Some(open) = open.get_mut(&group).filter(|open| open.is_whole()) else { return };
        if let Err(error) = &grades {
            tracing::warn!("group {}/{} was not graded as a whole: {error}", open.key.0, open.key.1);
            counts.group_grading_errors += 1;
        }
        if grades.is_ok() || self.learner.advantage.rubric().is_none() {
            open.regrade(&grades.unwrap_or_default());
        }
        self.complete(&mut state, group);
    }

    /// What follows when all members of a group have ended and the schedule has it graded.
    pub(super) fn settle(&self, state: &mut State, group: u64) {
        let Some(open) = state.open.get(&group).filter(|open| open.due && open.is_whole()) else { return };
        let any_graded = open.ended().any(|(_, ended)| ended.trajectory.reward.is_some());
        if !(self.task.grades_groups() && any_graded) {
            self.complete(state, group);
        } else if open.grader.is_none() && !state.whole.contains(&group) {
            state.whole.push_back(group);
        }
    }

    fn complete(&self, state: &mut State, id: u64) {
        let Some(open) = state.open.remove(&id) else { return };
        state.ids.remove(&open.key);
        let ended = open.seats.into_iter().filter_map(|seat| match seat.at {
            At::Ended(ended) => Some(*ended),
            _ => None,
        });
        let ended: Vec<Ended> = ended.collect();
        let error = ended.iter().find_map(|ended| ended.error.clone());
        let (members, tickets) = ended.into_iter().map(|ended| (ended.trajectory, ended.ticket)).unzip();
        let group = Group {
            epoch: open.key.0,
            prompt: open.key.1,
            source: std::sync::Arc::clone(&open.problem.source),
            budget: open.problem.budget(),
            members,
        };
        let version = Version(state.scheduler.version());
        let ready = ReadyGroup {
            group,
            tickets,
            others: Vec::new(),
            ready_under: version,
            ready_at: Instant::now(),
            waited: open.first_ended.map(|first| first.elapsed()).unwrap_or_default(),
        };
        let rejected = FlowEvent::Graded { group: id, keep: false };
        let Some(last) = ready.group.rewards().into_iter().flatten().next() else {
            state.counts.ungraded += 1;
            ready.discard(DropReason::GradingFailed);
            let error = error.map_or_else(String::new, |error| format!(" (the last: {error})"));
            let why = format!("no answer could be graded{error}; correct what grades them");
            return self.given_up(state, rejected, &why);
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
                return self.given_up(state, rejected, &why);
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
        if state.closed {
            // The end of a run: the tickets book the rest.
            return;
        }
        state.ready.insert(id, ready);
        self.tell(state, FlowEvent::Graded { group: id, keep: true });
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

    /// A group is dropped and another launched in its place, unless that went on for too long. `event` says so to the
    /// scheduler, `why` to the user, and what to do.
    pub(super) fn given_up(&self, state: &mut State, event: FlowEvent, why: &str) {
        state.tracked.fruitless += 1;
        let batch = self.settings.batch;
        let most = FRUITLESS_BATCHES * batch;
        if state.tracked.fruitless >= most {
            state.fatal.get_or_insert(format!("{most} groups in a row left nothing to learn from: {why}"));
            return;
        }
        // Where a whole batch was dropped there may be no update for long, and sources that are solved by now should
        // not be graded as if they were not.
        if state.tracked.fruitless.is_multiple_of(batch) {
            self.fold(state);
        }
        self.tell(state, event);
    }
}
