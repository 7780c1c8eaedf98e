//! Central inference: one actor for each device answers the rollout actors' requests in batches.
//!
//! A batch closes when every lane that uses the device has asked, when it holds `max_rows` rows, or when the first
//! request has waited `max_wait`; without patience (the serial loop) only the first two count, so that no clock
//! decides. Every batch uses the latest published version. A request carries the sender of its answer: when an
//! inference actor dies with requests in hand their senders die with it, the clients notice and ask its successor
//! again. The recurrent state travels in the request; an inference actor keeps nothing between batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parameter_bus::{ParameterBus, Published};
use super::role::{Role, RoleError, Turn};
use super::stopwatch::Stopwatch;
use crate::policy::{Policy, StepInput, StepOutput};
use crate::trajectory::Version;

/// How central inference forms batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InferenceConfig {
    /// Longest wait of the first request of a batch for company, milliseconds.
    pub max_wait_milliseconds: f64,
    /// Most rows (environments) in one batch.
    pub max_rows: usize,
}

impl Default for InferenceConfig {
    fn default() -> Self {
        Self { max_wait_milliseconds: 2.0, max_rows: 4096 }
    }
}

/// The answer to one lane.
#[derive(Debug)]
pub struct Reply {
    /// The network's output for the lane's rows.
    pub output: StepOutput,
    /// The version that gave it.
    pub version: Version,
}

/// The inputs of one lane's step, copied out of it, and where the answer goes.
#[derive(Debug)]
pub struct Request {
    rows: Rows,
    reply: flume::Sender<Reply>,
}

/// Owned inputs of some rows.
#[derive(Debug, Default)]
struct Rows {
    observations: Vec<f32>,
    previous_actions: Vec<f32>,
    previous_rewards: Vec<f32>,
    starts: Vec<bool>,
    core_state: Vec<f32>,
}

impl Rows {
    fn extend(&mut self, input: StepInput<'_>) {
        self.observations.extend_from_slice(input.observations);
        self.previous_actions.extend_from_slice(input.previous_actions);
        self.previous_rewards.extend_from_slice(input.previous_rewards);
        self.starts.extend_from_slice(input.starts);
        self.core_state.extend_from_slice(input.core_state);
    }

    fn input(&self) -> StepInput<'_> {
        StepInput {
            observations: &self.observations,
            previous_actions: &self.previous_actions,
            previous_rewards: &self.previous_rewards,
            starts: &self.starts,
            core_state: &self.core_state,
        }
    }
}

/// One lane's side: at most one request outstanding.
#[derive(Debug)]
pub struct InferenceClient {
    requests: flume::Sender<Request>,
    outstanding: Option<flume::Receiver<Reply>>,
}

impl InferenceClient {
    /// A client of the inference actors that read the other end of `requests`.
    #[must_use]
    pub fn new(requests: flume::Sender<Request>) -> Self {
        Self { requests, outstanding: None }
    }

    /// Sends a request unless one is outstanding. The channel has room for every lane, so this never waits; when it
    /// is closed the run is ending and no answer will come.
    pub fn ask(&mut self, input: StepInput<'_>) {
        if self.outstanding.is_some() {
            return;
        }
        let (reply, answer) = flume::bounded(1);
        let mut rows = Rows::default();
        rows.extend(input);
        if self.requests.try_send(Request { rows, reply }).is_ok() {
            self.outstanding = Some(answer);
        }
    }

    /// Forgets the outstanding request; its answer, if any, is lost.
    pub fn forget(&mut self) {
        self.outstanding = None;
    }

    /// The answer, if it came within `patience`. A request lost with its inference actor is forgotten, so that the
    /// next `ask` repeats it.
    pub fn answer(&mut self, patience: Duration) -> Option<Reply> {
        let Some(answer) = &self.outstanding else {
            std::thread::sleep(patience);
            return None;
        };
        let received = match answer.try_recv() {
            Err(flume::TryRecvError::Empty) if !patience.is_zero() => answer.recv_timeout(patience),
            Err(flume::TryRecvError::Empty) => return None,
            Err(flume::TryRecvError::Disconnected) => Err(flume::RecvTimeoutError::Disconnected),
            Ok(reply) => Ok(reply),
        };
        match received {
            Err(flume::RecvTimeoutError::Timeout) => None,
            other => {
                self.outstanding = None;
                other.ok()
            }
        }
    }
}

