//! From a configuration, and perhaps a checkpoint, to a run and its learner.

use std::collections::VecDeque;
use std::sync::Arc;

use candle_core::Device;

use super::checkpoint::RunState;
use super::devices::{self, DeviceError};
use super::evaluator::Evaluator;
use super::journal::Journal;
use super::lane::{EpisodeCounters, Experience};
use super::learner::{LearnerParts, LearnerRole};
use super::parameter_bus::{ParameterBus, Published};
use super::queue::queue;
use super::recorder::Recorder;
use super::resume::{Resumed, check_shape, load, write_off_lost};
use super::run::{NamedDevice, Run, RunParts};
use super::run_dir::RunDir;
use super::snapshot::RolloutSnapshot;
use super::train::TrainOptions;
use super::train_error::TrainError;
use crate::codec::{CheckpointReader, CheckpointStore};
use crate::config::{Config, InferenceMode};
use crate::env::{EnvSpec, Registry};
use crate::learner::{Learner, LearnerError};
use crate::policy::Policy;
use crate::telemetry::{Cadence, Metrics, MetricsPosition};
use crate::trajectory::{Ledger, Unroll};

/// A run that is ready to start.
pub(super) struct Prepared {
    /// What all actors share.
    pub(super) run: Arc<Run>,
    /// The learner's role.
    pub(super) learner: LearnerRole,
    /// Where each rollout actor continues; `None`: from the beginning.
    pub(super) rollouts: Vec<Option<RolloutSnapshot>>,
}

/// Builds everything that lives as long as the run; writes the resolved configuration once the checkpoint fits.
pub(super) fn build(
    config: Config,
    registry: Registry,
    spec: EnvSpec,
    devices: Devices,
    metrics: &Arc<Metrics>,
    run_dir: &RunDir,
    options: &TrainOptions,
) -> Result<Prepared, TrainError> {
    let Devices { learner: device, inference: inference_devices } = devices;
    let serial = options.serial;
    let checkpoint = if options.resume { load(&CheckpointReader::new(run_dir.checkpoints()))? } else { None };
    if options.resume && checkpoint.is_none() {
        eprintln!("no checkpoint in {}; starting anew", run_dir.path().display());
    }
    let policy = Arc::new(Policy::new(&config.policy, &spec));
    let position = checkpoint.as_ref().map(|checkpoint| checkpoint.state.metrics.clone());
    let (learner, state) = match checkpoint {
        None => fresh_learner(&config, &policy, &spec, device)?,
        Some(checkpoint) => resumed_learner(&config, &policy, device, checkpoint)?,
    };
    run_dir.write_config(&config)?;

    let ledger = Ledger::resume(state.ledger.clone());
    write_off_lost(&ledger, &state);
    let (sender, receiver) = queue::<Experience>(queue_capacity(&config, serial));
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
        metrics: Arc::clone(metrics),
        queue: sender,
        inference_devices,
    }));
    let telemetry = &run.config.telemetry;
    let cadence = if serial {
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
    let adopt = |unroll: Unroll| Experience {
        ticket: run.ledger.adopt_buffered(unroll.env_steps()),
        queued_at: unroll.versions[0],
        unroll,
    };
    let learner = LearnerRole::new(LearnerParts {
        run: Arc::clone(&run),
        learner,
        queue: receiver,
        carried: state.queue.into_iter().map(adopt).collect::<VecDeque<_>>(),
        journal: state.journal,
        evaluator: Evaluator::new(!serial),
        recorder,
        store: CheckpointStore::open(run_dir.checkpoints(), run.config.checkpoint.policy())?,
    });
    Ok(Prepared { run, learner, rollouts: state.rollouts })
}

/// The devices that a configuration names.
pub(super) struct Devices {
    learner: Device,
    /// None with local inference.
    inference: Vec<NamedDevice>,
}

impl Devices {
    /// Opens all of them.
    pub(super) fn open(config: &Config) -> Result<Self, DeviceError> {
        let learner = devices::open(&config.devices.learner)?.device;
        let inference = match config.rollout.inference {
            InferenceMode::Central => {
                config.devices.inference.iter().map(|name| devices::open(name)).collect::<Result<_, _>>()?
            }
            InferenceMode::Local => Vec::new(),
        };
        Ok(Self { learner, inference })
    }
}

fn queue_capacity(config: &Config, serial: bool) -> usize {
    let capacity = config.queue.capacity.unwrap_or(config.learner.batch_unrolls);
    // Nobody takes from the queue of a serial run while the actors have their turns: there must be room for all of
    // them, or only the first ones would ever get through.
    if serial { capacity.max(config.rollout.actors) } else { capacity }
}

/// A learner at version 0, and the state of a run that has seen nothing.
fn fresh_learner(
    config: &Config,
    policy: &Arc<Policy>,
    spec: &EnvSpec,
    device: Device,
) -> Result<(Learner, RunState), TrainError> {
    let observation_len = config.policy.normalize_observations.then(|| spec.observation_len());
    let state = RunState {
        learner: Learner::initial_state(&config.learner, observation_len),
        journal: Journal::new(config.evaluation.every_env_steps.unwrap_or_default()),
        metrics: MetricsPosition::default(),
        ledger: Ledger::default().snapshot(),
        next_episodes: vec![0; config.rollout.actors * config.rollout.envs_per_actor],
        rollouts: vec![None; config.rollout.actors],
        queue: Vec::new(),
    };
    let parameters = policy.layout().initialize(config.seed, &device).map_err(LearnerError::from)?;
    let learner = Learner::new(
        config.learner.clone(),
        config.seed,
        Arc::clone(policy),
        device,
        &parameters,
        state.learner.clone(),
    )?;
    Ok((learner, state))
}

/// The learner and the state that a checkpoint holds.
fn resumed_learner(
    config: &Config,
    policy: &Arc<Policy>,
    device: Device,
    checkpoint: Resumed,
) -> Result<(Learner, RunState), TrainError> {
    let Resumed { state, parameters, optimizer } = checkpoint;
    let misfit = |error: &dyn std::fmt::Display| TrainError::Checkpoint(error.to_string());
    let parameters = policy.layout().adopt(parameters, &device).map_err(|error| misfit(&error))?;
    check_shape(&state, config, config.rollout.actors * config.rollout.envs_per_actor)?;
    let mut learner = Learner::new(
        config.learner.clone(),
        config.seed,
        Arc::clone(policy),
        device,
        &parameters,
        state.learner.clone(),
    )?;
    learner.optimizer().load_state(&optimizer).map_err(|error| misfit(&error))?;
    Ok((learner, state))
}
