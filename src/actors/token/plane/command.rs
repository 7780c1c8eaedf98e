//! What happened, to the scheduler; what it says, done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{At, DropReason, Open, Order, Plane, Seat, State, Stored, TrajectoryId};
use crate::actors::token::efforts;
use crate::schedule::flow::{DropCause, FlowCommand, FlowEvent, MemberId, Stretch};
use crate::trajectory::Trajectory;

/// Actions of a trajectory by the version that sampled them, oldest first.
fn stretches(trajectory: &Trajectory) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for index in trajectory.actions() {
        let version = trajectory.versions[index].0;
        match stretches.last_mut().filter(|last| last.version == version) {
            Some(last) => last.tokens += 1,
            None => stretches.push(Stretch { version, tokens: 1 }),
        }
    }
    stretches
}

/// As the run's account names it.
fn reason(cause: DropCause) -> DropReason {
    match cause {
        DropCause::Rejected | DropCause::Lost => DropReason::ActorRestart,
        DropCause::Stale => DropReason::Stale,
        DropCause::Masked => DropReason::Masked,
        DropCause::Short => DropReason::Short,
        DropCause::Skipped => DropReason::NonFinite,
    }
}

impl Plane {
    /// Takes an event in, and carries out what follows. What follows may itself be events; they are taken in after the
    /// commands of this one.
    pub(super) fn tell(&self, state: &mut State, event: FlowEvent) {
        state.events.push_back(event);
        if !std::mem::replace(&mut state.obeying, true) {
            while let Some(event) = state.events.pop_front() {
                state.answers += f64::from(u8::from(matches!(event, FlowEvent::Finished { .. })));
                let now = self.now(state);
                let told = state.trace.is_some().then(|| event.clone());
                let commands = state.scheduler.on(event, now);
                if let Some(event) = told {
                    state.write(|trace| trace.decision(now, &event, &commands));
                }
                for command in commands {
                    self.carry_out(state, command);
                }
                if state.events.is_empty() {
                    let offer = self.look_ahead(state);
                    state.events.extend(offer);
                }
                let in_flight = state.scheduler.in_flight().iter().sum();
                state.most_in_flight = state.most_in_flight.max(in_flight);
            }
            state.obeying = false;
        }
        self.signal(state);
    }

    fn carry_out(&self, state: &mut State, command: FlowCommand) {
        match command {
            // Generators ask for the version between two tokens; what is stored of a member goes with it.
            FlowCommand::Load { .. } | FlowCommand::Free { .. } => {}
            FlowCommand::Launch { group, members, .. } => {
                state.runnable.extend((0..members).map(|member| MemberId { group, member }));
            }
            FlowCommand::Pause { id } => pause(state, id),
            FlowCommand::Resume { id } => resume(state, id),
            FlowCommand::Restart { id } => begin_anew(state, id),
            FlowCommand::Grade { group } => {
                if let Some(open) = state.open.get_mut(&group) {
                    open.due = true;
                    self.settle(state, group);
                }
            }
            FlowCommand::Train { groups } if groups.is_empty() => self.tell(state, FlowEvent::Skipped),
            FlowCommand::Train { groups } => {
                let batch = groups.iter().filter_map(|group| state.ready.remove(group));
                state.batch = Some(batch.collect());
            }
            FlowCommand::Drop { group, cause } => give_up(state, group, reason(cause)),
        }
    }

    /// Takes the next problem for a group; false when it is of no use, and the group given up.
    pub(super) fn open(&self, state: &mut State, group: u64) -> bool {
        let Some((source, members)) = state.scheduler.group(group) else {
            state.runnable.retain(|id| id.group != group);
            return false;
        };
        let made = self.next_problem(state, source).and_then(|(key, problem)| {
            let asked = efforts::asked(&problem, &self.learner.efforts, &self.tokenizer)
                .map_err(|error| format!("problem {} of the task: {error}", key.1))?;
            Ok((key, problem, asked))
        });
        let (key, problem, asked) = match made {
            Ok(made) => made,
            Err(why) => {
                state.fatal.get_or_insert(why);
                return false;
            }
        };
        let unusable = |length: &usize| *length >= self.context || *length == 0;
        if let Some(length) = asked.iter().map(|asked| asked.prompt.len()).find(unusable) {
            state.counts.too_long += 1;
            let why = format!(
                "the prompt of problem {} has {length} tokens, and the model's context {}",
                key.1, self.context
            );
            tracing::warn!("{why}; the problem is left out");
            let why = format!("{why}; shorten the prompts or take a model with more context");
            self.given_up(state, FlowEvent::Unusable { group }, &why);
            return false;
        }
        let seats = (0..members).map(|_| Seat::fresh(0)).collect();
        state.open.insert(group, Open::new(key, Arc::new(problem), asked, seats));
        state.ids.insert(key, group);
        true
    }

    /// A generator hands in a member that it was told to stop, or that has used up its budget of this round.
    pub fn paused(&self, stored: Stored, exhausted: bool) {
        let mut state = self.lock();
        let id = stored.trajectory.id;
        let Some(&group) = state.ids.get(&(id.epoch, id.prompt)) else {
            return stored.ticket.discard(DropReason::ActorRestart);
        };
        let State { open, pausing, runnable, orders, cache, .. } = &mut *state;
        let Some(seat) = open.get_mut(&group).and_then(|open| open.seat(id)) else {
            return stored.ticket.discard(DropReason::ActorRestart);
        };
        let stored = cache.keep(stored);
        let member = MemberId { group, member: u32::from(id.member) };
        if let At::With(owner) = std::mem::replace(&mut seat.at, At::Stored(Box::new(stored))) {
            orders[owner].retain(|order| order.id() != id);
        }
        pausing.remove(&member);
        if std::mem::take(&mut seat.goes_on) {
            runnable.push_back(member);
        }
        if exhausted {
            self.tell(&mut state, FlowEvent::Exhausted { id: member });
        } else {
            self.signal(&mut state);
        }
    }