/// The inference actor of one device.
pub struct InferenceServer {
    /// The architecture.
    pub policy: Arc<Policy>,
    /// Where it runs.
    pub device: Device,
    /// Its name, for messages.
    pub device_name: String,
    /// Where parameters come from.
    pub bus: Arc<ParameterBus>,
    /// This server's place among the bus's readers.
    pub reader: usize,
    /// Requests of the lanes.
    pub requests: flume::Receiver<Request>,
    /// Number of lanes that use this server.
    pub lanes: usize,
    /// How batches form.
    pub config: InferenceConfig,
    /// Time spent computing.
    pub busy: Stopwatch,
    /// Requests of the batch in formation.
    pub batch: Vec<Request>,
    /// The version on the device.
    pub loaded: Option<Arc<Published>>,
}

impl InferenceServer {
    /// Forgets all requests in hand.
    pub fn forget(&mut self) {
        self.batch.clear();
        drop(self.requests.drain());
    }

    fn rows(&self) -> usize {
        self.batch.iter().map(|request| request.rows.starts.len()).sum()
    }

    fn is_full(&self) -> bool {
        self.batch.len() >= self.lanes || self.rows() >= self.config.max_rows
    }

    /// Collects requests until the batch closes; true when there is one to answer.
    fn collect(&mut self, patience: Duration) -> bool {
        let mut closes: Option<Instant> = None;
        while !self.is_full() {
            let wait = match closes {
                _ if patience.is_zero() => Duration::ZERO,
                None if self.batch.is_empty() => patience,
                None => Duration::from_secs_f64(self.config.max_wait_milliseconds / 1e3),
                Some(instant) => instant.saturating_duration_since(Instant::now()),
            };
            let request = if wait.is_zero() {
                self.requests.try_recv().ok()
            } else {
                self.requests.recv_timeout(wait).ok()
            };
            let Some(request) = request else { break };
            if closes.is_none() && !patience.is_zero() {
                closes =
                    Some(Instant::now() + Duration::from_secs_f64(self.config.max_wait_milliseconds / 1e3));
            }
            self.batch.push(request);
        }
        self.is_full() || (!patience.is_zero() && !self.batch.is_empty())
    }

    /// The latest version on this server's device.
    fn load(&mut self) -> candle_core::Result<Arc<Published>> {
        let latest = self.bus.read_as(self.reader);
        if let Some(loaded) = self.loaded.as_ref().filter(|loaded| loaded.version == latest.version) {
            return Ok(Arc::clone(loaded));
        }
        let loaded = if self.device.is_cpu() {
            latest
        } else {
            Arc::new(Published {
                version: latest.version,
                parameters: latest.parameters.deep_copy(&self.device)?,
                normalizer: latest.normalizer.clone(),
            })
        };
        self.loaded = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    fn answer(&mut self) -> candle_core::Result<()> {
        let published = self.load()?;
        let mut rows = Rows::default();
        for request in &self.batch {
            rows.extend(request.rows.input());
        }
        let output = self.policy.step(
            &published.parameters,
            published.normalizer.as_ref(),
            rows.input(),
            &self.device,
        )?;
        let (parameter_len, core_len) = (self.policy.distribution().parameter_len(), self.policy.core_len());
        let mut first = 0;
        for request in self.batch.drain(..) {
            let n = request.rows.starts.len();
            let slice = |values: &[f32], width: usize| values[first * width..(first + n) * width].to_vec();
            let output = StepOutput {
                distribution: slice(&output.distribution, parameter_len),
                core_state: slice(&output.core_state, core_len),
            };
            first += n;
            // A lane that died no longer listens.
            drop(request.reply.try_send(Reply { output, version: published.version }));
        }
        Ok(())
    }
}

impl Role for InferenceServer {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        if !self.collect(patience) {
            return Ok(Turn::Waiting);
        }
        let busy = self.busy.clone();
        let device = self.device_name.clone();
        busy.time(|| self.answer()).map_err(|source| RoleError::Inference { device, source })?;
        Ok(Turn::Worked)
    }
}
