//! From a configuration, and perhaps a checkpoint, to a token run and its learner.

mod from_checkpoint;

use std::sync::Arc;

use super::checkpoint::TokenRunState;
use super::critic::ValueFunction;
use super::demonstrations::Demonstrations;
use super::devices::TokenDevices;
use super::frozen;
use super::grading::GradingPool;
use super::journal::TokenJournal;
use super::language_model::LanguageModel;
use super::learner::{Balancer, TokenLearnerParts, TokenLearnerRole};
use super::plane::{Plane, PlaneParts, PlaneSnapshot, Tickets, Tracked};
use super::run::{TokenRun, TokenRunParts};
use super::teachers::OpenTeachers;
use crate::actors::interrupt::Interrupt;
use crate::actors::parameter_bus::{ParameterBus, Published};
use crate::actors::recorder::Recorder;
use crate::actors::run_dir::RunDir;
use crate::actors::train::TrainOptions;
use crate::actors::train_error::TrainError;
use crate::codec::{CheckpointReader, CheckpointStore};
use crate::config::TokenConfig;
use crate::env::task::{Prompts, Split, Task};
use crate::learner::LearnerError;
use crate::learner::token::{TokenLearner, TokenLearnerState};
use crate::policy::Parameters;
use crate::schedule::Balance;
use crate::schedule::flow::FlowScheduler;
use crate::schedule::trace::{TRACE_FILE, TraceWriter};
use crate::telemetry::{Cadence, MetricsPosition, SampleWriter, TokenMetrics, TokenRecord};
use crate::trajectory::Ledger;

pub use self::from_checkpoint::load_token_parameters;
pub(super) use self::from_checkpoint::{adopt_trained, load};
use self::from_checkpoint::{adopted, older_versions, resumed, write_off_lost};

/// A run that is ready to start.
pub(super) struct Prepared {
    /// What all actors share.
    pub(super) run: Arc<TokenRun>,
    /// The learner's role.
    pub(super) learner: TokenLearnerRole,
}

/// Builds everything that lives as long as the run; writes the resolved configuration once the checkpoint fits.
pub(super) fn build(
    config: TokenConfig,
    task: Arc<dyn Task>,
    mut model: LanguageModel,
    critic: Option<ValueFunction>,
    teachers: &OpenTeachers,
    devices: &TokenDevices,
    metrics: &Arc<TokenMetrics>,
    run_dir: &RunDir,
    options: &TrainOptions,
    interrupt: &Interrupt,
) -> Result<Prepared, TrainError> {
    let generators = devices.generation.len();
    let reader = CheckpointReader::new(run_dir.checkpoints());
    let mut checkpoint = if options.resume { load(&reader, model.decoder.device())? } else { None };
    if options.resume && checkpoint.is_none() {
        eprintln!("no checkpoint in {}; starting anew", run_dir.path().display());
    }
    let older =
        checkpoint.as_mut().map(|checkpoint| std::mem::take(&mut checkpoint.older)).unwrap_or_default();
    let position = checkpoint.as_ref().map(|checkpoint| checkpoint.state.metrics.clone());
    let mut prompts = Prompts::new(task.len(Split::Train), config.task.shuffle, config.seed)
        .map_err(|error| TrainError::Task(error.to_string()))?;
    let demonstrations = Demonstrations::new(
        Arc::clone(&task),
        Arc::clone(&model.tokenizer),
        model.decoder.config().context,
        config.learner.clone(),
        prompts.clone(),
    );
    let is_new = checkpoint.is_none();
    let (mut learner, state) = match checkpoint {
        None => fresh(&config, &mut model, critic, &prompts)?,
        Some(checkpoint) => {
            teachers.check_resumed(run_dir.path())?;
            resumed(&config, &model, critic, checkpoint, run_dir.path())?
        }
    };
    learner.set_teachers(teachers.teachers.clone());
    let older = older_versions(&learner, older)?;
    prompts.resume(state.plane.prompts).map_err(|error| TrainError::Checkpoint(error.to_string()))?;
    run_dir.write_config(&config)?;
    model.save_description(run_dir.path())?;
    if is_new {
        frozen::write(run_dir.path(), &learner.frozen())?;
        teachers.write(run_dir.path())?;
    }

    let ledger = Ledger::resume(state.ledger.clone());
    write_off_lost(&ledger, &state);
    let lead = state.plane.scheduler.settings().admission.lead.unwrap_or_default();
    metrics.queue.capacity.set((lead + 2) * config.learner.prompts as u64);
    let first = Published {
        version: learner.version(),
        parameters: learner.parameters().snapshot().map_err(LearnerError::from)?,
        normalizer: None,
    };
    let bus = Arc::new(ParameterBus::new(first, generators));
    let balancer = Balancer::new(&config.learner, options.serial, state.balance);
    let trace = start_trace(options, run_dir, &state.plane.scheduler, generators)?;
    let plane = Arc::new(Plane::new(PlaneParts {
        task: Arc::clone(&task),
        tokenizer: Arc::clone(&model.tokenizer),
        learner: config.learner.clone(),
        context: model.decoder.config().context,
        host_cache_tokens: config
            .generate
            .host_cache_tokens
            .unwrap_or(config.generate.engine.cache_tokens * generators),
        generators,
        serial: options.serial,
        prompts,
        scheduler: state.plane.scheduler.clone(),
        trace,
        history: std::iter::once(bus.latest()).chain(older).collect(),
    }));
    plane
        .restore(
            state.plane.clone(),
            Tickets {
                live: &mut |trajectory| ledger.adopt_live(trajectory.tokens.len() as u64),
                buffered: &mut |trajectory| adopted(&ledger, trajectory),
            },
        )
        .map_err(TrainError::Checkpoint)?;
    if let Some(answers) = balancer.answers() {
        plane.set_answers(answers);
    }
    let grading = start_grading(&config, options.serial, &task, &plane)?;
    let places = devices.places(&config, &model.decoder)?;
    let run = Arc::new(TokenRun::new(TokenRunParts {
        stops: model.stops(&config.generate.stop),
        config,
        task,
        tokenizer: model.tokenizer,
        decoder: model.decoder,
        ledger,
        places,
        bus,
        plane,
        grading,
        metrics: Arc::clone(metrics),
    }));
    if let Some(epochs) = balancer.epochs() {
        learner.set_epochs(epochs);
    }
    let learner =
        learner_role(&run, learner, balancer, state, demonstrations, position, run_dir, options, interrupt)?;
    Ok(Prepared { run, learner })
}

