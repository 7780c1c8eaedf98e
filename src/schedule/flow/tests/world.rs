//! A driver that lets anything happen at any time, and books what the scheduler says.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::CounterRng;
use crate::schedule::axes::{EngineLoad, Interrupt, RoundEnd};
use crate::schedule::flow::group::Place;
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings, MemberId, Stretch};

/// A group as the world sees it.
pub struct Seen {
    pub source: u32,
    pub members: u32,
    pub finished: BTreeMap<u32, Vec<Stretch>>,
}

/// What was handed to the learner.
#[derive(Debug, Clone)]
pub struct Batch {
    pub version: u64,
    pub groups: Vec<u64>,
    pub sources: Vec<u32>,
    pub sizes: Vec<u32>,
    /// Greatest head lag of a group.
    pub head_lag: u64,
    pub tokens: u64,
    pub old_tokens: u64,
}

pub struct World {
    pub scheduler: FlowScheduler,
    pub rng: CounterRng,
    /// Answers being generated: their tokens, and how many of them in this round.
    pub live: BTreeMap<MemberId, (Vec<Stretch>, u64)>,
    pub paused: BTreeMap<MemberId, Vec<Stretch>>,
    pub groups: BTreeMap<u64, Seen>,
    pub grading: BTreeSet<u64>,
    pub kept: BTreeSet<u64>,
    pub consumed: BTreeSet<u64>,
    pub dropped: BTreeSet<u64>,
    pub learning: Option<Batch>,
    pub batches: Vec<Batch>,
    /// Commands of the last event.
    pub commands: Vec<FlowCommand>,
    pub event: FlowEvent,
    pub loaded: u64,
    /// Paused when the last event came.
    pub paused_before: usize,
    /// Answers that ended in this round, and groups that are complete and kept.
    pub done: u64,
    pub now: f64,
    /// Of ten groups, how many are kept.
    pub keep: usize,
    pub losses: bool,
    /// Whether updates may come to nothing.
    pub skips: bool,
}

impl World {
    pub fn new(settings: FlowSettings, seed: u64) -> Self {
        let mut world = Self {
            scheduler: FlowScheduler::new(settings),
            rng: CounterRng::new(seed),
            live: BTreeMap::new(),
            paused: BTreeMap::new(),
            groups: BTreeMap::new(),
            grading: BTreeSet::new(),
            kept: BTreeSet::new(),
            consumed: BTreeSet::new(),
            dropped: BTreeSet::new(),
            learning: None,
            batches: Vec::new(),
            commands: Vec::new(),
            event: FlowEvent::Tick,
            loaded: 0,
            paused_before: 0,
            done: 0,
            now: 0.0,
            keep: 8,
            losses: true,
            skips: true,
        };
        world.tell(FlowEvent::Started);
        world
    }

    pub fn settings(&self) -> &FlowSettings {
        self.scheduler.settings()
    }

    /// Every answer that is generated grows by up to two tokens; then one thing happens.
    pub fn step(&mut self) {
        self.now += self.rng.uniform();
        let interruptible = self.settings().interrupt == Interrupt::Token;
        let round_end = self.settings().round_end;
        let left_of_budget = |stint: u64| match round_end {
            RoundEnd::Budget { tokens } => tokens - stint,
            _ => u64::MAX,
        };
        for (stretches, stint) in self.live.values_mut() {
            let tokens = (self.rng.below(3) as u64).min(left_of_budget(*stint));
            *stint += tokens;
            match stretches.last_mut() {
                Some(last) if last.version == self.loaded || !interruptible => last.tokens += tokens,
                _ if tokens > 0 => stretches.push(Stretch { version: self.loaded, tokens }),
                _ => {}
            }
        }
        let event = self.next_event();
        self.tell(event);
    }

