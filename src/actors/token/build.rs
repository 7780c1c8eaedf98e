//! From a configuration, and perhaps a checkpoint, to a token run and its learner.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};

use super::checkpoint::{StandingGroup, TOKEN_RUN_STATE, TokenRunState, files as own_files};
use super::critic::ValueFunction;
use super::decoder_file::DecoderFile;
use super::demonstrations::Demonstrations;
use super::frozen;
use super::generator::GeneratorSnapshot;
use super::grading::GradingPool;
use super::journal::TokenJournal;
use super::language_model::LanguageModel;
use super::learner::{Balancer, TokenLearnerParts, TokenLearnerRole};
use super::plane::{Plane, PlaneParts, PlaneSnapshot, ReadyGroup, Tracked};
use super::run::{TokenRun, TokenRunParts};
use super::teachers::OpenTeachers;
use crate::actors::checkpoint::{MAX_STATE_BYTES, files};
use crate::actors::interrupt::Interrupt;
use crate::actors::parameter_bus::{ParameterBus, Published};
use crate::actors::queue::{QueueReceiver, queue};
use crate::actors::recorder::Recorder;
use crate::actors::resume::newest_whole;
use crate::actors::run_dir::RunDir;
use crate::actors::train::TrainOptions;
use crate::actors::train_error::TrainError;
use crate::codec::{self, CheckpointReader, CheckpointStore, CodecError, tensors_from_bytes};
use crate::config::TokenConfig;
use crate::env::task::{Prompts, Split, Task};
use crate::learner::LearnerError;
use crate::learner::token::{Keep, TokenLearner, TokenLearnerConfig, TokenLearnerState};
use crate::policy::Parameters;
use crate::schedule::{Balance, Scheduler, SchedulerSettings};
use crate::telemetry::{Cadence, MetricsPosition, SampleWriter, TokenMetrics, TokenRecord};
use crate::trajectory::{Amount, BufferedTicket, DropReason, Ledger, Trajectory, Version};

/// One generator a device; the CPU is the only device yet.
const GENERATORS: usize = 1;

/// A run that is ready to start.
pub(super) struct Prepared {
    /// What all actors share.
    pub(super) run: Arc<TokenRun>,
    /// The learner's role.
    pub(super) learner: TokenLearnerRole,
    /// Where each generator continues; `None`: from the beginning.
    pub(super) generators: Vec<Option<GeneratorSnapshot>>,
}

/// A checkpoint's content.
pub(super) struct TokenCheckpoint {
    /// Everything but tensors.
    pub(super) state: TokenRunState,
    /// Parameters that are trained, by name.
    pub(super) parameters: Vec<(String, Tensor)>,
    optimizer: Vec<(String, Tensor)>,
    reference: Option<Vec<(String, Tensor)>>,
    /// A critic with a trunk of its own, and the state of its optimiser.
    critic: Option<(ValueFunction, Vec<(String, Tensor)>)>,
    /// Older versions that are still generated with, the latest first.
    older: Vec<(Version, Vec<(String, Tensor)>)>,
}

/// Reads the newest whole checkpoint of a token run.
pub(super) fn load(reader: &CheckpointReader) -> Result<Option<TokenCheckpoint>, TrainError> {
    let Some(loaded) = newest_whole(reader)? else { return Ok(None) };
    let tensors =
        |name: &str| Ok::<_, CodecError>(tensors_from_bytes(loaded.file(name)?, &Device::Cpu)?.tensors);
    let state: TokenRunState = codec::decode(TOKEN_RUN_STATE, loaded.file(files::STATE)?, MAX_STATE_BYTES)?;
    let versions = state.older_versions.iter();
    let older = versions.map(|&version| Ok((version, tensors(&own_files::older(version))?)));
    let critic = match loaded.file(own_files::CRITIC) {
        Err(_) => None,
        Ok(bytes) => {
            let file = DecoderFile::from_bytes(bytes).and_then(ValueFunction::of_file);
            Some((file.map_err(|error| misfit(&error))?, tensors(own_files::CRITIC_OPTIMIZER)?))
        }
    };
    Ok(Some(TokenCheckpoint {
        critic,
        older: older.collect::<Result<_, CodecError>>()?,
        state,
        parameters: tensors(files::PARAMETERS)?,
        optimizer: tensors(files::OPTIMIZER)?,
        reference: tensors(own_files::REFERENCE).ok(),
    }))
}