/// The run's trace, where one is asked for; that of a resumed run goes on.
fn start_trace(
    options: &TrainOptions,
    run_dir: &RunDir,
    scheduler: &FlowScheduler,
    generators: usize,
) -> Result<Option<TraceWriter>, TrainError> {
    if !options.trace {
        return Ok(None);
    }
    let path = run_dir.path().join(TRACE_FILE);
    let trace = if options.resume {
        TraceWriter::append(&path, scheduler, generators)?
    } else {
        TraceWriter::create(&path, scheduler, generators)?
    };
    Ok(Some(trace))
}

/// The threads that grade for all generators.
fn start_grading(
    config: &TokenConfig,
    serial: bool,
    task: &Arc<dyn Task>,
    plane: &Arc<Plane>,
) -> Result<GradingPool, TrainError> {
    let waker = Arc::clone(plane);
    let wake = Box::new(move || waker.wake());
    GradingPool::start(&config.grading, serial, Arc::clone(task), plane.generators(), wake)
        .map_err(|error| TrainError::Task(format!("the grading threads cannot be started: {error}")))
}

/// The learner's role with its files and what a checkpoint held for it.
fn learner_role(
    run: &Arc<TokenRun>,
    learner: TokenLearner,
    balancer: Balancer,
    state: TokenRunState,
    demonstrations: Demonstrations,
    position: Option<MetricsPosition<TokenRecord>>,
    run_dir: &RunDir,
    options: &TrainOptions,
    interrupt: &Interrupt,
) -> Result<TokenLearnerRole, TrainError> {
    let telemetry = &run.config.telemetry;
    let cadence = if options.serial {
        Cadence::EveryUpdates(telemetry.serial_updates_per_line)
    } else {
        Cadence::PerSecond(telemetry.lines_per_second)
    };
    let recorder = Recorder::open(
        run_dir.path(),
        cadence,
        telemetry.tensorboard,
        position,
        run.ledger.submitted_steps(),
    )?;
    Ok(TokenLearnerRole::new(TokenLearnerParts {
        learner,
        journal: state.journal,
        balancer,
        demonstrations,
        recorder,
        samples: if state.samples > 0 {
            SampleWriter::resume(run_dir.path(), state.samples)?
        } else {
            SampleWriter::create(run_dir.path())?
        },
        store: CheckpointStore::open(run_dir.checkpoints(), run.config.checkpoint.policy())?,
        interrupt: interrupt.clone(),
        run: Arc::clone(run),
    }))
}

fn new_learner(
    config: &TokenConfig,
    model: &LanguageModel,
    parameters: &Parameters,
    state: TokenLearnerState,
) -> Result<TokenLearner, TrainError> {
    let (learner, decoder) = (config.learner.clone(), Arc::clone(&model.decoder));
    let temperature = f64::from(config.generate.temperature);
    let frozen = &config.model.frozen;
    Ok(TokenLearner::new(learner, config.seed, decoder, parameters, frozen, temperature, state)?)
}

/// A learner at version 0, and the state of a run that has seen nothing.
fn fresh(
    config: &TokenConfig,
    model: &mut LanguageModel,
    critic: Option<ValueFunction>,
    prompts: &Prompts,
) -> Result<(TokenLearner, TokenRunState), TrainError> {
    let parameters = model.initial_parameters(config.seed).map_err(LearnerError::from)?;
    let mut learner = new_learner(config, model, &parameters, TokenLearnerState::default())?;
    if let Some(critic) = critic {
        learner.set_critic(critic.decoder, &critic.parameters)?;
    }
    let state = TokenRunState {
        learner: TokenLearnerState::default(),
        journal: TokenJournal::default(),
        metrics: MetricsPosition::default(),
        samples: 0,
        older_versions: Vec::new(),
        ledger: Ledger::default().snapshot(),
        plane: PlaneSnapshot {
            scheduler: FlowScheduler::new(config.flow()?),
            prompts: prompts.position(),
            drawn: Vec::new(),
            open: Vec::new(),
            ready: Vec::new(),
            batch: Vec::new(),
            tracked: Tracked::default(),
        },
        balance: Balance::default(),
    };
    Ok((learner, state))
}
