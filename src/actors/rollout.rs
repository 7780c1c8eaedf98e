//! The rollout actor: steps its lanes of environments and offers complete unrolls to the queue.
//!
//! With local inference it holds the parameters itself and takes newer ones at unroll borders. With central
//! inference it asks an inference actor, which may answer with a newer version at every step; with two lanes one
//! steps while the other waits for its answer. A complete unroll that finds no room stays in the outbox, and its
//! lane waits: memory is bounded by the queue's capacity and the actors' lanes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::Device;

use super::inference::{InferenceClient, Reply};
use super::lane::{Experience, Lane};
use super::parameter_bus::{ParameterBus, Published};
use super::queue::{QueueSender, Refused};
use super::role::{Role, RoleError, Turn};
use super::snapshot::RolloutSnapshot;
use super::stopwatch::Stopwatch;
use crate::policy::Policy;
use crate::telemetry::ActorMetrics;

/// Where actions come from.
pub enum Inference {
    /// A forward pass by the actor itself, on one CPU thread.
    Local {
        /// The architecture.
        policy: Arc<Policy>,
        /// The parameters in use.
        published: Arc<Published>,
    },
    /// Requests to an inference actor, one outstanding for each lane.
    Central(Vec<InferenceClient>),
}

/// See the module's documentation.
pub struct Rollout {
    actor: u32,
    incarnation: u32,
    lanes: Vec<Lane>,
    turn: usize,
    bus: Arc<ParameterBus>,
    inference: Inference,
    outbox: VecDeque<Experience>,
    queue: QueueSender<Experience>,
    metrics: ActorMetrics,
    busy: Stopwatch,
    /// Where a snapshot goes when a pause begins.
    snapshots: flume::Sender<(usize, RolloutSnapshot)>,
}

/// What a rollout actor is made of.
pub struct RolloutParts {
    /// Which actor.
    pub actor: u32,
    /// Which life.
    pub incarnation: u32,
    /// Its lanes.
    pub lanes: Vec<Lane>,
    /// Lane to step first.
    pub turn: usize,
    /// Unrolls still to be queued.
    pub outbox: VecDeque<Experience>,
    /// Where parameters come from.
    pub bus: Arc<ParameterBus>,
    /// Where actions come from.
    pub inference: Inference,
    /// Where unrolls go.
    pub queue: QueueSender<Experience>,
    /// Its instruments.
    pub metrics: ActorMetrics,
    /// Time spent working rather than waiting.
    pub busy: Stopwatch,
    /// Where a snapshot goes when a pause begins.
    pub snapshots: flume::Sender<(usize, RolloutSnapshot)>,
}

impl Rollout {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: RolloutParts) -> Self {
        let RolloutParts {
            actor,
            incarnation,
            lanes,
            turn,
            outbox,
            bus,
            inference,
            queue,
            metrics,
            busy,
            snapshots,
        } = parts;
        Self { actor, incarnation, lanes, turn, bus, inference, outbox, queue, metrics, busy, snapshots }
    }

    /// Whether every lane stands at the border of an unroll and nothing waits to be queued.
    #[must_use]
    pub fn at_border(&self) -> bool {
        self.outbox.is_empty() && self.lanes.iter().all(Lane::at_border)
    }

    /// Whether the actor runs the policy itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.inference, Inference::Local { .. })
    }

    /// Forgets answers and requests in hand, which then are asked for again under the latest version.
    pub fn forget_answers(&mut self) {
        if let Inference::Central(clients) = &mut self.inference {
            clients.iter_mut().for_each(InferenceClient::forget);
        }
    }

    /// The state between two steps.
    #[must_use]
    pub fn snapshot(&self) -> RolloutSnapshot {
        RolloutSnapshot {
            actor: self.actor,
            incarnation: self.incarnation,
            turn: self.turn,
            lanes: self.lanes.iter().map(Lane::snapshot).collect(),
            outbox: self.outbox.iter().map(|experience| experience.unroll.clone()).collect(),
        }
    }

    /// Moves the outbox into the queue as far as there is room.
    fn send(&mut self, patience: Duration) -> Turn {
        while let Some(mut experience) = self.outbox.pop_front() {
            experience.queued_at = self.bus.latest().version;
            let since = Instant::now();
            let offered = self.queue.offer(experience, patience);
            self.metrics.blocked_seconds.inc_by(since.elapsed().as_secs_f64());
            match offered {
                Ok(()) => {}
                Err(Refused::Full(experience)) => {
                    self.outbox.push_front(experience);
                    return Turn::Waiting;
                }
                // The learner is gone; dropping the ticket books the unroll as lost in the shutdown.
                Err(Refused::Closed(_)) => return Turn::Finished,
            }
        }
        Turn::Worked
    }

    /// Advances the lane whose turn it is.
    fn advance(&mut self, reply: Reply) -> Result<(), RoleError> {
        self.bus.note(self.actor as usize, reply.version);
        let lane = &mut self.lanes[self.turn];
        let columns = lane.input().starts.len() as u64;
        let complete = self.busy.time(|| lane.advance(reply.output, reply.version))?;
        self.metrics.env_steps.inc_by(columns);
        self.outbox.extend(complete);
        self.turn = (self.turn + 1) % self.lanes.len();
        Ok(())
    }

    fn ask_locally(&mut self) -> Result<Reply, RoleError> {
        let Inference::Local { policy, published } = &mut self.inference else {
            unreachable!("asked only with local inference");
        };
        let lane = &self.lanes[self.turn];
        if lane.at_border() {
            *published = self.bus.read_as(self.actor as usize);
        }
        let output = self.busy.time(|| {
            policy.step(&published.parameters, published.normalizer.as_ref(), lane.input(), &Device::Cpu)
        });
        let output = output.map_err(|source| RoleError::Inference { device: "cpu".into(), source })?;
        Ok(Reply { output, version: published.version })
    }

    /// The answer for the lane whose turn it is, if it came within `patience`; every idle lane asks first.
    fn ask_centrally(&mut self, patience: Duration) -> Option<Reply> {
        let Inference::Central(clients) = &mut self.inference else {
            unreachable!("asked only with central inference");
        };
        for (client, lane) in clients.iter_mut().zip(&self.lanes) {
            client.ask(lane.input());
        }
        clients[self.turn].answer(patience)
    }
}

impl Role for Rollout {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        if !self.outbox.is_empty() {
            let sent = self.send(patience);
            if sent != Turn::Worked {
                return Ok(sent);
            }
        }
        let reply = if self.is_local() { Some(self.ask_locally()?) } else { self.ask_centrally(patience) };
        let Some(reply) = reply else { return Ok(Turn::Waiting) };
        self.advance(reply)?;
        if self.outbox.is_empty() { Ok(Turn::Worked) } else { Ok(self.send(Duration::ZERO)) }
    }

    fn pause(&mut self) {
        // The learner waits for one snapshot of each actor; when it no longer listens the run is ending anyway.
        drop(self.snapshots.try_send((self.actor as usize, self.snapshot())));
    }

    fn fail(&mut self) {
        self.lanes.iter_mut().for_each(Lane::abandon);
    }
}
