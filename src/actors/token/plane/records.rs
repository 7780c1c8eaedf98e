//! What travels between plane, generators and learner, and what a checkpoint keeps of the plane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::env::task::{GradeError, Problem, PromptPosition};
use crate::generate::SavedKv;
use crate::learner::token::advantage::PassRates;
use crate::schedule::flow::FlowScheduler;
use crate::trajectory::{BufferedTicket, DropReason, Group, LiveTicket, Trajectory, TrajectoryId, Version};

/// A group by its problem.
pub type GroupKey = (u32, u32);

/// A member that is still to be generated.
#[derive(Debug)]
pub struct Member {
    /// The problem as it is asked.
    pub problem: Arc<Problem>,
    /// What there is of it.
    pub trajectory: Trajectory,
    /// Its place in the ledger, when it was begun before.
    pub ticket: Option<LiveTicket>,
    /// Keys and values that it was stopped with, where they may be used again.
    pub kv: Option<SavedKv>,
    /// Actions at which it stops by itself until the next round.
    pub pause_at: Option<usize>,
}

/// A member that was stopped, while no generator has it: a handle with which any of them can go on.
#[derive(Debug)]
pub struct Stored {
    /// What there is of it, routing included.
    pub trajectory: Trajectory,
    /// Its place in the ledger.
    pub ticket: LiveTicket,
    /// Its keys and values, and the version that was loaded when they were saved.
    pub kv: Option<(SavedKv, Version)>,
    /// Actions at which it was to stop by itself.
    pub pause_at: Option<usize>,
}

/// A member as a generator shows it, or a checkpoint keeps it, while it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BegunMember {
    /// What there is of it.
    pub trajectory: Trajectory,
    /// Its keys and values where they are kept, and the version that was loaded then.
    pub kv: Option<(SavedKv, Version)>,
    /// Actions at which it is to stop by itself.
    pub pause_at: Option<usize>,
}

/// What a generator is to do with a member that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Stop it at its next token and hand it in.
    Pause(TrajectoryId),
    /// It was to stop, but goes on after all.
    Continue(TrajectoryId),
    /// Give it up.
    Abort(TrajectoryId, DropReason),
}

impl Order {
    /// Whom it concerns.
    #[must_use]
    pub fn id(self) -> TrajectoryId {
        match self {
            Self::Pause(id) | Self::Continue(id) | Self::Abort(id, _) => id,
        }
    }
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
    /// Its number.
    pub group: u64,
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
    /// Version that was current when it became ready.
    pub ready_under: Version,
    /// When that was.
    pub ready_at: Instant,
    /// How long before that its first answer had ended, as far as this process knows.
    pub waited: Duration,
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
        let Self { group, tickets, mut others, ready_under, ready_at, waited } = self;
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
        Self { group, tickets: own, others, ready_under, ready_at, waited }
    }

    /// Books all members as dropped.
    pub fn discard(self, reason: DropReason) {
        self.tickets.into_iter().for_each(|ticket| ticket.discard(reason));
    }

    /// As a checkpoint keeps it.
    #[must_use]
    pub fn standing(&self) -> StandingGroup {
        StandingGroup { group: self.group.clone(), others: self.others.clone() }
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

/// Answers in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlightFigures {
    /// Being generated, or waiting for a generator.
    pub live: u64,
    /// Stopped, to go on later.
    pub paused: u64,
    /// Of complete groups that wait for the learner.
    pub ready: u64,
    /// Most that were begun and had not ended, paused ones included.
    pub most: u64,
    /// Free places of the pool, where there is one; negative beyond it.
    pub credit: Option<i64>,
    /// Most that may be generated at once, where there is a limit.
    pub limit: Option<u64>,
}

/// A group that waits for the learner, in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StandingGroup {
    /// The group, as it is learned from.
    pub group: Group,
    /// Rewards of the answers that were not kept; `None` where grading failed.
    pub others: Vec<Option<f64>>,
}

/// A member in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SeatSnapshot {
    /// There is nothing of it.
    Fresh,
    /// Begun and not graded.
    Begun(BegunMember),
    /// Ended; without a reward, its grading failed.
    Ended(Trajectory),
}

/// One open group in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenSnapshot {
    /// Its number.
    pub group: u64,
    /// Pass and index of its problem.
    pub key: GroupKey,
    /// Whether the schedule has it graded.
    pub due: bool,
    /// Its members, each with how often it was begun anew.
    pub seats: Vec<(u16, SeatSnapshot)>,
}

impl OpenSnapshot {
    /// Trajectories that had begun and were not graded.
    pub fn begun(&self) -> impl Iterator<Item = &Trajectory> {
        self.seats.iter().filter_map(|(_, seat)| match seat {
            SeatSnapshot::Begun(begun) => Some(&begun.trajectory),
            _ => None,
        })
    }

    /// Trajectories that had ended.
    pub fn ended(&self) -> impl Iterator<Item = &Trajectory> {
        self.seats.iter().filter_map(|(_, seat)| match seat {
            SeatSnapshot::Ended(trajectory) => Some(trajectory),
            _ => None,
        })
    }
}

/// The plane in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaneSnapshot {
    /// The schedule. As text, since its settings name their variants.
    #[serde(with = "crate::codec::as_json")]
    pub scheduler: FlowScheduler,
    /// The next problem.
    pub prompts: PromptPosition,
    /// Problems of each source that were drawn and not given to a group.
    pub drawn: Vec<Vec<GroupKey>>,
    /// Groups that are not complete.
    pub open: Vec<OpenSnapshot>,
    /// Complete groups that stay, by number.
    pub ready: Vec<(u64, StandingGroup)>,
    /// The batch that the learner has.
    pub batch: Vec<StandingGroup>,
    /// What is remembered of groups that were graded.
    pub tracked: Tracked,
}

impl PlaneSnapshot {
    /// Groups that are complete and not learned from.
    pub fn standing(&self) -> impl Iterator<Item = &StandingGroup> {
        self.ready.iter().map(|(_, group)| group).chain(&self.batch)
    }
}

/// What the plane remembers of groups that were graded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Tracked {
    /// Pass rates of the problems' sources, where the advantage has a rubric.
    pub pass_rates: PassRates,
    /// Groups given up since one stayed.
    pub fruitless: u64,
}