/// Builds everything that lives as long as the run; writes the resolved configuration once the checkpoint fits.
pub(super) fn build(
    config: TokenConfig,
    task: Arc<dyn Task>,
    mut model: LanguageModel,
    critic: Option<ValueFunction>,
    teachers: &OpenTeachers,
    metrics: &Arc<TokenMetrics>,
    run_dir: &RunDir,
    options: &TrainOptions,
    interrupt: &Interrupt,
) -> Result<Prepared, TrainError> {
    let mut checkpoint =
        if options.resume { load(&CheckpointReader::new(run_dir.checkpoints()))? } else { None };
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
    let (mut learner, mut state) = match checkpoint {
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
    let lead = state.plane.scheduler.lead();
    let capacity = (lead as usize + 2) * config.learner.prompts;
    let (sender, receiver) = queue::<ReadyGroup>(capacity);
    let first = Published {
        version: learner.version(),
        parameters: learner.parameters().snapshot().map_err(LearnerError::from)?,
        normalizer: None,
    };
    let bus = Arc::new(ParameterBus::new(first, GENERATORS));
    let balancer = Balancer::new(&config.learner, options.serial, state.balance);
    let plane = Arc::new(Plane::new(PlaneParts {
        task: Arc::clone(&task),
        tokenizer: Arc::clone(&model.tokenizer),
        learner: config.learner.clone(),
        answers: balancer.answers().unwrap_or(config.learner.group_size),
        context: model.decoder.config().context,
        generators: GENERATORS,
        queue: sender.clone(),
        prompts,
        scheduler: state.plane.scheduler.clone(),
        history: std::iter::once(bus.latest()).chain(older).collect(),
    }));
    let open = std::mem::take(&mut state.plane.open);
    let tracked = std::mem::take(&mut state.plane.tracked);
    plane
        .restore(open, tracked, state.ordered, |trajectory| adopted(&ledger, trajectory))
        .map_err(TrainError::Checkpoint)?;
    let waker = Arc::clone(&plane);
    let wake = Box::new(move || waker.wake());
    let grading = GradingPool::start(&config.grading, options.serial, Arc::clone(&task), GENERATORS, wake)
        .map_err(|error| TrainError::Task(format!("the grading threads cannot be started: {error}")))?;
    let run = Arc::new(TokenRun::new(TokenRunParts {
        stops: model.stops(&config.generate.stop),
        config,
        task,
        tokenizer: model.tokenizer,
        decoder: model.decoder,
        ledger,
        bus,
        plane,
        grading,
        metrics: Arc::clone(metrics),
        queue: sender,
    }));
    if let Some(epochs) = balancer.epochs() {
        learner.set_epochs(epochs);
    }
    let generators = std::mem::take(&mut state.generators);
    let learner = learner_role(
        &run,
        learner,
        balancer,
        receiver,
        state,
        demonstrations,
        position,
        run_dir,
        options,
        interrupt,
    )?;
    let mut snapshots = generators;
    snapshots.resize(GENERATORS, None);
    Ok(Prepared { run, learner, generators: snapshots })
}

/// Versions before the newest that generation still uses.
fn older_versions(
    learner: &TokenLearner,
    older: Vec<(Version, Vec<(String, Tensor)>)>,
) -> Result<Vec<Arc<Published>>, TrainError> {
    let older = older.into_iter().map(|(version, tensors)| {
        let parameters = learner.parameters().snapshot_with(tensors).map_err(|error| misfit(&error))?;
        Ok(Arc::new(Published { version, parameters, normalizer: None }))
    });
    older.collect()
}

/// The ticket of a trajectory that had ended when a checkpoint was taken.
fn adopted(ledger: &Ledger, trajectory: &Trajectory) -> BufferedTicket {
    let ticket = ledger.adopt_buffered(trajectory.tokens.len() as u64);
    if trajectory.reward.is_some() { ticket } else { ticket.useless(DropReason::GradingFailed) }
}

/// The learner's role with its files and what a checkpoint held for it.
fn learner_role(
    run: &Arc<TokenRun>,
    learner: TokenLearner,
    balancer: Balancer,
    receiver: QueueReceiver<ReadyGroup>,
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
    let adopt = |StandingGroup { group, others }: StandingGroup| ReadyGroup {
        others,
        tickets: group.members.iter().map(|member| adopted(&run.ledger, member)).collect(),
        queued_at: group.oldest_version().unwrap_or_default(),
        group,
    };
    let carried: VecDeque<ReadyGroup> = state.queue.into_iter().map(adopt).collect();
    Ok(TokenLearnerRole::new(TokenLearnerParts {
        learner,
        queue: receiver,
        carried,
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
    let batch = config.learner.prompts as u64;
    let settings = SchedulerSettings::new(&config.schedule, batch, config.learner.forced_lag);
    let state = TokenRunState {
        learner: TokenLearnerState::default(),
        journal: TokenJournal::default(),
        metrics: MetricsPosition::default(),
        samples: 0,
        older_versions: Vec::new(),
        ledger: Ledger::default().snapshot(),
        plane: PlaneSnapshot {
            scheduler: Scheduler::new(settings),
            prompts: prompts.position(),
            open: Vec::new(),
            tracked: Tracked::default(),
        },
        ordered: 0,
        generators: Vec::new(),
        queue: Vec::new(),
        balance: Balance::default(),
    };
    Ok((learner, state))
}

fn misfit(error: &dyn std::fmt::Display) -> TrainError {
    TrainError::Checkpoint(error.to_string())
}

/// A checkpoint continues only with the trained parameters and adapters that it was made with.
fn check_trained(
    config: &TokenConfig,
    model: &LanguageModel,
    trained: &[(String, Tensor)],
    run_dir: &Path,
) -> Result<(), TrainError> {
    let names = model.decoder.layout().names();
    let now: Vec<&str> = names.filter(|name| model.decoder.is_trained(name, &config.model.frozen)).collect();
    let same = now.iter().copied().eq(trained.iter().map(|(name, _)| name.as_str()));
    if same && LanguageModel::adapters_of_run(run_dir)?.as_ref() == model.decoder.adapters() {
        return Ok(());
    }
    Err(misfit(
        &"the checkpoint was made with another model, or with other model.adapters, model.frozen or learner.critic.trunk",
    ))
}

/// Groups of a checkpoint are learned from together with those to come, and so have to be made alike.
fn check_group_sizes(config: &TokenLearnerConfig, state: &TokenRunState) -> Result<(), TrainError> {
    if config.keep == Keep::All {
        let standing = state.queue.iter().map(|standing| standing.group.members.len());
        let mut sizes = standing.chain(state.plane.open.iter().map(|open| open.size));
        let now = config.group_size;
        if let Some(saved) = sizes.find(|&saved| saved != now) {
            let why = format!(
                "the checkpoint was made with learner.group_size = {saved}, not {now}, or with another learner.keep"
            );
            return Err(TrainError::Checkpoint(why));
        }
    } else if state.queue.iter().any(|standing| standing.group.members.len() > 2) {
        let why = "the checkpoint was made with learner.keep = \"all\": take that, or begin a new run";
        return Err(TrainError::Checkpoint(why.into()));
    }
    Ok(())
}

/// The learner and the state that a checkpoint holds.
fn resumed(
    config: &TokenConfig,
    model: &LanguageModel,
    given: Option<ValueFunction>,
    checkpoint: TokenCheckpoint,
    run_dir: &Path,
) -> Result<(TokenLearner, TokenRunState), TrainError> {
    let TokenCheckpoint { mut state, parameters, optimizer, reference, critic, older: _ } = checkpoint;
    // Before reinforcement learning begins there may be none yet.
    let fits = match (config.learner.has_separate_critic(), state.journal.started) {
        (true, started) => critic.is_some() || !started,
        (false, _) => critic.is_none(),
    };
    if !fits {
        return Err(misfit(
            &"the checkpoint was made with another learner.critic.trunk or learner.advantage",
        ));
    }
    check_trained(config, model, &parameters, run_dir)?;
    let all = parameters.into_iter().chain(frozen::read(run_dir)?).collect();
    let parameters = model.decoder.layout().adopt(all, &Device::Cpu).map_err(|error| misfit(&error))?;
    check_group_sizes(&config.learner, &state)?;
    let batch = config.learner.prompts as u64;
    let settings = SchedulerSettings::new(&config.schedule, batch, config.learner.forced_lag);
    if state.plane.scheduler.settings() != &settings {
        return Err(TrainError::Checkpoint(
            "the checkpoint was made with another schedule, learner.prompts or learner.forced_lag".into(),
        ));
    }
    let mut learner = new_learner(config, model, &parameters, state.learner.clone())?;
    learner.optimizer().load_state(&optimizer).map_err(|error| misfit(&error))?;
    match (critic, given) {
        (Some((critic, optimizer)), _) => {
            config.check_critic(&critic.decoder)?;
            learner.set_critic(critic.decoder, &critic.parameters)?;
            if let Some(critic) = learner.critic_mut() {
                let loaded = critic.optimizer().load_state(&optimizer);
                loaded.map_err(|error| misfit(&format!("the critic's optimiser: {error}")))?;
            }
        }
        (None, Some(given)) => learner.set_critic(given.decoder, &given.parameters)?,
        (None, None) => {}
    }
    if let Some(reference) = reference {
        let reference = learner.parameters().snapshot_with(reference).map_err(|error| misfit(&error))?;
        learner.set_reference(reference);
    }
    if state.journal.started {
        state.plane.scheduler.restart();
    }
    Ok((learner, state))
}

/// Books what the checkpoint's ledger calls live or buffered but its contents do not bring back.
fn write_off_lost(ledger: &Ledger, state: &TokenRunState) {
    let minus = |total: Amount, kept: Amount| Amount {
        unrolls: total.unrolls.saturating_sub(kept.unrolls),
        steps: total.steps.saturating_sub(kept.steps),
    };
    let sum = |trajectories: &mut dyn Iterator<Item = &Trajectory>| {
        trajectories.fold(Amount::default(), |sum, trajectory| Amount {
            unrolls: sum.unrolls + 1,
            steps: sum.steps + trajectory.tokens.len() as u64,
        })
    };
    let live = sum(&mut state.plane.open.iter().flat_map(|open| &open.begun));
    let ended = state.plane.open.iter().flat_map(|open| &open.ended);
    let buffered = sum(&mut state.queue.iter().flat_map(|standing| &standing.group.members).chain(ended));
    ledger.write_off(minus(state.ledger.live, live), minus(state.ledger.buffered, buffered));
}

/// The parameters of the newest whole checkpoint of a token run, as a published version.
///
/// # Errors
/// When there is none, or it does not fit the model.
pub fn load_token_parameters(
    run_dir: &Path,
    model: &LanguageModel,
) -> Result<(Version, Parameters), TrainError> {
    let checkpoint = load(&CheckpointReader::new(run_dir.join(RunDir::CHECKPOINTS)))?
        .ok_or_else(|| TrainError::Checkpoint(format!("no checkpoint in {}", run_dir.display())))?;
    let parameters = adopt_trained(run_dir, model, checkpoint.parameters)?;
    Ok((checkpoint.state.learner.version, parameters))
}

/// The parameters that a checkpoint holds, with those of the run that are not trained.
///
/// # Errors
/// When they do not fit the model.
pub(super) fn adopt_trained(
    run_dir: &Path,
    model: &LanguageModel,
    trained: Vec<(String, Tensor)>,
) -> Result<Parameters, TrainError> {
    let all = trained.into_iter().chain(frozen::read(run_dir)?).collect();
    let adopt = || model.decoder.layout().adopt(all, &Device::Cpu)?.to_variables_where(|_| false);
    // Nothing of it is trained here, so that weights are laid out once.
    let (_, parameters) = adopt().map_err(|error| misfit(&error))?;
    Ok(parameters)
}
