//! The plane in a checkpoint, and from one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::open::{At, Open, Seat};
use super::records::{
    BegunMember, Ended, OpenSnapshot, PlaneSnapshot, ReadyGroup, SeatSnapshot, StandingGroup, Stored,
};
use super::{Plane, State};
use crate::actors::token::efforts;
use crate::env::task::Split;
use crate::schedule::flow::MemberId;
use crate::trajectory::{BufferedTicket, LiveTicket, Trajectory, TrajectoryId};

/// Makes tickets of what a checkpoint's ledger knows of.
pub struct Tickets<'a> {
    /// Of a trajectory that had begun.
    pub live: &'a mut dyn FnMut(&Trajectory) -> LiveTicket,
    /// Of one that had ended.
    pub buffered: &'a mut dyn FnMut(&Trajectory) -> BufferedTicket,
}

impl Tickets<'_> {
    fn ready(&mut self, StandingGroup { group, others }: StandingGroup) -> ReadyGroup {
        ReadyGroup {
            others,
            tickets: group.members.iter().map(&mut *self.buffered).collect(),
            ready_under: group.oldest_version().unwrap_or_default(),
            ready_at: Instant::now(),
            waited: Duration::ZERO,
            group,
        }
    }
}

impl Plane {
    /// The plane at an update border, with what the generators show and the batch that the learner has taken.
    #[must_use]
    pub fn snapshot(&self, begun: Vec<BegunMember>, batch: &[ReadyGroup]) -> PlaneSnapshot {
        let mut begun: BTreeMap<TrajectoryId, BegunMember> =
            begun.into_iter().map(|begun| (begun.trajectory.id, begun)).collect();
        let state = self.lock();
        let mut seat_of = |open: &Open, member: u32, seat: &Seat| match &seat.at {
            At::Fresh => SeatSnapshot::Fresh,
            At::Stored(stored) => {
                let Stored { trajectory, kv, pause_at, .. } = &**stored;
                let (trajectory, kv) = (trajectory.clone(), kv.clone());
                SeatSnapshot::Begun(BegunMember { trajectory, kv, pause_at: *pause_at })
            }
            At::Ended(ended) => SeatSnapshot::Ended(ended.trajectory.clone()),
            At::With(_) => begun.remove(&open.id(member)).map_or(SeatSnapshot::Fresh, SeatSnapshot::Begun),
        };
        let open = state.open.iter().map(|(&group, open)| OpenSnapshot {
            group,
            key: open.key,
            due: open.due,
            seats: (0_u32..)
                .zip(&open.seats)
                .map(|(member, seat)| (seat.attempt, seat_of(open, member, seat)))
                .collect(),
        });
        let batch = batch.iter().chain(state.batch.iter().flatten());
        let mut scheduler = state.scheduler.clone();
        scheduler.restart();
        PlaneSnapshot {
            scheduler,
            prompts: state.prompts.position(),
            drawn: state.drawn.iter().map(|keys| keys.iter().copied().collect()).collect(),
            open: open.collect(),
            ready: state.ready.iter().map(|(&group, ready)| (group, ready.standing())).collect(),
            batch: batch.map(ReadyGroup::standing).collect(),
            tracked: state.tracked.clone(),
        }
    }

    /// Takes up what a checkpoint holds of the plane but its scheduler and the position of its prompts.
    ///
    /// # Errors
    /// When a problem is no longer there.
    pub fn restore(&self, snapshot: PlaneSnapshot, mut tickets: Tickets<'_>) -> Result<(), String> {
        let mut state = self.lock();
        state.tracked = snapshot.tracked;
        if !snapshot.drawn.is_empty() {
            state.drawn = snapshot.drawn.into_iter().map(VecDeque::from).collect();
        }
        for (group, standing) in snapshot.ready {
            let ready = tickets.ready(standing);
            state.ready.insert(group, ready);
        }
        if !snapshot.batch.is_empty() {
            state.batch = Some(snapshot.batch.into_iter().map(|standing| tickets.ready(standing)).collect());
        }
        for OpenSnapshot { group, key, due, seats } in snapshot.open {
            let problem = self.task.problem(Split::Train, key.1).map_err(|error| error.to_string())?;
            let asked = efforts::asked(&problem, &self.learner.efforts, &self.tokenizer)
                .map_err(|error| error.to_string())?;
            let State { scheduler, cache, .. } = &mut *state;
            let seats = (0_u32..).zip(seats).map(|(member, (attempt, seat))| {
                let at = match seat {
                    SeatSnapshot::Fresh => At::Fresh,
                    SeatSnapshot::Begun(BegunMember { trajectory, kv, pause_at }) => {
                        let ticket = (tickets.live)(&trajectory);
                        At::Stored(Box::new(cache.keep(Stored { trajectory, ticket, kv, pause_at })))
                    }
                    SeatSnapshot::Ended(trajectory) => {
                        let ticket = (tickets.buffered)(&trajectory);
                        At::Ended(Box::new(Ended { trajectory, ticket, error: None }))
                    }
                };
                let told = !scheduler.is_in_flight(MemberId { group, member });
                Seat { attempt, at, told, goes_on: false }
            });
            let seats: Vec<Seat> = seats.collect();
            // What has ended for the schedule and lacks its grade is nothing that the schedule lets go on.
            let ungraded =
                (0_u32..).zip(&seats).filter(|(_, seat)| seat.told && !matches!(seat.at, At::Ended(_)));
            let ungraded: Vec<MemberId> = ungraded.map(|(member, _)| MemberId { group, member }).collect();
            state.runnable.extend(ungraded);
            let mut open = Open::new(key, Arc::new(problem), asked, seats);
            open.due = due;
            state.open.insert(group, open);
            state.ids.insert(key, group);
            self.settle(&mut state, group);
        }
        Ok(())
    }
}
