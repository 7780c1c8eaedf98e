//! The driver: carries out the scheduler's commands in virtual time.
//!
//! [`sequences`] keeps the answers and their engines, [`learning`] the update in hand and how generation and learning
//! slow each other down, [`measure`] the figures.

mod learning;
mod measure;
mod sequences;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use self::learning::Learning;
use self::measure::Sums;
use self::sequences::{Ending, Sequence};
use super::config::{Placement, SimulateConfig, SimulateError};
use super::engine::{Engine, Next};
use super::lengths::Lengths;
use super::queue::{Plan, Planned};
use super::report::SimulationReport;
use crate::schedule::axes::{EngineLoad, Layout};
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings, MemberId};
use crate::schedule::trace::{TraceError, TraceWriter};

/// A trace that a simulation writes, and where.
type Trace = TraceWriter<BufWriter<File>>;

struct Simulation<'a> {
    config: &'a SimulateConfig,
    scheduler: FlowScheduler,
    lengths: Lengths,
    engines: Vec<Engine>,
    sequences: BTreeMap<MemberId, Sequence>,
    endings: BTreeMap<u64, Ending>,
    plan: Plan,
    now: f64,
    /// Version that engines use.
    version: u64,
    /// Devices that learn.
    trainers: f64,
    decoupled: bool,
    learning: Option<Learning>,
    /// Which plan of an update's end holds: the last that was made.
    update_stamp: u64,
    /// When the learner was free, seconds.
    free_since: f64,
    /// Whether engines have the pace that they have beside the learner.
    beside: bool,
    /// Engines whose next event may have changed.
    touched: Vec<usize>,
    /// Whether the next observation of the engines is planned.
    observing: bool,
    /// Preemptions up to the last observation.
    preemptions: u64,
    sums: Sums,
    report: SimulationReport,
    trace: Option<Trace>,
}

/// Simulates `config.updates` updates of the schedule that the configuration names.
///
/// # Errors
/// When the configuration is wrong, or the schedule stands still.
pub fn simulate(config: &SimulateConfig) -> Result<SimulationReport, SimulateError> {
    simulate_schedule(config, config.settings()?, None)
}

/// Simulates `config.updates` updates of a schedule, over the rest of the configuration, and writes a trace of it.
///
/// # Errors
/// When the configuration is wrong, the schedule stands still, or the trace cannot be written.
pub fn simulate_schedule(
    config: &SimulateConfig,
    settings: FlowSettings,
    trace: Option<&Path>,
) -> Result<SimulationReport, SimulateError> {
    config.check(&settings)?;
    let lengths = Lengths::new(&config.lengths, config.seed)?;
    let mut simulation = Simulation::new(config, settings, lengths);
    if let Some(path) = trace {
        simulation.write_to(path)?;
    }
    simulation.run()?;
    Ok(simulation.report)
}

/// As [`simulate_schedule`], with these lengths.
pub(super) fn simulate_lengths(
    config: &SimulateConfig,
    settings: FlowSettings,
    lengths: Lengths,
) -> Result<SimulationReport, SimulateError> {
    config.check(&settings)?;
    let mut simulation = Simulation::new(config, settings, lengths);
    simulation.run()?;
    Ok(simulation.report)
}

impl<'a> Simulation<'a> {
    fn new(config: &'a SimulateConfig, settings: FlowSettings, lengths: Lengths) -> Self {
        let decoupled = settings.layout == Layout::Decoupled;
        let devices = &config.devices;
        let (generators, trainers) = if decoupled && !devices.shared {
            (devices.total - devices.trainers, devices.trainers)
        } else {
            (devices.total, devices.total)
        };
        let engines = match devices.placement {
            Placement::Balanced => vec![Engine::new(config.engine, generators)],
            _ => (0..generators).map(|_| Engine::new(config.engine, 1)).collect(),
        };
        let sources = settings.sources().len();
        let mut simulation = Self {
            config,
            lengths,
            scheduler: FlowScheduler::new(settings),
            engines,
            sequences: BTreeMap::new(),
            endings: BTreeMap::new(),
            plan: Plan::default(),
            now: 0.0,
            version: 0,
            trainers: trainers as f64,
            decoupled,
            learning: None,
            update_stamp: 0,
            free_since: 0.0,
            beside: false,
            touched: Vec::new(),
            observing: false,
            preemptions: 0,
            sums: Sums::default(),
            report: SimulationReport {
                system: config.system.clone(),
                consumed_by_source: vec![0; sources],
                ..SimulationReport::default()
            },
            trace: None,
        };
        simulation.pace_engines();
        simulation
    }

    fn write_to(&mut self, path: &Path) -> Result<(), SimulateError> {
        let file = File::create(path).map_err(|source| TraceError::File {
            what: "create",
            path: path.to_owned(),
            source,
        })?;
        let machines = self.engines.iter().map(|engine| engine.machines() as usize).sum();
        self.trace = Some(TraceWriter::new(BufWriter::new(file), path, &self.scheduler, machines)?);
        Ok(())
    }

