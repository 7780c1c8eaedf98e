//! What all actors of a run share, and how each of them is built.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use candle_core::Device;

use super::control::Heartbeat;
use super::faults::ActorFaults;
use super::incidents::Incidents;
use super::inference::{InferenceClient, InferenceServer, Request};
use super::lane::{EpisodeCounters, Experience, Lane, LaneContext};
use super::parameter_bus::ParameterBus;
use super::queue::{QueueSender, Refused};
use super::role::RoleError;
use super::rollout::{Inference, Rollout, RolloutParts};
use super::snapshot::RolloutSnapshot;
use super::stopwatch::Stopwatch;
use crate::config::{Config, InferenceMode};
use crate::env::{Checked, EnvError, EnvSpec, Registry, WrapperConfig};
use crate::policy::Policy;
use crate::telemetry::Metrics;
use crate::trajectory::{Ledger, UnrollId, Version};

/// A device by its name in the configuration.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// `cpu` or `cuda:N`.
    pub name: String,
    /// The device.
    pub device: Device,
}

/// One inference device: the requests to it and who sends them.
pub struct InferencePort {
    device: NamedDevice,
    sender: flume::Sender<Request>,
    receiver: flume::Receiver<Request>,
    lanes: usize,
}

/// See the module's documentation.
pub struct Run {
    /// The resolved configuration.
    pub config: Config,
    /// Where environments come from.
    pub registry: Registry,
    /// What the environment shows and accepts.
    pub spec: EnvSpec,
    /// The architecture.
    pub policy: Arc<Policy>,
    /// The account.
    pub ledger: Ledger,
    /// Published parameters. Readers: the rollout actors, then the inference actors.
    pub bus: Arc<ParameterBus>,
    /// Next episode of every environment.
    pub episodes: Arc<EpisodeCounters>,
    /// Instruments.
    pub metrics: Arc<Metrics>,
    /// Time the learner spent on updates.
    pub learner_busy: Stopwatch,
    /// Time the rollout actors spent on inference and environments, all together.
    pub rollout_busy: Stopwatch,
    /// Time the inference actors spent computing, all together.
    pub inference_busy: Stopwatch,
    queue: QueueSender<Experience>,
    ports: Vec<InferencePort>,
    faults: Vec<Arc<ActorFaults>>,
    incidents: Incidents,
    figures: Mutex<Figures>,
}

/// The learner's latest figures, for whoever shows the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Completed updates.
    pub version: Version,
    /// Mean return of the last 100 episodes.
    pub return_mean: Option<f64>,
    /// Mean return of the last evaluation.
    pub eval_mean: Option<f64>,
    /// Mean lag of the steps consumed last.
    pub lag_mean: Option<f64>,
}

/// What a run is made of.
pub struct RunParts {
    /// The resolved configuration.
    pub config: Config,
    /// Where environments come from.
    pub registry: Registry,
    /// What the environment shows and accepts.
    pub spec: EnvSpec,
    /// The architecture.
    pub policy: Arc<Policy>,
    /// The account.
    pub ledger: Ledger,
    /// Published parameters.
    pub bus: Arc<ParameterBus>,
    /// Next episode of every environment.
    pub episodes: EpisodeCounters,
    /// Instruments.
    pub metrics: Arc<Metrics>,
    /// The producers' end of the queue.
    pub queue: QueueSender<Experience>,
    /// Devices of central inference.
    pub inference_devices: Vec<NamedDevice>,
}

