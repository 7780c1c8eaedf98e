//! What starts now: first whatever was paused, then new groups as far as every rule of admission agrees.

use super::group::{Group, Member, Place, Stage};
use super::message::{FlowCommand, MemberId};
use super::scheduler::FlowScheduler;
use crate::schedule::axes::{AdmissionCount, Dispatch, EngineLoad, MixerState, Refill, RoundEnd};

impl FlowScheduler {
    /// Fills the places that are free.
    pub(super) fn fill(&mut self, out: &mut Vec<FlowCommand>) {
        self.resume_paused(out);
        if let RoundEnd::Groups { submit } = self.settings.round_end {
            self.draw_groups(submit, out);
        } else {
            while self.paused.is_empty() && self.may_start() {
                let Some(source) = self.next_source() else { break };
                self.launch(source, out);
            }
        }
        self.round.opening = false;
    }

    fn resume_paused(&mut self, out: &mut Vec<FlowCommand>) {
        // What has used up its budget goes on in the next round.
        let over_for_now = matches!(self.settings.round_end, RoundEnd::Budget { .. }) && !self.round.opening;
        while !over_for_now && self.live() < self.limit() {
            let Some(id) = self.paused.pop_front() else { return };
            self.go_on(id, out);
        }
    }

    /// A member that was stopped is live again.
    pub(super) fn go_on(&mut self, id: MemberId, out: &mut Vec<FlowCommand>) {
        let begun = self.loaded.unwrap_or_default();
        let turn = self.turn(id);
        let group = self.groups.get_mut(&id.group);
        let Some(member) = group.and_then(|group| group.members.get_mut(id.member as usize)) else {
            self.live.remove(&turn);
            return;
        };
        if member.place == Place::Restarting {
            self.carried -= u64::from(std::mem::take(&mut member.carried));
            member.begun = begun;
            out.push(FlowCommand::Restart { id });
        } else {
            out.push(FlowCommand::Resume { id });
        }
        member.place = Place::Live(turn);
    }