    fn next_event(&mut self) -> FlowEvent {
        if let RoundEnd::Budget { tokens } = self.settings().round_end
            && let Some((&id, _)) = self.live.iter().find(|(_, (_, stint))| *stint >= tokens)
        {
            return FlowEvent::Exhausted { id };
        }
        let idle = self.live.is_empty() && self.grading.is_empty() && self.learning.is_none();
        assert!(!idle, "stuck: nothing can happen any more after {:?}: {:?}", self.event, self.scheduler);
        loop {
            match self.rng.below(if self.losses { 24 } else { 22 }) {
                0..8 if !self.live.is_empty() => {
                    let (&id, (stretches, _)) = self.pick_live();
                    return FlowEvent::Finished { id, stretches: stretches.clone() };
                }
                8..14 if !self.grading.is_empty() => {
                    let index = self.rng.below(self.grading.len());
                    let group = self.grading.iter().nth(index).copied().unwrap();
                    return FlowEvent::Graded { group, keep: self.rng.below(10) < self.keep };
                }
                14..18 if self.learning.is_some() => {
                    let empty = self.learning.as_ref().is_some_and(|batch| batch.groups.is_empty());
                    let skipped = empty || (self.skips && self.rng.below(12) == 0);
                    return if skipped { FlowEvent::Skipped } else { FlowEvent::Published };
                }
                18 => {
                    let load = EngineLoad {
                        active: self.live.len() as u64,
                        kv_use: self.rng.uniform(),
                        preemptions: u64::from(self.rng.below(8) == 0),
                        queued: 0,
                    };
                    return FlowEvent::Load { load };
                }
                19 => return FlowEvent::Measured { spread: self.rng.uniform() },
                20 => return FlowEvent::Tick,
                // It ended before the pause reached it.
                21 => {
                    let carried: Vec<MemberId> =
                        self.paused.keys().copied().filter(|id| self.keeps_what_it_has(*id)).collect();
                    if !carried.is_empty() {
                        let id = carried[self.rng.below(carried.len())];
                        return FlowEvent::Finished { id, stretches: self.paused[&id].clone() };
                    }
                }
                22 if !self.live.is_empty() => return FlowEvent::Lost { id: *self.pick_live().0 },
                _ => {}
            }
        }
    }

    /// Whether what is paused goes on from where it is, and does not begin anew.
    fn keeps_what_it_has(&self, id: MemberId) -> bool {
        let group = self.scheduler.groups.get(&id.group);
        group.is_some_and(|group| group.members[id.member as usize].place == Place::Paused)
    }

    fn pick_live(&mut self) -> (&MemberId, &(Vec<Stretch>, u64)) {
        let index = self.rng.below(self.live.len());
        self.live.iter().nth(index).unwrap()
    }