    fn run(&mut self) -> Result<(), SimulateError> {
        self.tell(FlowEvent::Started)?;
        let mut measured = (self.config.warmup == 0).then_some(0.0);
        while self.scheduler.version() < self.config.updates {
            let Some((at, what)) = self.plan.next() else {
                return Err(SimulateError::Stuck { updates: self.scheduler.version() });
            };
            match what {
                Planned::Engine { engine, stamp } if self.engines[engine].stamp == stamp => {
                    self.pass(at);
                    self.next_of(engine)?;
                }
                Planned::Grade { group } => {
                    self.pass(at);
                    let source = self.endings.get(&group).map_or(0, |ending| ending.source);
                    let keep = self.lengths.keeps(source, group);
                    self.tell(FlowEvent::Graded { group, keep })?;
                }
                Planned::Update { stamp } if self.update_stamp == stamp => {
                    self.pass(at);
                    self.publish()?;
                    if measured.is_none() && self.scheduler.version() >= self.config.warmup {
                        measured = Some(at);
                        self.measure_from_here();
                    }
                }
                Planned::Observe => {
                    self.pass(at);
                    self.observe()?;
                }
                // What was planned changed since.
                Planned::Engine { .. } | Planned::Update { .. } => {}
            }
        }
        self.conclude(measured.unwrap_or_default());
        if let Some(trace) = &mut self.trace {
            trace.flush()?;
        }
        Ok(())
    }

    fn pass(&mut self, at: f64) {
        if self.scheduler.live() > 0 {
            self.sums.generating += at - self.now;
        }
        self.now = at;
    }

    /// Tells the scheduler what happened, and does what it says.
    fn tell(&mut self, event: FlowEvent) -> Result<(), SimulateError> {
        let commands = match &mut self.trace {
            None => self.scheduler.on(event, self.now),
            Some(trace) => {
                let commands = self.scheduler.on(event.clone(), self.now);
                trace.decision(self.now, &event, &commands)?;
                commands
            }
        };
        let mut empty = false;
        for command in commands {
            match command {
                FlowCommand::Load { version } => self.load(version),
                FlowCommand::Launch { group, source, members } => self.launch(group, source, members),
                FlowCommand::Pause { id } => self.take_off(id),
                FlowCommand::Resume { id } => self.place(id),
                FlowCommand::Restart { id } => {
                    self.take_off(id);
                    self.forget(id);
                    self.place(id);
                }
                FlowCommand::Grade { group } => {
                    self.plan.add(self.now + self.config.costs.grading_seconds, Planned::Grade { group });
                }
                FlowCommand::Train { groups } => empty = self.train(&groups),
                FlowCommand::Drop { group, .. } => self.give_up(group),
                FlowCommand::Free { .. } => {}
            }
        }
        self.pace_engines();
        self.touched.sort_unstable();
        self.touched.dedup();
        for engine in std::mem::take(&mut self.touched) {
            self.replan(engine);
        }
        self.pace_learner();
        self.plan_observation();
        if empty { self.tell(FlowEvent::Skipped) } else { Ok(()) }
    }

    /// An engine's waiting sequences begin as far as they can, and what it comes to next is planned.
    fn replan(&mut self, engine: usize) {
        let own = &mut self.engines[engine];
        own.advance(self.now);
        own.admit();
        if let Some((at, _)) = own.next() {
            self.plan.add(at.max(self.now), Planned::Engine { engine, stamp: own.stamp });
        }
        let count = own.decoding() as f64;
        self.report.timeline.note(engine, self.now, count);
    }

    /// What an engine came to.
    fn next_of(&mut self, engine: usize) -> Result<(), SimulateError> {
        self.engines[engine].advance(self.now);
        match self.engines[engine].next() {
            Some((_, Next::End(id))) => {
                self.engines[engine].end(id);
                self.replan(engine);
                self.ended(id)
            }
            Some((_, Next::Full)) => {
                self.engines[engine].preempt();
                self.replan(engine);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Where a throttle follows the engines' memory, it is shown that from time to time while they work.
    fn plan_observation(&mut self) {
        let follows = self.scheduler.settings().admission.throttle.is_some();
        let has_memory = self.config.engine.kv_tokens.is_some();
        if follows && has_memory && !self.observing && self.scheduler.live() > 0 {
            self.observing = true;
            self.plan.add(self.now + self.config.engine.observe_seconds, Planned::Observe);
        }
    }

    fn observe(&mut self) -> Result<(), SimulateError> {
        self.observing = false;
        let mut load = EngineLoad::default();
        let mut preemptions = 0;
        for engine in &mut self.engines {
            engine.advance(self.now);
            load.active += engine.decoding() as u64;
            load.queued += (engine.load() - engine.decoding()) as u64;
            load.kv_use = load.kv_use.max(engine.kv_use());
            preemptions += engine.usage.preemptions;
        }
        load.preemptions = preemptions - self.preemptions;
        self.preemptions = preemptions;
        self.tell(FlowEvent::Load { load })
    }
}
