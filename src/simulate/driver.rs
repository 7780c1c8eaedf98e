//! The driver: carries out the scheduler's commands in virtual time.

use std::collections::BTreeMap;

use super::config::{Placement, SimulateConfig, SimulateError};
use super::engine::Engine;
use super::lengths::Lengths;
use super::queue::{Plan, Planned};
use super::report::{SimulationReport, Timeline};
use crate::schedule::axes::{Interrupt, Layout, RoundEnd};
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, MemberId, Stretch};

/// Engines that a timeline shows.
const SHOWN: usize = 16;
/// Most changes of an engine that a timeline shows.
const SHOWN_CHANGES: usize = 20_000;

/// An answer on its way.
struct Sequence {
    source: u32,
    engine: Option<usize>,
    length: u64,
    /// Tokens by version, up to the last time it was added to an engine or the weights changed.
    stretches: Vec<Stretch>,
    /// Tokens written before it was added to its engine.
    before: u64,
    /// Version under which its state was computed, if it has any.
    state_of: Option<u64>,
    /// Version that samples its next token.
    sampled_by: u64,
}

impl Sequence {
    fn tokens(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.tokens).sum()
    }
}

/// A group whose members end.
#[derive(Default)]
struct Ending {
    source: u32,
    members: Vec<(f64, Vec<Stretch>)>,
}

struct Simulation<'a> {
    config: &'a SimulateConfig,
    scheduler: FlowScheduler,
    lengths: Lengths,
    engines: Vec<Engine>,
    sequences: BTreeMap<MemberId, Sequence>,
    endings: BTreeMap<u64, Ending>,
    plan: Plan,
    now: f64,
    version: u64,
    trainers: f64,
    learning_since: Option<f64>,
    learned: f64,
    generating: f64,
    report: SimulationReport,
    tokens: Vec<u64>,
    /// Tokens of versions before the one that ended their answer.
    carried: u64,
    answers: u64,
    waits: (f64, u64),
    batches: u64,
}

/// Simulates `config.updates` updates.
///
/// # Errors
/// When the configuration is wrong, or the schedule stands still.
pub fn simulate(config: &SimulateConfig) -> Result<SimulationReport, SimulateError> {
    let settings = config.settings()?;
    let decoupled = settings.layout == Layout::Decoupled;
    let (total, trainers) = (config.devices.total, config.devices.trainers);
    let generators = if decoupled { total - trainers } else { total };
    let engines = match config.devices.placement {
        Placement::Balanced => vec![Engine::new(config.engine, generators)],
        _ => (0..generators).map(|_| Engine::new(config.engine, 1)).collect(),
    };
    let sources = settings.sources().len();
    let mut simulation = Simulation {
        config,
        lengths: Lengths::new(&config.lengths, config.seed)?,
        scheduler: FlowScheduler::new(settings),
        engines,
        sequences: BTreeMap::new(),
        endings: BTreeMap::new(),
        plan: Plan::default(),
        now: 0.0,
        version: 0,
        trainers: if decoupled { trainers as f64 } else { total as f64 },
        learning_since: None,
        learned: 0.0,
        generating: 0.0,
        report: SimulationReport {
            system: config.system.clone(),
            consumed_by_source: vec![0; sources],
            ..SimulationReport::default()
        },
        tokens: Vec::new(),
        carried: 0,
        answers: 0,
        waits: (0.0, 0),
        batches: 0,
    };
    simulation.run()?;
    Ok(simulation.report)
}

