//! A whole training run: from a configuration and a run directory to a summary.
//!
//! The same call trains built-in environments from the command line and environments of a user's own program; the
//! registry is all that differs.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;

use super::checkpoint::{MAX_STATE_BYTES, RUN_STATE, RunState, files};
use super::devices;
use super::evaluation::{EvaluationResult, evaluate};
use super::evaluator::Evaluator;
use super::interrupt::Interrupt;
use super::journal::Journal;
use super::lane::{EpisodeCounters, Experience};
use super::learner::{LearnerParts, LearnerRole};
use super::monitor::Monitor;
use super::parameter_bus::{ParameterBus, Published};
use super::queue::queue;
use super::recorder::Recorder;
use super::role::RoleError;
use super::run::{Run, RunParts};
use super::run_dir::{RunDir, RunDirError};
use super::serial::run_serial;
use super::threaded::{Ending, run_threaded};
use crate::codec::{self, CheckpointReader, CheckpointStore, CodecError, tensors_from_bytes};
use crate::config::{Config, Contradiction, InferenceMode};
use crate::env::{EnvError, Registry};
use crate::learner::{Learner, LearnerError};
use crate::policy::Policy;
use crate::telemetry::{
    Cadence, Metrics, MetricsPosition, MetricsServer, Progress, RunOutcome, RunStatus, StatusBoard, Summary, TelemetryError,
    write_report,
};
use crate::trajectory::{Amount, Ledger, Unroll, Version};

/// How to run.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Where everything is written.
    pub run_dir: PathBuf,
    /// Continue the run in that directory from its last checkpoint.
    pub resume: bool,
    /// Start no threads for compute and step everything in a fixed order.
    pub serial: bool,
}

/// Why a run could not start, or not end properly.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] Contradiction),
    /// The environment cannot be made.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The run directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A checkpoint cannot be used.
    #[error("{0}; train without --resume in another directory to start anew")]
    Checkpoint(String),
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] devices::DeviceError),
    /// The learner cannot be built.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// A role failed outside the tree.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// Metrics or files failed.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// A file of the run is damaged.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// What a checkpoint brings back.
struct Resumed {
    state: RunState,
    parameters: Vec<(String, candle_core::Tensor)>,
    optimizer: Vec<(String, candle_core::Tensor)>,
}

