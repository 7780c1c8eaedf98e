//! A run without threads and without a learner: the test steps the roles itself and draws from the queue.

use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;
use forebay::actors::control::Heartbeat;
use forebay::actors::inference::InferenceServer;
use forebay::actors::lane::{EpisodeCounters, Experience};
use forebay::actors::parameter_bus::{ParameterBus, Published};
use forebay::actors::queue::{QueueReceiver, queue};
use forebay::actors::role::{Role, Turn};
use forebay::actors::rollout::Rollout;
use forebay::actors::run::{NamedDevice, Run, RunParts};
use forebay::actors::snapshot::RolloutSnapshot;
use forebay::config::{Config, InferenceMode};
use forebay::env::Registry;
use forebay::policy::Policy;
use forebay::telemetry::Metrics;
use forebay::trajectory::{Ledger, LedgerSnapshot, Unroll, Version};

/// What a checkpoint would keep of a rig's actors.
pub struct Saved {
    rollouts: Vec<RolloutSnapshot>,
    ledger: LedgerSnapshot,
    next_episodes: Vec<u32>,
    queue: Vec<Unroll>,
}

/// See the module's documentation.
pub struct Rig {
    pub run: Arc<Run>,
    pub queue: QueueReceiver<Experience>,
    pub rollouts: Vec<Rollout>,
    pub servers: Vec<InferenceServer>,
}

impl Rig {
    /// A fresh run with all its actors.
    pub fn new(config: Config, registry: Registry) -> Self {
        let environments = config.rollout.actors * config.rollout.envs_per_actor;
        let mut rig = Self::empty(config, registry, Ledger::default(), vec![0; environments]);
        rig.rollouts = (0..rig.run.config.rollout.actors).map(|actor| rig.rollout(actor, 0, None)).collect();
        rig
    }

    /// A run that goes on where another was saved, and the unrolls that stood in that one's queue.
    pub fn resume(config: Config, registry: Registry, saved: Saved) -> (Self, Vec<Unroll>) {
        let Saved { rollouts, ledger, next_episodes, queue } = saved;
        let mut rig = Self::empty(config, registry, Ledger::resume(ledger), next_episodes);
        let restore = |(actor, snapshot)| rig.rollout(actor, 0, Some(snapshot));
        rig.rollouts = rollouts.into_iter().enumerate().map(restore).collect();
        for unroll in &queue {
            rig.run.ledger.adopt_buffered(unroll.env_steps()).consume();
        }
        (rig, queue)
    }

    fn empty(config: Config, registry: Registry, ledger: Ledger, next_episodes: Vec<u32>) -> Self {
        let spec = Run::make_env(&registry, &config).unwrap().spec().clone();
        let policy = Arc::new(Policy::new(&config.policy, &spec));
        let devices = match config.rollout.inference {
            InferenceMode::Central => vec![NamedDevice { name: "cpu".into(), device: Device::Cpu }],
            InferenceMode::Local => Vec::new(),
        };
        let (sender, receiver) = queue(config.queue.capacity.unwrap_or(1000));
        let first = published(&policy, config.seed, 0);
        let run = Arc::new(Run::new(RunParts {
            bus: Arc::new(ParameterBus::new(first, config.rollout.actors + devices.len())),
            metrics: Arc::new(Metrics::new(&config.env.name)),
            config,
            registry,
            spec,
            policy,
            ledger,
            episodes: EpisodeCounters::new(next_episodes),
            queue: sender,
            inference_devices: devices,
        }));
        let servers = (0..run.inference_actors()).map(|index| run.inference_server(index)).collect();
        Self { run, queue: receiver, rollouts: Vec::new(), servers }
    }

    /// One life of an actor.
    pub fn rollout(&self, actor: usize, incarnation: u32, snapshot: Option<RolloutSnapshot>) -> Rollout {
        let (snapshots, _) = flume::bounded(1);
        let heartbeat = Arc::<Heartbeat>::default();
        self.run.rollout(actor as u32, incarnation, snapshot, &heartbeat, snapshots).unwrap()
    }

    /// Publishes other parameters as `version`.
    pub fn publish(&self, version: u64) {
        self.run.bus.publish(published(&self.run.policy, self.run.config.seed, version));
    }

    /// Steps every actor and every inference server once.
    pub fn round(&mut self) {
        for rollout in &mut self.rollouts {
            assert_ne!(rollout.step(Duration::ZERO).unwrap(), Turn::Finished);
        }
        for server in &mut self.servers {
            server.step(Duration::ZERO).unwrap();
        }
    }

    /// Takes everything out of the queue, as a learner would that consumes it.
    pub fn draw(&self) -> Vec<Unroll> {
        let consume = |experience: Experience| {
            experience.ticket.consume();
            experience.unroll
        };
        self.queue.drain().into_iter().map(consume).collect()
    }

    /// Steps until that many unrolls were drawn.
    pub fn draw_unrolls(&mut self, unrolls: usize) -> Vec<Unroll> {
        let mut drawn = Vec::new();
        while drawn.len() < unrolls {
            self.round();
            drawn.extend(self.draw());
        }
        drawn
    }

    /// Ends this run as a checkpoint does.
    pub fn save(self) -> Saved {
        let ledger = self.run.ledger.snapshot();
        Saved {
            rollouts: self.rollouts.iter().map(Rollout::snapshot).collect(),
            ledger,
            next_episodes: self.run.episodes.to_vec(),
            queue: self.queue.drain().into_iter().map(|experience| experience.unroll).collect(),
        }
    }
}

/// Parameters that differ from version to version.
pub fn published(policy: &Policy, seed: u64, version: u64) -> Published {
    let parameters = policy.layout().initialize(seed + version, &Device::Cpu).unwrap();
    Published { version: Version(version), parameters, normalizer: None }
}