    fn turn(&mut self, id: MemberId) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.live.insert(turn, id);
        turn
    }

    /// Whether a new group may start, as far as that does not depend on its source.
    fn may_start(&mut self) -> bool {
        let pool = self.settings.pool();
        let in_time = match self.settings.round_end {
            RoundEnd::Batch => return self.of_the_batch(),
            RoundEnd::Budget { .. } | RoundEnd::Fraction { refill: Refill::StartOnly, .. } => {
                self.round.opening
            }
            RoundEnd::Ready { max_carried, .. } => self.carried as f64 <= max_carried * pool as f64,
            RoundEnd::Fraction { .. } | RoundEnd::Groups { .. } | RoundEnd::Streaming => true,
        };
        in_time
            && (self.settings.admission.lead.is_none() || self.lead_capacity() > 0)
            && self.of_the_quantum()
    }

    /// How many groups the lead admits.
    fn lead_capacity(&self) -> i64 {
        match self.settings.admission.count {
            AdmissionCount::Submitted => self.admission.capacity(),
            // The literal reading: what runs does not count.
            AdmissionCount::Completed => self.admission.capacity() + self.admission.running() as i64,
        }
    }

    /// Rounds of whole batches: all that is missing of the batch once nothing is in flight, and what was given up
    /// since.
    fn of_the_batch(&mut self) -> bool {
        if self.quantum == 0 && self.admission.running() == 0 {
            let missing = self.admission.batch() - self.admission.accepted() % self.admission.batch();
            let admitted = match self.settings.admission.lead {
                Some(_) => self.lead_capacity() >= missing as i64,
                None => (self.ready.len() as u64) < self.settings.batch,
            };
            if admitted {
                self.quantum = missing;
            }
        }
        self.quantum > 0
    }

    /// Groups that start together wait until there is room for all of them.
    fn of_the_quantum(&mut self) -> bool {
        let quantum = self.settings.dispatch.quantum(self.settings.batch);
        if self.quantum == 0 && quantum > 1 {
            if self.free_places() < (quantum * u64::from(self.settings.group_size)) as i64 {
                return false;
            }
            self.quantum = quantum;
        }
        true
    }

    /// Places of the pool that no trajectory holds.
    fn free_places(&self) -> i64 {
        let settings = &self.settings;
        if !settings.counts_places() {
            return i64::MAX;
        }
        let held = match settings.dispatch {
            Dispatch::Prompt => self.open_members,
            _ => self.in_flight.iter().sum(),
        };
        // What ended and found the learner's buffer full keeps its place.
        let in_hand = self.learning.as_ref().map_or(0, |(_, members)| *members);
        let waiting = self.ledger.buffered - in_hand;
        let blocked = settings.admission.buffer.map_or(0, |buffer| waiting.saturating_sub(buffer));
        settings.pool() as i64 - (held + blocked) as i64
    }

    fn size_of(&self, source: u32) -> u32 {
        self.sources[source as usize].group_size.unwrap_or(self.members)
    }

    /// The source of the next group, taken from the order of sources.
    fn next_source(&mut self) -> Option<u32> {
        let (places, requests) = (self.free_places(), self.limit().saturating_sub(self.live()));
        // A batch is started whole, and its pool has room for it.
        let counted = self.quantum == 0;
        let sizes: Vec<u64> = (0..self.sources.len() as u32).map(|s| u64::from(self.size_of(s))).collect();
        let fits = |source: u32| {
            let size = sizes[source as usize];
            size <= requests && (!counted || size as i64 <= places)
        };
        let (sources, in_flight) = (&self.sources, &self.in_flight);
        let under_cap = |source: u32| {
            let index = source as usize;
            sources[index].cap.is_none_or(|cap| in_flight[index] + sizes[index] <= cap)
        };
        match &self.settings.dispatch {
            Dispatch::Mixer(config) => {
                MixerState::choose(&self.mixer, config, in_flight, |source| under_cap(source) && fits(source))
            }
            _ => self.queue.take(under_cap, fits),
        }
    }

    fn launch(&mut self, source: u32, out: &mut Vec<FlowCommand>) -> u64 {
        self.load_for_batch(out);
        let (id, members) = (self.next_group, self.size_of(source));
        self.next_group += 1;
        self.quantum = self.quantum.saturating_sub(1);
        self.admission.start();
        self.in_flight[source as usize] += u64::from(members);
        self.open_members += u64::from(members);
        self.ledger.submitted += u64::from(members);
        if let Some(state) = self.mixer.get_mut(source as usize) {
            state.launch();
        }
        let begun = self.loaded.unwrap_or_default();
        let member = |member| {
            let place = Place::Live(self.turn(MemberId { group: id, member }));
            Member { place, carried: false, stretches: Vec::new(), begun }
        };
        let group = Group {
            source,
            members: (0..members).map(member).collect(),
            finished: 0,
            stage: Stage::Open,
            launched_at: self.now,
            in_buffer: false,
        };
        self.groups.insert(id, group);
        out.push(FlowCommand::Launch { group: id, source, members });
        id
    }

    /// While fewer than a batch are pending, another draw: from the buffer first, then new ones.
    fn draw_groups(&mut self, submit: u64, out: &mut Vec<FlowCommand>) {
        while self.pending_in_round() < self.settings.batch {
            for _ in 0..submit {
                if let Some(id) = self.buffer.pop_front() {
                    self.round.drawn.push(id);
                    self.take_back(id, out);
                    // Before anything new, as everywhere.
                    self.resume_paused(out);
                } else if let Some(source) = self.next_source() {
                    let id = self.launch(source, out);
                    self.round.drawn.push(id);
                } else {
                    return;
                }
            }
        }
    }

    /// A group leaves the buffer as it is.
    fn take_back(&mut self, id: u64, out: &mut Vec<FlowCommand>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.in_buffer = false;
        match group.stage {
            Stage::Ready => self.accept(id, out),
            Stage::Grading => {}
            Stage::Open if group.is_complete() => self.hand_on(id, out),
            Stage::Open => {
                let waits = |member: &Member| matches!(member.place, Place::Paused | Place::Restarting);
                let members = (0_u32..).zip(&group.members).filter(|(_, member)| waits(member));
                self.paused.extend(members.map(|(member, _)| MemberId { group: id, member }));
            }
        }
    }

    /// The limit follows what the engines show; what is above it waits again, the youngest first.
    pub(super) fn observe(&mut self, load: EngineLoad, out: &mut Vec<FlowCommand>) {
        let live = self.live();
        let Some(throttle) = &mut self.throttle else { return };
        throttle.observe(load, live);
        let limit = self.limit();
        while self.live() > limit {
            let Some(id) = self.live.last_key_value().map(|(_, id)| *id) else { return };
            out.push(FlowCommand::Pause { id });
            self.stop_one(id, Place::Paused);
            // It is the first to go on.
            self.paused.rotate_right(1);
        }
    }
}
