//! The state, and what each event does to it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::group::{Group, Place, Stage};
use super::ledger::FlowLedger;
use super::message::{DropCause, FlowCommand, FlowEvent, MemberId, Stretch};
use super::round::Round;
use super::settings::FlowSettings;
use super::short::RecentLengths;
use crate::schedule::Admission;
use crate::schedule::axes::{Dispatch, MixerState, RoundEnd, SourceConfig, SourceQueue, ThrottleState};

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowScheduler {
    pub(super) settings: FlowSettings,
    /// Members of a group that is launched now, where its source does not say.
    pub(super) members: u32,
    pub(super) sources: Vec<SourceConfig>,
    pub(super) started: bool,
    pub(super) version: u64,
    pub(super) loaded: Option<u64>,
    /// When weights were pushed last, seconds.
    pub(super) pushed_at: f64,
    /// Spread of importance ratios, as last measured.
    pub(super) spread: f64,
    /// Whether generation goes on: not while a schedule that takes turns learns.
    pub(super) generating: bool,
    /// Whether a round has paused and its batch waits for grades.
    pub(super) closing: bool,
    /// What the learner has: groups and how many trajectories they hold.
    pub(super) learning: Option<(Vec<u64>, u64)>,
    pub(super) next_group: u64,
    pub(super) next_turn: u64,
    /// All groups that are neither given up nor in the learner's hands.
    pub(super) groups: BTreeMap<u64, Group>,
    /// By when they began or resumed.
    pub(super) live: BTreeMap<u64, MemberId>,
    /// Stopped, in the order in which they go on.
    pub(super) paused: VecDeque<MemberId>,
    /// Stopped by a restart in the middle of a round; they go on before anything else.
    pub(super) stopped: Vec<MemberId>,
    /// Complete and accepted groups, as they became so.
    pub(super) ready: VecDeque<u64>,
    /// Whether these, or the version that learns, changed since a batch was looked for.
    pub(super) ready_changed: bool,
    /// Groups that a round left over, where rounds draw groups.
    pub(super) buffer: VecDeque<u64>,
    /// In flight by source, paused ones included.
    pub(super) in_flight: Vec<u64>,
    /// Members of groups that are neither accepted nor given up.
    pub(super) open_members: u64,
    /// In flight and begun in a round before this one.
    pub(super) carried: u64,
    /// Groups still to be started of those that start together.
    pub(super) quantum: u64,
    pub(super) round: Round,
    pub(super) admission: Admission,
    pub(super) mixer: Vec<MixerState>,
    pub(super) throttle: Option<ThrottleState>,
    pub(super) queue: SourceQueue,
    pub(super) lengths: RecentLengths,
    pub(super) ledger: FlowLedger,
    pub(super) now: f64,
}

impl FlowScheduler {
    /// A scheduler that has not started. Settings that contradict themselves are for [`FlowSettings::check`] to refuse.
    #[must_use]
    pub fn new(settings: FlowSettings) -> Self {
        let sources = settings.sources();
        let mixer = match settings.dispatch {
            Dispatch::Mixer(_) => {
                sources.iter().map(|source| MixerState::new(source.quota.unwrap_or(0))).collect()
            }
            _ => Vec::new(),
        };
        Self {
            started: false,
            version: 0,
            loaded: None,
            pushed_at: 0.0,
            spread: 0.0,
            generating: false,
            closing: false,
            learning: None,
            next_group: 0,
            next_turn: 0,
            groups: BTreeMap::new(),
            live: BTreeMap::new(),
            paused: VecDeque::new(),
            stopped: Vec::new(),
            ready: VecDeque::new(),
            ready_changed: false,
            buffer: VecDeque::new(),
            in_flight: vec![0; sources.len()],
            open_members: 0,
            carried: 0,
            quantum: 0,
            round: Round::default(),
            admission: Admission::new(settings.batch, settings.admission.lead.unwrap_or(0), None),
            mixer,
            throttle: settings.admission.throttle.map(ThrottleState::new),
            queue: SourceQueue::new(&sources),
            lengths: RecentLengths::default(),
            ledger: FlowLedger::default(),
            now: 0.0,
            members: settings.group_size,
            sources,
            settings,
        }
    }

