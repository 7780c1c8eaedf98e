//! What travels between plane, generators and learner, and what a checkpoint keeps of the plane.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::env::task::{GradeError, Problem, PromptPosition};
use crate::learner::token::advantage::PassRates;
use crate::schedule::Scheduler;
use crate::trajectory::{BufferedTicket, DropReason, Group, Trajectory, Version};

/// A group by its problem.
pub type GroupKey = (u32, u32);

/// A group for a generator to sample.
#[derive(Debug, Clone)]
pub struct Job {
    /// Pass and index of the problem.
    pub key: GroupKey,
    /// Members that are still to be generated; none when all have ended and the group waits for what comes then.
    pub members: Vec<Member>,
}

/// A member that is still to be generated.
#[derive(Debug, Clone)]
pub struct Member {
    /// The problem as it is asked.
    pub problem: Arc<Problem>,
    /// What there is of it.
    pub trajectory: Trajectory,
    /// Whether an earlier session of a resumed run had it in hand: the ledger knows of it already.
    pub begun: bool,
}

/// A member that has ended and was graded, or could not be.
#[derive(Debug)]
pub struct Ended {
    /// The trajectory, with its reward unless grading failed.
    pub trajectory: Trajectory,
    /// Its place in the ledger.
    pub ticket: BufferedTicket,
    /// Why it has no reward.
    pub error: Option<GradeError>,
}

/// A group whose members have all ended, to be graded as a whole.
#[derive(Debug, Clone)]
pub struct Complete {
    /// Pass and index of the problem.
    pub key: GroupKey,
    /// How often it was begun anew.
    pub attempt: u16,
    /// The problem.
    pub problem: Arc<Problem>,
    /// The members that were graded, each with the problem as it was asked.
    pub graded: Vec<(Arc<Problem>, Trajectory)>,
}

/// A group on its way to the learner.
#[derive(Debug)]
pub struct ReadyGroup {
    /// The group; members without a reward could not be graded.
    pub group: Group,
    /// One ticket a member.
    pub tickets: Vec<BufferedTicket>,
    /// Rewards of the answers to the same problem that were not kept (`learner.keep`); `None` where grading failed.
    pub others: Vec<Option<f64>>,
    /// Version that was current when it entered the queue.
    pub queued_at: Version,
}

impl ReadyGroup {
    /// Answers that were sampled for it, kept or not.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.group.members.len() + self.others.len()
    }

    /// Rewards of all of them, those of the members first; `None` where grading failed.
    pub fn rewards(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.group.rewards().into_iter().chain(self.others.iter().copied())
    }

    /// Keeps some of the members, by their places in ascending order; the others are dropped.
    #[must_use]
    pub fn keep(self, kept: &[usize]) -> Self {
        let Self { group, tickets, mut others, queued_at } = self;
        let Group { members, .. } = group;
        let mut group = Group { members: Vec::with_capacity(kept.len()), ..group };
        let mut own = Vec::with_capacity(kept.len());
        for (place, (member, ticket)) in members.into_iter().zip(tickets).enumerate() {
            if kept.contains(&place) {
                group.members.push(member);
                own.push(ticket);
            } else {
                others.push(member.reward.map(|reward| reward.value));
                ticket.discard(DropReason::NotKept);
            }
        }
        Self { group, tickets: own, others, queued_at }
    }

    /// Books all members as dropped.
    pub fn discard(self, reason: DropReason) {
        self.tickets.into_iter().for_each(|ticket| ticket.discard(reason));
    }
}

/// What became of groups, counted since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCounts {
    /// Groups whose rewards were all alike.
    pub zero_variance: u64,
    /// Groups of which no member could be graded.
    pub ungraded: u64,
    /// Problems whose prompt leaves no room in the context.
    pub too_long: u64,
    /// Trajectories that could not be graded.
    pub grading_errors: u64,
    /// Groups that a grader of groups could not grade.
    pub group_grading_errors: u64,
}

/// One open group in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenSnapshot {
    /// Pass and index of its problem.
    pub key: GroupKey,
    /// How often it was begun anew.
    pub attempt: u16,
    /// Answers that it is made of.
    pub size: usize,
    /// Members that have ended, with the message of a failed grading.
    pub ended: Vec<Trajectory>,
    /// Members that have begun; filled in from the generators' snapshots.
    pub begun: Vec<Trajectory>,
}

/// The plane in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaneSnapshot {
    /// The schedule.
    pub scheduler: Scheduler,
    /// The next problem.
    pub prompts: PromptPosition,
    /// Groups that are not complete.
    pub open: Vec<OpenSnapshot>,
    /// What is remembered of groups that were graded.
    pub tracked: Tracked,
}

/// What the plane remembers of groups that were graded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tracked {
    /// Pass rates of the problems' sources, where the advantage has a rubric.
    pub pass_rates: PassRates,
    /// Groups given up since one stayed.
    pub fruitless: u64,
}