    /// Tells the scheduler, and does what it says.
    pub fn tell(&mut self, event: FlowEvent) {
        self.paused_before = self.paused.len();
        self.event = event.clone();
        match &event {
            FlowEvent::Finished { id, stretches } => {
                let was = self.live.remove(id).is_some() || self.paused.remove(id).is_some();
                if was && let Some(group) = self.groups.get_mut(&id.group) {
                    group.finished.insert(id.member, stretches.clone());
                }
                self.done += 1;
            }
            FlowEvent::Exhausted { id } => {
                let (stretches, _) = self.live.remove(id).unwrap();
                self.paused.insert(*id, stretches);
            }
            FlowEvent::Lost { id } => {
                self.live.remove(id);
                self.paused.insert(*id, Vec::new());
            }
            FlowEvent::Graded { group, keep } => {
                assert!(self.grading.remove(group));
                if *keep {
                    self.kept.insert(*group);
                }
            }
            FlowEvent::Published => {
                let batch = self.learning.take().unwrap();
                for group in &batch.groups {
                    assert!(self.consumed.insert(*group), "group {group} is learned from twice");
                }
                self.done = 0;
            }
            FlowEvent::Skipped => {
                let batch = self.learning.take().unwrap();
                self.dropped.extend(batch.groups);
                self.done = 0;
            }
            _ => {}
        }
        self.commands = self.scheduler.on(event, self.now);
        for command in self.commands.clone() {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: FlowCommand) {
        match command {
            FlowCommand::Load { version } => {
                assert!(version >= self.loaded, "versions never go backwards");
                self.loaded = version;
            }
            FlowCommand::Launch { group, source, members } => {
                let draws = matches!(self.settings().round_end, RoundEnd::Groups { .. });
                assert!(draws || self.paused.is_empty(), "something new starts while something paused waits");
                for member in 0..members {
                    let begun = vec![Stretch { version: self.loaded, tokens: 1 }];
                    self.live.insert(MemberId { group, member }, (begun, 1));
                }
                let seen = Seen { source, members, finished: BTreeMap::new() };
                assert!(self.groups.insert(group, seen).is_none());
            }
            FlowCommand::Pause { id } => {
                let (stretches, _) = self.live.remove(&id).expect("only what is live pauses");
                self.paused.insert(id, stretches);
            }
            FlowCommand::Resume { id } => {
                let stretches = self.paused.remove(&id).expect("only what is paused goes on");
                self.live.insert(id, (stretches, 0));
            }
            FlowCommand::Restart { id } => {
                self.paused.remove(&id);
                self.live.insert(id, (Vec::new(), 0));
            }
            FlowCommand::Free { id } => {
                assert!(matches!(self.event, FlowEvent::Finished { id: ended, .. } if ended == id));
            }
            FlowCommand::Grade { group } => {
                let seen = &self.groups[&group];
                assert_eq!(seen.finished.len() as u32, seen.members, "only whole groups are graded");
                assert!(self.grading.insert(group));
            }
            FlowCommand::Train { groups } => self.train(groups),
            FlowCommand::Drop { group, .. } => {
                self.live.retain(|id, _| id.group != group);
                self.paused.retain(|id, _| id.group != group);
                self.grading.remove(&group);
                self.kept.remove(&group);
                assert!(!self.consumed.contains(&group) && self.dropped.insert(group));
            }
        }
    }

    fn train(&mut self, groups: Vec<u64>) {
        assert!(self.learning.is_none(), "one batch at a time");
        if self.settings().takes_turns() {
            assert!(self.live.is_empty(), "nothing generates while it learns");
        }
        let version = self.scheduler.version();
        let (mut head_lag, mut tokens, mut old_tokens) = (0, 0, 0);
        let (mut sources, mut sizes) = (Vec::new(), Vec::new());
        for group in &groups {
            assert!(self.kept.remove(group), "only complete groups that were kept are learned from, once");
            let seen = &self.groups[group];
            sources.push(seen.source);
            sizes.push(seen.finished.len() as u32);
            for stretch in seen.finished.values().flatten() {
                assert!(stretch.version <= version);
                head_lag = head_lag.max(version - stretch.version);
                tokens += stretch.tokens;
                old_tokens += if stretch.version < version { stretch.tokens } else { 0 };
            }
        }
        let batch = Batch { version, groups, sources, sizes, head_lag, tokens, old_tokens };
        self.batches.push(batch.clone());
        self.learning = Some(batch);
    }

    /// Submitted = live + paused + buffered + consumed + dropped, and the scheduler's counts are the world's.
    pub fn check_conservation(&self) {
        let ledger = self.scheduler.ledger();
        assert!(ledger.balances(), "{ledger:?} after {:?}", self.event);
        assert_eq!(ledger.live, self.live.len() as u64, "after {:?}", self.event);
        assert_eq!(ledger.paused, self.paused.len() as u64, "after {:?}", self.event);
        let members = |groups: &BTreeSet<u64>| -> u64 {
            groups.iter().map(|group| u64::from(self.groups[group].members)).sum()
        };
        assert_eq!(ledger.consumed, members(&self.consumed));
        assert_eq!(ledger.dropped_in_all(), members(&self.dropped));
        assert!(ledger.live <= self.scheduler.limit(), "more requests than the limit");
    }
}