    /// A run is to go on from a checkpoint, where nothing is live: the round it was in goes on where it was.
    pub fn restart(&mut self) {
        self.started = false;
        self.next_turn = 0;
        for id in std::mem::take(&mut self.live).into_values() {
            let group = self.groups.get_mut(&id.group);
            if let Some(member) = group.and_then(|group| group.members.get_mut(id.member as usize)) {
                member.place = Place::Paused;
                self.stopped.push(id);
            }
        }
    }

    /// Weights alone were recovered, at a version: nothing is in flight, and all before it counts as accepted.
    #[must_use]
    pub fn recovered(settings: FlowSettings, version: u64) -> Self {
        let mut scheduler = Self::new(settings);
        scheduler.version = version;
        scheduler.admission.recover(version);
        scheduler
    }

    /// Takes an event at a time (seconds, never decreasing); the commands are to be carried out in order.
    pub fn on(&mut self, event: FlowEvent, now: f64) -> Vec<FlowCommand> {
        let mut out = Vec::new();
        self.now = now;
        match event {
            FlowEvent::Started => self.start_anew(&mut out),
            FlowEvent::Offered { sources } => self.queue.offer(&sources),
            FlowEvent::Finished { id, stretches } => self.finished(id, stretches, &mut out),
            FlowEvent::Exhausted { id } => self.stop_one(id, Place::Paused),
            FlowEvent::Lost { id } => self.lost(id, &mut out),
            FlowEvent::Graded { group, keep } => self.graded(group, keep, &mut out),
            FlowEvent::Unusable { group } => self.give_up(group, DropCause::Rejected, &mut out),
            FlowEvent::Members { members } => self.members = members,
            FlowEvent::Published => self.published(&mut out),
            FlowEvent::Skipped => self.skipped(),
            FlowEvent::Load { load } => self.observe(load, &mut out),
            FlowEvent::Measured { spread } => self.spread = spread,
            FlowEvent::Tick => {}
        }
        if self.started {
            self.settle(&mut out);
        }
        out
    }

    fn start_anew(&mut self, out: &mut Vec<FlowCommand>) {
        self.started = true;
        if self.next_group == 0 {
            self.begin_round();
        }
        self.load_first(out);
        for id in std::mem::take(&mut self.stopped) {
            self.go_on(id, out);
        }
    }

    /// Whatever an event made possible, until nothing is.
    fn settle(&mut self, out: &mut Vec<FlowCommand>) {
        loop {
            let before = out.len();
            // What ends a round ends it before freed places are filled.
            match self.settings.round_end {
                RoundEnd::Fraction { .. } if self.generating => self.close_by_fraction(false, out),
                RoundEnd::Ready { .. } => self.train_if_due(out),
                _ => {}
            }
            if self.generating {
                self.push_if_due(out);
                self.fill(out);
            }
            self.train_if_due(out);
            if out.len() == before {
                return;
            }
        }
    }

    fn finished(&mut self, id: MemberId, stretches: Vec<Stretch>, out: &mut Vec<FlowCommand>) {
        let Some(group) = self.groups.get_mut(&id.group) else { return };
        let Some(member) = group.members.get_mut(id.member as usize) else { return };
        match member.place {
            Place::Live(turn) => drop(self.live.remove(&turn)),
            // It had ended before the pause reached it.
            Place::Paused => {
                self.paused.retain(|paused| *paused != id);
                self.stopped.retain(|stopped| *stopped != id);
            }
            // What it was before it was lost, or it ended before.
            Place::Restarting | Place::Done => return,
        }
        member.place = Place::Done;
        member.stretches = stretches;
        self.carried -= u64::from(std::mem::take(&mut member.carried));
        group.finished += 1;
        let (complete, source) = (group.is_complete(), group.source);
        let waits = group.in_buffer;
        self.in_flight[source as usize] -= 1;
        self.ledger.buffered += 1;
        self.round.done += 1;
        if self.settings.resume.stores_state() {
            out.push(FlowCommand::Free { id });
        }
        if complete && !waits {
            self.hand_on(id.group, out);
        }
    }