/// Trains until a stop condition, a signal or a failure; the summary is also in the run directory. A run that failed
/// after it started is an `Ok` with that status.
///
/// # Errors
/// When the run cannot start, or its files cannot be written.
pub fn train(config: Config, registry: Registry, options: &TrainOptions) -> Result<Summary, TrainError> {
    config.check(&registry)?;
    let spec = Run::make_env(&registry, &config)?.spec().clone();
    config.check_spec(&spec)?;
    let learner_device = devices::open(&config.devices.learner)?;
    let inference_devices = match config.rollout.inference {
        InferenceMode::Central => {
            config.devices.inference.iter().map(|name| devices::open(name)).collect::<Result<_, _>>()?
        }
        InferenceMode::Local => Vec::new(),
    };
    let metrics = Arc::new(Metrics::new(&config.env.name));
    let board = Arc::new(StatusBoard::default());
    // Before the directory, so that a port in use leaves nothing behind.
    let server = MetricsServer::start(config.telemetry.listen, Arc::clone(&metrics), Arc::clone(&board))?;
    let run_dir = RunDir::prepare(&options.run_dir, options.resume, &config.stop)?;
    if let Some(summary) = run_dir.completed() {
        eprintln!("{} is complete already; nothing to do", options.run_dir.display());
        return Ok(summary);
    }
    let store = CheckpointStore::open(run_dir.checkpoints(), config.checkpoint.policy())?;
    let reader = CheckpointReader::new(run_dir.checkpoints());
    let resumed = if options.resume { load(&reader)? } else { None };
    if options.resume && resumed.is_none() {
        eprintln!("no checkpoint in {}; starting anew", options.run_dir.display());
    }

    board.set(RunStatus { run: run_dir.name(), env: config.env.name.clone(), ..RunStatus::default() });
    if let Some(server) = &server {
        eprintln!("metrics and status: http://{}/", server.address());
        run_dir.note_address(server.address())?;
    }

    let policy = Arc::new(Policy::new(&config.policy, &spec));
    let environments = config.rollout.actors * config.rollout.envs_per_actor;
    let fresh = RunState {
        learner: Learner::initial_state(
            &config.learner,
            config.policy.normalize_observations.then(|| spec.observation_len()),
        ),
        journal: Journal::new(config.evaluation.every_env_steps.unwrap_or_default()),
        metrics: MetricsPosition::default(),
        ledger: Ledger::default().snapshot(),
        next_episodes: vec![0; environments],
        rollouts: vec![None; config.rollout.actors],
        queue: Vec::new(),
    };
    let (state, parameters, optimizer, position) = match resumed {
        None => {
            let parameters = policy
                .layout()
                .initialize(config.seed, &learner_device.device)
                .map_err(LearnerError::from)?;
            (fresh, parameters, None, None)
        }
        Some(resumed) => {
            let parameters = policy
                .layout()
                .adopt(resumed.parameters, &learner_device.device)
                .map_err(|error| TrainError::Checkpoint(error.to_string()))?;
            check_shape(&resumed.state, &config, environments)?;
            let position = resumed.state.metrics.clone();
            (resumed.state, parameters, Some(resumed.optimizer), Some(position))
        }
    };
    let mut learner = Learner::new(
        config.learner.clone(),
        config.seed,
        Arc::clone(&policy),
        learner_device.device,
        &parameters,
        state.learner.clone(),
    )?;
    if let Some(tensors) = optimizer {
        let loaded = learner.optimizer().load_state(&tensors);
        loaded.map_err(|error| TrainError::Checkpoint(error.to_string()))?;
    }
    // Only now: a checkpoint that does not fit leaves the directory as it was.
    run_dir.write_config(&config)?;

    let ledger = Ledger::resume(state.ledger.clone());
    write_off_lost(&ledger, &state);
    let mut capacity = config.queue.capacity.unwrap_or(config.learner.batch_unrolls);
    if options.serial {
        // Nobody takes from the queue while the actors have their turns: there must be room for all of them, or only
        // the first ones would ever get through.
        capacity = capacity.max(config.rollout.actors);
    }
    let (sender, receiver) = queue::<Experience>(capacity);
    let first = Published {
        version: learner.version(),
        parameters: learner.parameters().deep_copy(&Device::Cpu).map_err(LearnerError::from)?,
        normalizer: learner.normalizer(),
    };
    let readers = config.rollout.actors + inference_devices.len();
    let run = Arc::new(Run::new(RunParts {
        bus: Arc::new(ParameterBus::new(first, readers)),
        config,
        registry,
        spec,
        policy,
        ledger,
        episodes: EpisodeCounters::new(state.next_episodes),
        metrics: Arc::clone(&metrics),
        queue: sender,
        inference_devices,
    }));
    let cadence = if options.serial {
        Cadence::EveryUpdates(run.config.telemetry.serial_updates_per_line)
    } else {
        Cadence::PerSecond(run.config.telemetry.lines_per_second)
    };
    let recorder = Recorder::open(
        run_dir.path(),
        cadence,
        run.config.telemetry.tensorboard,
        Arc::clone(&metrics),
        position,
        run.ledger.submitted_steps(),
    )?;
    let earlier_seconds = recorder.wall_seconds();
    let adopt = |unroll: Unroll| Experience {
        ticket: run.ledger.adopt_buffered(unroll.env_steps()),
        queued_at: unroll.versions[0],
        unroll,
    };
    let mut role = LearnerRole::new(LearnerParts {
        run: Arc::clone(&run),
        learner,
        queue: receiver,
        carried: state.queue.into_iter().map(adopt).collect::<VecDeque<_>>(),
        journal: state.journal,
        evaluator: Evaluator::new(!options.serial),
        recorder,
        store,
    });
    let interrupt = Interrupt::listen();
    let monitor = Monitor::new(Progress::new(run.config.telemetry.progress), Arc::clone(&board), earlier_seconds);
    let (ending, role) = if options.serial {
        let ending = run_serial(&run, &mut role, state.rollouts, &interrupt, monitor);
        (ending, Some(role))
    } else {
        run_threaded(&run, role, state.rollouts, &interrupt, monitor)
    };
    let summary = conclude(&run, &run_dir, ending, role, earlier_seconds, &interrupt)?;
    board.set(RunStatus { outcome: Some(summary.status), ..board.get() });
    if let Some(server) = server {
        server.stop();
    }
    Ok(summary)
}

