//! A group that is not complete, and where each of its members is.

use std::sync::Arc;
use std::time::Instant;

use super::records::{Ended, GroupKey, Member, Stored};
use crate::actors::token::efforts::Asked;
use crate::env::task::Problem;
use crate::trajectory::{Reward, Trajectory, TrajectoryId, Version};

/// Positions whose keys and values are kept with members that were stopped, and how many may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostCache {
    pub(super) most: usize,
    pub(super) used: usize,
    /// Members that found no room.
    pub(super) refused: u64,
}

impl HostCache {
    /// Takes what a member was stopped with, as far as there is room for its keys and values. Those that are here go on
    /// before it, and keep their place.
    pub(super) fn keep(&mut self, mut stored: Stored) -> Stored {
        if let Some((kv, _)) = &stored.kv {
            if self.used + kv.positions() > self.most {
                stored.kv = None;
                self.refused += 1;
            } else {
                self.used += kv.positions();
            }
        }
        stored
    }

    /// What was kept with a member leaves with it.
    pub(super) fn release(&mut self, stored: &Stored) {
        self.used -= stored.kv.as_ref().map_or(0, |(kv, _)| kv.positions());
    }
}

/// Where a member is.
#[derive(Debug)]
pub(super) enum At {
    /// Nowhere: there is nothing of it.
    Fresh,
    /// Stopped, and here.
    Stored(Box<Stored>),
    /// With this generator.
    With(usize),
    /// Ended, and here.
    Ended(Box<Ended>),
}

/// A member's place in its group.
#[derive(Debug)]
pub(super) struct Seat {
    /// How often it was begun anew.
    pub(super) attempt: u16,
    pub(super) at: At,
    /// Whether the scheduler knows that it has ended.
    pub(super) told: bool,
    /// Whether it goes on as soon as it is handed in.
    pub(super) goes_on: bool,
}

impl Seat {
    pub(super) fn fresh(attempt: u16) -> Self {
        Self { attempt, at: At::Fresh, told: false, goes_on: false }
    }

    /// What there was of it is of no use any more.
    pub(super) fn begin_anew(&mut self) -> At {
        self.attempt = self.attempt.wrapping_add(1);
        self.goes_on = false;
        std::mem::replace(&mut self.at, At::Fresh)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Open {
    /// Pass and index of the problem.
    pub(super) key: GroupKey,
    /// The problem.
    pub(super) problem: Arc<Problem>,
    /// It as it is asked, at each effort.
    pub(super) asked: Vec<Asked>,
    /// One a member.
    pub(super) seats: Vec<Seat>,
    /// Whether the schedule has it graded: all members have ended.
    pub(super) due: bool,
    /// Whose grader has the group as a whole.
    pub(super) grader: Option<usize>,
    /// When the first of its answers ended, of those that did so in this process.
    pub(super) first_ended: Option<Instant>,
}

impl Open {
    pub(super) fn new(key: GroupKey, problem: Arc<Problem>, asked: Vec<Asked>, seats: Vec<Seat>) -> Self {
        Self { key, problem, asked, seats, due: false, grader: None, first_ended: None }
    }

    /// The problem as a member is asked it.
    pub(super) fn asked(&self, member: u32) -> &Asked {
        &self.asked[member as usize % self.asked.len()]
    }

    /// The id of a member as it is now.
    pub(super) fn id(&self, member: u32) -> TrajectoryId {
        let attempt = self.seats.get(member as usize).map_or(0, |seat| seat.attempt);
        TrajectoryId { epoch: self.key.0, prompt: self.key.1, member: member as u16, attempt }
    }

    /// The seat of a trajectory, if it is of the attempt that counts.
    pub(super) fn seat(&mut self, id: TrajectoryId) -> Option<&mut Seat> {
        self.seats.get_mut(usize::from(id.member)).filter(|seat| seat.attempt == id.attempt)
    }

    /// Whether all of its members have ended and are here.
    pub(super) fn is_whole(&self) -> bool {
        self.seats.iter().all(|seat| matches!(seat.at, At::Ended(_)))
    }

    /// Members that have ended, those that were not graded included.
    pub(super) fn ended(&self) -> impl Iterator<Item = (u32, &Ended)> {
        (0_u32..).zip(&self.seats).filter_map(|(member, seat)| match &seat.at {
            At::Ended(ended) => Some((member, &**ended)),
            _ => None,
        })
    }

    /// Gives members that were graded these grades instead, in order, and takes the grades of those that are left.
    pub(super) fn regrade(&mut self, grades: &[Reward]) {
        let mut grades = grades.iter().cloned();
        for seat in &mut self.seats {
            if let At::Ended(ended) = &mut seat.at
                && ended.trajectory.reward.is_some()
            {
                ended.trajectory.reward = grades.next();
            }
        }
    }

    /// A member for a generator, which has it from now on; `None` where it is with one, or has ended. `keeps` says
    /// whether keys and values that were saved under a version are used again.
    pub(super) fn hand_out(
        &mut self,
        member: u32,
        generator: usize,
        cache: &mut HostCache,
        keeps: impl Fn(Version) -> bool,
    ) -> Option<Member> {
        let id = self.id(member);
        let (problem, prompt) = {
            let asked = self.asked(member);
            (Arc::clone(&asked.problem), Arc::clone(&asked.prompt))
        };
        let seat = self.seats.get_mut(member as usize)?;
        let (trajectory, ticket, kv, pause_at) = match std::mem::replace(&mut seat.at, At::With(generator)) {
            At::Fresh => (Trajectory::new(id, prompt), None, None, None),
            At::Stored(stored) => {
                cache.release(&stored);
                let Stored { trajectory, ticket, kv, pause_at } = *stored;
                // The prompt is one for all members again after a checkpoint.
                (
                    Trajectory { prompt, ..trajectory },
                    Some(ticket),
                    kv.filter(|(_, version)| keeps(*version)).map(|(kv, _)| kv),
                    pause_at,
                )
            }
            other => {
                seat.at = other;
                return None;
            }
        };
        Some(Member { problem, trajectory, ticket, kv, pause_at })
    }
}