    /// A complete group goes to be graded.
    pub(super) fn hand_on(&mut self, id: u64, out: &mut Vec<FlowCommand>) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.stage = Stage::Grading;
            out.push(FlowCommand::Grade { group: id });
        }
    }

    fn lost(&mut self, id: MemberId, out: &mut Vec<FlowCommand>) {
        let place = self.groups.get(&id.group).and_then(|group| group.members.get(id.member as usize));
        let in_flight = place.is_some_and(|member| matches!(member.place, Place::Live(_) | Place::Paused));
        if !in_flight {
            return;
        }
        if self.settings.repeatable {
            self.stop_one(id, Place::Restarting);
        } else {
            self.give_up(id.group, DropCause::Lost, out);
        }
    }

    fn graded(&mut self, id: u64, keep: bool, out: &mut Vec<FlowCommand>) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.stage == Stage::Grading) else {
            return;
        };
        if !keep {
            return self.give_up(id, DropCause::Rejected, out);
        }
        let mean = group.mean_length();
        let short = self.settings.consume.short_drop.filter(|short| self.version < short.updates);
        let bound = short.and_then(|short| self.lengths.quantile(short.quantile));
        self.lengths.push(mean);
        if bound.is_some_and(|bound| mean < bound) {
            return self.give_up(id, DropCause::Short, out);
        }
        group.stage = Stage::Ready;
        if !group.in_buffer {
            self.accept(id, out);
        }
    }

    /// A complete group is one of those that a batch is made of.
    pub(super) fn accept(&mut self, id: u64, out: &mut Vec<FlowCommand>) {
        let Some(group) = self.groups.get(&id) else { return };
        self.open_members -= group.size();
        self.admission.accept();
        self.round.accepted += 1;
        if let Some(state) = self.mixer.get_mut(group.source as usize) {
            state.end(true, self.now - group.launched_at);
        }
        self.ready.push_back(id);
        self.ready_changed = true;
        if let Some(cause) = self.unfit(id) {
            self.give_up(id, cause, out);
        }
    }

    /// A group will not be learned from: it leaves with all its members, and its place is free again.
    pub(super) fn give_up(&mut self, id: u64, cause: DropCause, out: &mut Vec<FlowCommand>) {
        let Some(group) = self.groups.remove(&id) else { return };
        for member in &group.members {
            match member.place {
                Place::Live(turn) => drop(self.live.remove(&turn)),
                Place::Paused | Place::Restarting => {
                    self.paused.retain(|paused| paused.group != id);
                    self.stopped.retain(|stopped| stopped.group != id);
                }
                Place::Done => self.ledger.buffered -= 1,
            }
            if member.place != Place::Done {
                self.in_flight[group.source as usize] -= 1;
                self.carried -= u64::from(member.carried);
            }
        }
        *self.ledger.dropped.entry(cause).or_default() += group.size();
        let accepted = group.stage == Stage::Ready && !group.in_buffer;
        let state = self.mixer.get_mut(group.source as usize);
        if accepted {
            self.ready.retain(|ready| *ready != id);
            self.admission.discard();
            self.round.accepted = self.round.accepted.saturating_sub(1);
            state.into_iter().for_each(MixerState::discard);
        } else {
            self.open_members -= group.size();
            self.admission.reject();
            state.into_iter().for_each(|state| state.end(false, self.now - group.launched_at));
            self.replace_in_batch();
        }
        self.buffer.retain(|buffered| *buffered != id);
        self.round.given_up(id);
        out.push(FlowCommand::Drop { group: id, cause });
    }

    /// Where batches are dispatched whole, a group that was given up is replaced at once; a batch of which nothing is
    /// left begins anew.
    fn replace_in_batch(&mut self) {
        let begun =
            self.admission.running() > 0 || !self.admission.accepted().is_multiple_of(self.admission.batch());
        if self.settings.round_end == RoundEnd::Batch && begun {
            self.quantum += 1;
        }
    }

    /// One that is live, or paused, stops being so.
    pub(super) fn stop_one(&mut self, id: MemberId, to: Place) {
        let Some(group) = self.groups.get_mut(&id.group) else { return };
        let Some(member) = group.members.get_mut(id.member as usize) else { return };
        if let Place::Live(turn) = member.place {
            self.live.remove(&turn);
            if !group.in_buffer {
                self.paused.push_back(id);
            }
        } else if member.place != Place::Paused {
            return;
        }
        member.place = to;
    }

    pub(super) fn paused_members(&self) -> u64 {
        self.in_flight.iter().sum::<u64>() - self.live.len() as u64
    }
}