impl Run {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: RunParts) -> Self {
        let RunParts {
            config,
            registry,
            spec,
            policy,
            ledger,
            bus,
            episodes,
            metrics,
            queue,
            inference_devices,
        } = parts;
        let (actors, devices) = (config.rollout.actors, inference_devices.len().max(1));
        let ports = inference_devices.into_iter().enumerate().map(|(i, device)| {
            let users = (i..actors).step_by(devices).count();
            let lanes = users * lanes_per_actor(&config);
            let (sender, receiver) = flume::bounded(lanes.max(1));
            InferencePort { device, sender, receiver, lanes }
        });
        let ports = ports.collect();
        let faults =
            (0..actors).map(|actor| Arc::new(ActorFaults::of_actor(&config.faults, actor as u32))).collect();
        metrics.queue.capacity.set(queue.capacity() as u64);
        Self {
            config,
            registry,
            spec,
            policy,
            ledger,
            bus,
            episodes: Arc::new(episodes),
            metrics,
            learner_busy: Stopwatch::default(),
            rollout_busy: Stopwatch::default(),
            inference_busy: Stopwatch::default(),
            queue,
            ports,
            faults,
            incidents: Incidents::default(),
            figures: Mutex::default(),
        }
    }

    /// Number of inference actors.
    #[must_use]
    pub fn inference_actors(&self) -> usize {
        if self.config.rollout.inference == InferenceMode::Central { self.ports.len() } else { 0 }
    }

    /// A new environment as the configuration describes it.
    ///
    /// # Errors
    /// When it is unknown, its options are wrong, or it contradicts itself.
    pub fn make_env(registry: &Registry, config: &Config) -> Result<Checked, EnvError> {
        let wrappers =
            WrapperConfig { time_limit: config.env.time_limit, frame_stack: config.env.frame_stack };
        Checked::new(registry.make(&config.env.name, &config.env.options, &wrappers)?)
    }

    /// Environments for an evaluation of `episodes` episodes.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn evaluation_envs(&self, episodes: usize) -> Result<Vec<Checked>, EnvError> {
        let count = self.config.evaluation.envs.min(episodes);
        (0..count).map(|_| Self::make_env(&self.registry, &self.config)).collect()
    }

    /// Longest time a call into an environment may take.
    #[must_use]
    pub fn env_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.config.env.timeout_seconds)
    }

    /// Builds one life of a rollout actor; with a snapshot it continues where that stood.
    ///
    /// # Errors
    /// When an environment cannot be made or started.
    pub fn rollout(
        &self,
        actor: u32,
        incarnation: u32,
        snapshot: Option<RolloutSnapshot>,
        heartbeat: &Arc<Heartbeat>,
        snapshots: flume::Sender<(usize, RolloutSnapshot)>,
    ) -> Result<Rollout, RoleError> {
        let faults = &self.faults[actor as usize];
        let context = LaneContext {
            seed: self.config.seed,
            policy: Arc::clone(&self.policy),
            unroll_length: self.config.rollout.unroll_length,
            reward_clip: self.config.env.reward_clip,
            ledger: self.ledger.clone(),
            episodes: Arc::clone(&self.episodes),
            heartbeat: Arc::clone(heartbeat),
            faults: Arc::clone(faults),
        };
        let (turn, outbox, mut saved) = match snapshot {
            Some(snapshot) => (snapshot.turn, snapshot.outbox, VecDeque::from(snapshot.lanes)),
            None => (0, Vec::new(), VecDeque::new()),
        };
        let per_actor = self.config.rollout.envs_per_actor;
        let lanes = lanes_per_actor(&self.config);
        let mut built = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let first = actor as usize * per_actor + lane * per_actor / lanes;
            let last = actor as usize * per_actor + (lane + 1) * per_actor / lanes;
            let envs = (first..last)
                .map(|id| {
                    heartbeat.enter(id as u32);
                    let env = self.registry.make(
                        &self.config.env.name,
                        &self.config.env.options,
                        &WrapperConfig {
                            time_limit: self.config.env.time_limit,
                            frame_stack: self.config.env.frame_stack,
                        },
                    )?;
                    Ok((id as u32, Checked::new(faults.wrap(env))?))
                })
                .collect::<Result<Vec<_>, EnvError>>()?;
            let id = UnrollId { actor, lane: lane as u32, incarnation, sequence: 0 };
            built.push(match saved.pop_front() {
                Some(snapshot) => Lane::restore(incarnation, envs, context.clone(), snapshot)?,
                None => Lane::new(id, envs, context.clone())?,
            });
        }
        let adopt = |unroll: crate::trajectory::Unroll| Experience {
            ticket: self.ledger.adopt_buffered(unroll.env_steps()),
            queued_at: unroll.versions[0],
            unroll,
        };
        let inference = match self.config.rollout.inference {
            InferenceMode::Local => {
                Inference::Local { policy: Arc::clone(&self.policy), published: self.bus.latest() }
            }
            InferenceMode::Central => {
                let port = &self.ports[actor as usize % self.ports.len()];
                Inference::Central((0..lanes).map(|_| InferenceClient::new(port.sender.clone())).collect())
            }
        };
        Ok(Rollout::new(RolloutParts {
            actor,
            incarnation,
            lanes: built,
            turn,
            outbox: outbox.into_iter().map(adopt).collect(),
            bus: Arc::clone(&self.bus),
            inference,
            queue: self.queue.clone(),
            metrics: self.metrics.actor(actor),
            busy: self.rollout_busy.clone(),
            snapshots,
        }))
    }

    /// Builds one life of the inference actor of a device.
    #[must_use]
    pub fn inference_server(&self, index: usize) -> InferenceServer {
        let port = &self.ports[index];
        InferenceServer {
            policy: Arc::clone(&self.policy),
            device: port.device.device.clone(),
            device_name: port.device.name.clone(),
            bus: Arc::clone(&self.bus),
            reader: self.config.rollout.actors + index,
            requests: port.receiver.clone(),
            lanes: port.lanes,
            config: self.config.inference.clone(),
            busy: self.inference_busy.clone(),
            batch: Vec::new(),
            loaded: None,
        }
    }

    /// Puts experience that a checkpoint looked at back into the queue; it comes back when there is no room any more.
    #[must_use]
    pub fn put_back(&self, experience: Experience) -> Option<Experience> {
        match self.queue.offer(experience, Duration::ZERO) {
            Ok(()) => None,
            Err(Refused::Full(experience) | Refused::Closed(experience)) => Some(experience),
        }
    }

    /// Unrolls standing in the queue.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.queue.depth()
    }

    /// Unrolls that the queue can hold.
    #[must_use]
    pub fn queue_capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Time producers have been blocked, all together, since the start.
    #[must_use]
    pub fn blocked(&self) -> Duration {
        self.queue.blocked()
    }

    /// Counts a restart of an actor of this kind.
    pub fn note_restart(&self, kind: &str) {
        self.metrics.roles.record_restart(kind);
        self.incidents.restarted(kind);
    }

    /// Restarts by kind.
    #[must_use]
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.incidents.restarts()
    }

    /// The learner's latest figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces them.
    pub fn set_figures(&self, figures: Figures) {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Counts a thread that was left behind inside an environment.
    pub fn note_detached(&self) {
        self.incidents.detached();
    }

    /// Threads left behind inside an environment.
    #[must_use]
    pub fn detached(&self) -> u64 {
        self.incidents.left_behind()
    }
}

/// Two lanes when central inference is double-buffered, else one.
pub(super) fn lanes_per_actor(config: &Config) -> usize {
    let central = config.rollout.inference == InferenceMode::Central;
    if central && config.rollout.double_buffer && config.rollout.envs_per_actor > 1 { 2 } else { 1 }
}