/// Reads the newest whole checkpoint.
fn load(reader: &CheckpointReader) -> Result<Option<Resumed>, TrainError> {
    let search = reader.latest_valid()?;
    for torn in &search.torn {
        tracing::warn!("{torn}");
    }
    let Some(loaded) = search.found else {
        return match search.torn.first() {
            None => Ok(None),
            Some(_) => Err(TrainError::Checkpoint(format!(
                "none of the {} checkpoints in {} is whole",
                search.torn.len(),
                reader.folder().display()
            ))),
        };
    };
    let tensors = |name| Ok::<_, CodecError>(tensors_from_bytes(loaded.file(name)?, &Device::Cpu)?.tensors);
    Ok(Some(Resumed {
        state: codec::decode(RUN_STATE, loaded.file(files::STATE)?, MAX_STATE_BYTES)?,
        parameters: tensors(files::PARAMETERS)?,
        optimizer: tensors(files::OPTIMIZER)?,
    }))
}

/// A checkpoint continues only under the layout of actors and environments that it was made with.
fn check_shape(state: &RunState, config: &Config, environments: usize) -> Result<(), TrainError> {
    let (actors, unroll) = (config.rollout.actors, config.rollout.unroll_length);
    let saved_unroll = state
        .rollouts
        .iter()
        .flatten()
        .flat_map(|rollout| &rollout.lanes)
        .map(|lane| lane.unroll.steps)
        .chain(state.queue.iter().map(|unroll| unroll.steps))
        .find(|&steps| steps != unroll);
    let refuse = |field: &str, saved: usize, now: usize| {
        Err(TrainError::Checkpoint(format!("the checkpoint was made with {field} = {saved}, not {now}")))
    };
    if state.rollouts.len() != actors {
        return refuse("rollout.actors", state.rollouts.len(), actors);
    }
    if state.next_episodes.len() != environments {
        return refuse("rollout.envs_per_actor", state.next_episodes.len() / actors, environments / actors);
    }
    saved_unroll.map_or(Ok(()), |saved| refuse("rollout.unroll_length", saved, unroll))
}

/// Books what the checkpoint's ledger calls live or buffered but its contents do not bring back (actors that did not
/// answer in time).
fn write_off_lost(ledger: &Ledger, state: &RunState) {
    let minus = |total: Amount, kept: Amount| Amount {
        unrolls: total.unrolls.saturating_sub(kept.unrolls),
        steps: total.steps.saturating_sub(kept.steps),
    };
    let rollouts = || state.rollouts.iter().flatten();
    let lanes = rollouts().flat_map(|rollout| &rollout.lanes).filter_map(|lane| lane.live_steps);
    let live = lanes.fold(Amount::default(), |sum, steps| Amount {
        unrolls: sum.unrolls + 1,
        steps: sum.steps + steps,
    });
    let unrolls = state.queue.iter().chain(rollouts().flat_map(|rollout| &rollout.outbox));
    let buffered = unrolls.fold(Amount::default(), |sum, unroll| Amount {
        unrolls: sum.unrolls + 1,
        steps: sum.steps + unroll.env_steps(),
    });
    ledger.write_off(minus(state.ledger.live, live), minus(state.ledger.buffered, buffered));
}