    /// A member that was told to stop is not being generated: it is with its grader, and stops when that has said what
    /// it says. False when it need not stop after all.
    #[must_use]
    pub fn will_pause(&self, id: TrajectoryId) -> bool {
        let mut state = self.lock();
        let State { open, ids, pausing, .. } = &mut *state;
        let Some(&group) = ids.get(&(id.epoch, id.prompt)) else { return false };
        pausing.remove(&MemberId { group, member: u32::from(id.member) });
        let seat = open.get_mut(&group).and_then(|open| open.seat(id));
        let stops = seat.is_some_and(|seat| !std::mem::take(&mut seat.goes_on) && !seat.told);
        self.signal(&mut state);
        stops
    }

    /// An answer was sampled to its end, whatever its grade will be.
    pub fn sampled(&self, trajectory: &Trajectory) {
        let mut state = self.lock();
        let id = trajectory.id;
        let Some(&group) = state.ids.get(&(id.epoch, id.prompt)) else { return };
        let member = MemberId { group, member: u32::from(id.member) };
        let State { open, pausing, orders, .. } = &mut *state;
        let Some(open) = open.get_mut(&group) else { return };
        open.first_ended.get_or_insert_with(Instant::now);
        let Some(seat) = open.seat(id) else { return };
        pausing.remove(&member);
        if let At::With(owner) = seat.at {
            orders[owner].retain(|order| order.id() != id);
        }
        if !std::mem::replace(&mut seat.told, true) {
            self.tell(&mut state, FlowEvent::Finished { id: member, stretches: stretches(trajectory) });
        }
    }
}

/// What there was of a member is given up, and it waits for a generator again.
pub(super) fn begin_anew(state: &mut State, id: MemberId) {
    if let Some(open) = state.open.get_mut(&id.group) {
        let before = open.id(id.member);
        if let Some(seat) = open.seats.get_mut(id.member as usize) {
            match seat.begin_anew() {
                At::Stored(stored) => {
                    state.cache.release(&stored);
                    stored.ticket.discard(DropReason::ActorRestart);
                }
                At::Ended(ended) => ended.ticket.discard(DropReason::ActorRestart),
                At::With(owner) => {
                    let order = Order::Abort(before, DropReason::ActorRestart);
                    replace_order(&mut state.orders[owner], order);
                    state.pausing.remove(&id);
                }
                At::Fresh => {}
            }
        }
    }
    state.runnable.push_back(id);
}

/// Only the last word counts.
fn replace_order(orders: &mut VecDeque<Order>, order: Order) {
    orders.retain(|other| other.id() != order.id());
    orders.push_back(order);
}

fn pause(state: &mut State, id: MemberId) {
    let State { open, orders, pausing, runnable, .. } = state;
    let place = open.get_mut(&id.group).map(|open| (open.id(id.member), open));
    let seat =
        place.and_then(|(trajectory, open)| Some((trajectory, open.seats.get_mut(id.member as usize)?)));
    match seat {
        Some((trajectory, Seat { at: At::With(owner), goes_on, .. })) => {
            *goes_on = false;
            replace_order(&mut orders[*owner], Order::Pause(trajectory));
            pausing.insert(id);
        }
        _ => runnable.retain(|other| *other != id),
    }
}

fn resume(state: &mut State, id: MemberId) {
    let State { open, orders, pausing, runnable, .. } = state;
    let Some(open) = open.get_mut(&id.group) else { return runnable.push_back(id) };
    let trajectory = open.id(id.member);
    let Some(seat) = open.seats.get_mut(id.member as usize) else { return };
    let At::With(owner) = seat.at else { return runnable.push_back(id) };
    let orders = &mut orders[owner];
    if orders.contains(&Order::Pause(trajectory)) {
        // It never heard of it.
        orders.retain(|order| order.id() != trajectory);
        pausing.remove(&id);
    } else if pausing.contains(&id) {
        seat.goes_on = true;
    } else {
        replace_order(orders, Order::Continue(trajectory));
    }
}

/// A group leaves, wherever its members are.
fn give_up(state: &mut State, group: u64, reason: DropReason) {
    state.runnable.retain(|id| id.group != group);
    state.whole.retain(|whole| *whole != group);
    if let Some(ready) = state.ready.remove(&group) {
        ready.discard(reason);
    }
    let Some(open) = state.open.remove(&group) else { return };
    state.ids.remove(&open.key);
    let ids: Vec<TrajectoryId> = (0..open.seats.len() as u32).map(|member| open.id(member)).collect();
    for ((member, seat), id) in (0_u32..).zip(open.seats).zip(ids) {
        match seat.at {
            At::Fresh => {}
            At::Stored(stored) => {
                state.cache.release(&stored);
                stored.ticket.discard(reason);
            }
            At::Ended(ended) => ended.ticket.discard(reason),
            At::With(owner) => {
                replace_order(&mut state.orders[owner], Order::Abort(id, reason));
                state.pausing.remove(&MemberId { group, member });
            }
        }
    }
}