impl Simulation<'_> {
    fn run(&mut self) -> Result<(), SimulateError> {
        self.tell(FlowEvent::Started);
        let mut measured = (self.config.warmup == 0).then_some(0.0);
        while self.scheduler.version() < self.config.updates {
            let Some((at, what)) = self.plan.next() else {
                return Err(SimulateError::Stuck { updates: self.scheduler.version() });
            };
            match what {
                Planned::Engine { engine, stamp } => {
                    if self.engines[engine].stamp == stamp {
                        self.pass(at);
                        self.end_of(engine);
                    }
                }
                Planned::Grade { group } => {
                    self.pass(at);
                    let source = self.endings.get(&group).map_or(0, |ending| ending.source);
                    let keep = self.lengths.keeps(source, group);
                    self.tell(FlowEvent::Graded { group, keep });
                }
                Planned::Update => {
                    self.pass(at);
                    let since = self.learning_since.take().unwrap_or(at);
                    self.learned += at - since;
                    self.report.timeline.learning.push((since, at));
                    self.tell(FlowEvent::Published);
                    if measured.is_none() && self.scheduler.version() >= self.config.warmup {
                        measured = Some(at);
                        self.measure_from_here();
                    }
                }
            }
        }
        self.conclude(measured.unwrap_or_default());
        Ok(())
    }

    fn pass(&mut self, at: f64) {
        if !self.sequences.is_empty() && self.scheduler.live() > 0 {
            self.generating += at - self.now;
        }
        self.now = at;
    }

    fn tell(&mut self, event: FlowEvent) {
        let commands = self.scheduler.on(event, self.now);
        let mut empty = false;
        let mut touched = Vec::new();
        for command in commands {
            match command {
                FlowCommand::Load { version } => self.load(version, &mut touched),
                FlowCommand::Launch { group, source, members } => {
                    self.endings.insert(group, Ending { source, ..Ending::default() });
                    for member in 0..members {
                        let id = MemberId { group, member };
                        let length = self.lengths.tokens(source, group, member);
                        let sequence = Sequence {
                            source,
                            engine: None,
                            length,
                            stretches: Vec::new(),
                            before: 0,
                            state_of: None,
                            sampled_by: 0,
                        };
                        self.sequences.insert(id, sequence);
                        self.place(id, &mut touched);
                    }
                }
                FlowCommand::Pause { id } => self.take_off(id, &mut touched),
                FlowCommand::Resume { id } => self.place(id, &mut touched),
                FlowCommand::Restart { id } => {
                    self.take_off(id, &mut touched);
                    if let Some(sequence) = self.sequences.get_mut(&id) {
                        (sequence.before, sequence.state_of) = (0, None);
                        sequence.stretches.clear();
                    }
                    self.place(id, &mut touched);
                }
                FlowCommand::Grade { group } => {
                    self.plan.add(self.now + self.config.costs.grading_seconds, Planned::Grade { group });
                }
                FlowCommand::Train { groups } => empty = self.train(&groups),
                FlowCommand::Drop { group, .. } => {
                    let ids: Vec<MemberId> = self.members_of(group);
                    for id in ids {
                        self.take_off(id, &mut touched);
                        self.sequences.remove(&id);
                    }
                    self.endings.remove(&group);
                }
                FlowCommand::Free { .. } => {}
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for engine in touched {
            self.replan(engine);
        }
        if empty {
            self.tell(FlowEvent::Skipped);
        }
    }

    fn members_of(&self, group: u64) -> Vec<MemberId> {
        let (first, last) = (MemberId { group, member: 0 }, MemberId { group, member: u32::MAX });
        self.sequences.range(first..=last).map(|(id, _)| *id).collect()
    }

    fn replan(&mut self, engine: usize) {
        let own = &mut self.engines[engine];
        own.advance(self.now);
        if let Some((at, _)) = own.next_end() {
            self.plan.add(at.max(self.now), Planned::Engine { engine, stamp: own.stamp });
        }
        let count = self.engines[engine].decoding() as f64;
        let shown = &mut self.report.timeline.engines;
        if engine < SHOWN {
            if shown.len() <= engine {
                shown.resize(engine + 1, Vec::new());
            }
            if shown[engine].len() < SHOWN_CHANGES {
                shown[engine].push((self.now, count));
            }
        }
    }

    /// An answer goes to an engine.
    fn place(&mut self, id: MemberId, touched: &mut Vec<usize>) {
        let engine = match self.config.devices.placement {
            Placement::Balanced => 0,
            Placement::LeastLoaded => {
                let loads = self.engines.iter().enumerate();
                loads.min_by_key(|(_, engine)| engine.load()).map_or(0, |(index, _)| index)
            }
            Placement::Hashed => {
                (id.group.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % self.engines.len()
            }
        };
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let tokens = sequence.tokens();
        let settings = self.scheduler.settings();
        let cached =
            sequence.state_of.is_some_and(|version| settings.resume.keeps_kv(version != self.version));
        let prompt = self.config.lengths.prompt_tokens;
        let prefill = if cached { 0 } else { prompt + tokens };
        let mut asked = sequence.length - tokens;
        if let RoundEnd::Budget { tokens } = settings.round_end {
            asked = asked.min(tokens);
        }
        sequence.engine = Some(engine);
        sequence.before = tokens;
        sequence.state_of = Some(self.version);
        sequence.sampled_by = self.version;
        self.engines[engine].advance(self.now);
        self.engines[engine].add(id, asked, prefill);
        touched.push(engine);
    }

    /// An answer leaves its engine and keeps what it has.
    fn take_off(&mut self, id: MemberId, touched: &mut Vec<usize>) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let Some(engine) = sequence.engine.take() else { return };
        self.engines[engine].advance(self.now);
        if !self.engines[engine].has_begun(id) {
            // Its state was never computed.
            sequence.state_of = None;
        }
        let written = self.engines[engine].remove(id);
        note(sequence, written);
        touched.push(engine);
    }

    /// Engines take up weights; what they decode goes on with its state or without.
    fn load(&mut self, version: u64, touched: &mut Vec<usize>) {
        let before = std::mem::replace(&mut self.version, version);
        let interrupts = self.scheduler.settings().interrupt == Interrupt::Token;
        let keeps = self.scheduler.settings().resume.keeps_kv(true);
        for engine in 0..self.engines.len() {
            self.engines[engine].advance(self.now);
            if before != version {
                self.engines[engine].stall(self.config.costs.sync_seconds);
            }
            touched.push(engine);
        }
        if !interrupts {
            return;
        }
        for (id, sequence) in &mut self.sequences {
            let Some(engine) = sequence.engine else { continue };
            let own = &mut self.engines[engine];
            let written = own.written(*id);
            note(sequence, written);
            sequence.sampled_by = version;
            if own.has_begun(*id) && !keeps {
                own.prefill(sequence.tokens());
                sequence.state_of = Some(version);
            }
        }
    }

    /// The sequence of an engine that ends now.
    fn end_of(&mut self, engine: usize) {
        self.engines[engine].advance(self.now);
        let Some((_, id)) = self.engines[engine].next_end() else { return };
        self.engines[engine].end(id);
        self.replan(engine);
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        sequence.engine = None;
        let asked = match self.scheduler.settings().round_end {
            RoundEnd::Budget { tokens } => (sequence.length - sequence.before).min(tokens),
            _ => sequence.length - sequence.before,
        };
        note(sequence, asked);
        if sequence.tokens() < sequence.length {
            return self.tell(FlowEvent::Exhausted { id });
        }
        let Some(sequence) = self.sequences.remove(&id) else { return };
        if let Some(ending) = self.endings.get_mut(&id.group) {
            ending.source = sequence.source;
            ending.members.push((self.now, sequence.stretches.clone()));
        }
        self.tell(FlowEvent::Finished { id, stretches: sequence.stretches });
    }

    /// The learner takes a batch; whether it is empty.
    fn train(&mut self, groups: &[u64]) -> bool {
        if groups.is_empty() {
            return true;
        }
        let version = self.scheduler.version();
        let (mut tokens, mut answers) = (0, 0);
        for group in groups {
            let Some(ending) = self.endings.remove(group) else { continue };
            let last = ending.members.iter().map(|(at, _)| *at).fold(0.0, f64::max);
            for (at, stretches) in ending.members {
                answers += 1;
                self.waits.0 += last - at;
                self.waits.1 += 1;
                self.report.consumed_by_source[ending.source as usize] += 1;
                let ended_at = stretches.last().map_or(version, |last| last.version);
                for stretch in stretches {
                    self.carried += if stretch.version < ended_at { stretch.tokens } else { 0 };
                    tokens += stretch.tokens;
                    let lag = version.saturating_sub(stretch.version) as usize;
                    if self.tokens.len() <= lag {
                        self.tokens.resize(lag + 1, 0);
                    }
                    self.tokens[lag] += stretch.tokens;
                }
            }
        }
        self.answers += answers;
        if self.batches == 0 {
            self.report.first_batch_mean_length = tokens as f64 / answers.max(1) as f64;
        }
        self.batches += 1;
        let costs = &self.config.costs;
        let seconds = costs.update_seconds + tokens as f64 * costs.train_seconds_per_token / self.trainers;
        self.learning_since = Some(self.now);
        self.plan.add(self.now + seconds, Planned::Update);
        false
    }

    /// The warm-up is over: figures begin anew.
    fn measure_from_here(&mut self) {
        for engine in &mut self.engines {
            engine.advance(self.now);
            (engine.busy, engine.prefill, engine.occupancy) = (0.0, 0.0, 0.0);
        }
        (self.learned, self.generating) = (0.0, 0.0);
        self.learning_since = self.learning_since.map(|_| self.now);
        self.tokens.clear();
        (self.answers, self.waits, self.carried) = (0, (0.0, 0), 0);
        self.report.consumed_by_source.fill(0);
        self.report.timeline = Timeline { from: self.now, ..Timeline::default() };
    }

    fn conclude(&mut self, from: f64) {
        for engine in &mut self.engines {
            engine.advance(self.now);
        }
        let seconds = self.now - from;
        let engines = self.engines.len() as f64;
        let sum = |of: fn(&Engine) -> f64| self.engines.iter().map(of).sum::<f64>();
        let (busy, prefill, occupancy) =
            (sum(|engine| engine.busy), sum(|engine| engine.prefill), sum(|engine| engine.occupancy));
        let all: u64 = self.tokens.iter().sum();
        let lags: f64 = self.tokens.iter().enumerate().map(|(lag, tokens)| lag as f64 * *tokens as f64).sum();
        let ledger = self.scheduler.ledger();
        let updates = self.config.updates - self.config.warmup;
        let report = &mut self.report;
        report.updates = updates;
        report.seconds = seconds;
        report.seconds_per_update = seconds / updates as f64;
        report.trained_tokens = all;
        report.tokens_per_second = all as f64 / seconds;
        report.old_fraction = (all - self.tokens.first().copied().unwrap_or(0)) as f64 / all.max(1) as f64;
        report.carried_fraction = self.carried as f64 / all.max(1) as f64;
        report.lag_mean = lags / all.max(1) as f64;
        report.lag_max = self.tokens.len().saturating_sub(1) as u64;
        report.lag_histogram.clone_from(&self.tokens);
        report.mean_length = all as f64 / self.answers.max(1) as f64;
        report.live_mean = occupancy / self.generating.max(f64::MIN_POSITIVE);
        report.generation_busy = busy / (engines * seconds);
        report.learning_busy = self.learned / seconds;
        report.prefill_share = prefill / busy.max(f64::MIN_POSITIVE);
        report.overlap_efficiency = (busy / engines).max(self.learned) / seconds;
        report.group_wait_seconds = self.waits.0 / self.waits.1.max(1) as f64;
        (report.submitted, report.consumed, report.dropped) =
            (ledger.submitted, ledger.consumed, ledger.dropped_in_all());
        report.timeline.until = self.now;
    }
}

/// Books what a sequence has written since it was added to its engine.
fn note(sequence: &mut Sequence, written: u64) {
    let version = sequence.sampled_by;
    let fresh = sequence.before + written - sequence.tokens();
    match sequence.stretches.last_mut() {
        Some(last) if last.version == version => last.tokens += fresh,
        _ if fresh > 0 => sequence.stretches.push(Stretch { version, tokens: fresh }),
        _ => {}
    }
}