/// Closes the books, evaluates the final parameters, and writes summary and report.
fn conclude(
    run: &Run,
    run_dir: &RunDir,
    ending: Ending,
    role: Option<LearnerRole>,
    earlier_seconds: f64,
    interrupt: &Interrupt,
) -> Result<Summary, TrainError> {
    run.ledger.close();
    run.metrics.observe_ledger(&run.ledger.snapshot());
    let (mut status, mut cause) = match ending {
        Ending::Completed(cause) => (RunOutcome::Completed, cause),
        Ending::Interrupted(cause) => (RunOutcome::Interrupted, cause),
        Ending::Failed(cause) => (RunOutcome::Failed, cause),
    };
    let mut journal = Journal::default();
    let mut version = Version(run.bus.latest().version.0);
    let mut wall_seconds = earlier_seconds;
    if let Some(mut role) = role {
        role.finish()?;
        if let (RunOutcome::Completed, Some(condition)) = (status, role.complete()) {
            condition.clone_into(&mut cause);
        }
        journal = role.journal().clone();
        version = role.version();
        wall_seconds = role.wall_seconds();
    }
    let mut eval_mean = journal.eval_mean;
    let episodes = run.config.evaluation.final_episodes;
    if status == RunOutcome::Completed && episodes > 0 {
        match evaluate_final(run, episodes, interrupt) {
            Ok(None) => {}
            Ok(Some(result)) => eval_mean = Some(result.mean()),
            Err(error) => {
                (status, cause) = (RunOutcome::Failed, format!("evaluation of the final parameters: {error}"));
            }
        }
    }
    if run.detached() > 0 {
        tracing::warn!("{} thread(s) were left behind inside an environment", run.detached());
    }
    let ledger = run.ledger.snapshot();
    let env_steps = ledger.submitted.steps;
    let summary = Summary {
        status,
        cause,
        updates: version.0,
        env_steps,
        wall_seconds,
        steps_per_second: if wall_seconds > 0.0 { env_steps as f64 / wall_seconds } else { 0.0 },
        return_mean: journal.return_mean(),
        eval_mean,
        lag_mean: journal.lag_mean(),
        lag_max: journal.lag_max,
        ledger,
        restarts: run.restarts(),
    };
    summary.write(run_dir.path())?;
    write_report(run_dir.path())?;
    Ok(summary)
}

fn evaluate_final(
    run: &Run,
    episodes: usize,
    interrupt: &Interrupt,
) -> Result<Option<EvaluationResult>, RoleError> {
    let go_on = || interrupt.signal().is_none();
    let envs = run.evaluation_envs(episodes)?;
    evaluate(&run.policy, &run.bus.latest(), envs, run.config.seed, episodes, &go_on)
}

/// Reads the parameters of the newest whole checkpoint of a run, as a policy to act with.
///
/// # Errors
/// When there is none, or it does not fit the run's configuration.
pub fn load_policy(
    run_dir: &Path,
    config: &Config,
    registry: &Registry,
) -> Result<(Policy, Published), TrainError> {
    let spec = Run::make_env(registry, config)?.spec().clone();
    let resumed = load(&CheckpointReader::new(run_dir.join(RunDir::CHECKPOINTS)))?
        .ok_or_else(|| TrainError::Checkpoint(format!("no checkpoint in {}", run_dir.display())))?;
    let policy = Policy::new(&config.policy, &spec);
    let parameters = policy
        .layout()
        .adopt(resumed.parameters, &Device::Cpu)
        .map_err(|error| TrainError::Checkpoint(error.to_string()))?;
    let state = resumed.state.learner;
    let normalizer = state.observations.as_ref().map(crate::policy::Moments::normalizer);
    Ok((policy, Published { version: state.version, parameters, normalizer }))
}
