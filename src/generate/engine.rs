//! The engine: requests in, steps, finished trajectories out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use candle_core::Tensor;

use super::drawing::{Drawing, Drawn};
use super::forward::{Holder, Job, PagedRows};
use super::interrupt::Paused;
use super::pages::{KvShape, PagePool};
use super::prompts::Prompts;
use super::request::{self, Finished, Request};
use super::saved::SavedKv;
use super::sequence::Sequence;
use super::{EngineConfig, GenerateError, Usage, Weights};
use crate::ops::KEY_TILE;
use crate::policy::{Decoder, DecoderInput};
use crate::trajectory::{Finish, TrajectoryId, Version};

/// Generates trajectories, many at a time; the module's documentation says what it guarantees.
///
/// It computes on the thread that steps it; inside [`crate::ops::with_threads`] also on the threads of that pool.
#[derive(Debug)]
pub struct Engine {
    pub(super) decoder: Arc<Decoder>,
    pub(super) weights: Weights,
    pub(super) config: EngineConfig,
    drawing: Drawing,
    pub(super) pool: PagePool,
    pub(super) prompts: Prompts,
    /// In the order in which they were admitted.
    pub(super) running: Vec<Sequence>,
    /// Stopped with all the actions that they may have for now; they keep their pages until they are taken.
    pub(super) paused: Vec<Sequence>,
    /// The next to be admitted first.
    pub(super) waiting: VecDeque<Sequence>,
    pub(super) held: Vec<Sequence>,
    /// Of all of the above.
    pub(super) ids: BTreeSet<TrajectoryId>,
    /// Its totals only.
    pub(super) totals: Usage,
}

impl Engine {
    /// An engine without work. `seed` is the run's: with a trajectory's id and a position it tells a draw.
    ///
    /// # Errors
    /// When a setting is out of its range, the weights are not on the decoder's device, or the KV cache does not fit
    /// there.
    pub fn new(
        decoder: Arc<Decoder>,
        weights: Weights,
        config: EngineConfig,
        seed: u64,
    ) -> Result<Self, GenerateError> {
        let mut engine = Self::without_memory(decoder, weights, config, seed)?;
        engine.take_memory()?;
        Ok(engine)
    }

    /// The same, but the first step takes the memory of the KV cache.
    ///
    /// # Errors
    /// When a setting is out of its range, the weights are not on the decoder's device, or it has no kernels.
    pub fn without_memory(
        decoder: Arc<Decoder>,
        weights: Weights,
        config: EngineConfig,
        seed: u64,
    ) -> Result<Self, GenerateError> {
        config.validate()?;
        let (device, dtype) = (decoder.device(), decoder.dtype());
        let fits = |tensor: &Tensor| tensor.device().same_device(device) && tensor.dtype() == dtype;
        if !weights.parameters.iter().all(|(_, tensor)| fits(tensor)) {
            let why = format!("must be {dtype:?} on the decoder's device: copy them there");
            return Err(GenerateError::Config { field: "weights", why });
        }
        let pool = PagePool::new(config.pages(), KvShape::of(decoder.config()), device, dtype);
        let pool = pool.map_err(|source| GenerateError::Cache { tokens: config.positions(), source })?;
        let drawing = Drawing { seed, noise: config.log_prob_noise };
        Ok(Self {
            decoder,
            weights,
            config,
            drawing,
            pool,
            prompts: Prompts::default(),
            running: Vec::new(),
            paused: Vec::new(),
            waiting: VecDeque::new(),
            held: Vec::new(),
            ids: BTreeSet::new(),
            totals: Usage::default(),
        })
    }

    /// Version of the weights that sample now.
    #[must_use]
    pub fn version(&self) -> Version {
        self.weights.version
    }

    /// Whether nothing runs or waits, so that a step would do nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Trajectories that run or wait, and how many tokens each has after its prompt.
    pub fn lengths(&self) -> impl Iterator<Item = (TrajectoryId, usize)> + '_ {
        let all = self.running.iter().chain(&self.waiting);
        all.map(|sequence| (sequence.id(), sequence.request.trajectory.tokens.len()))
    }

    /// Tokens after the prompt of a trajectory that runs or waits.
    #[must_use]
    pub fn tokens(&self, id: TrajectoryId) -> Option<&[u32]> {
        let mut all = self.running.iter().chain(&self.waiting);
        all.find(|sequence| sequence.id() == id).map(|sequence| sequence.request.trajectory.tokens.as_slice())
    }

    /// What it is doing, in numbers.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let all = self.running.iter().chain(&self.waiting).chain(&self.held);
        Usage {
            pages: self.pool.capacity(),
            used_pages: self.pool.capacity() - self.pool.free(),
            bytes: self.pool.bytes(),
            capacity_tokens: self.pool.capacity() * KEY_TILE,
            cached_tokens: all.map(|sequence| sequence.computed).sum(),
            running: self.running.len(),
            waiting: self.waiting.len(),
            held: self.held.len(),
            ..self.totals
        }
    }

    /// Takes a request; it waits for its turn. A trajectory that holds tokens already is gone on with.
    ///
    /// # Errors
    /// When it could never be served; nothing is kept of it then.
    pub fn submit(&mut self, request: Request) -> Result<(), GenerateError> {
        self.enqueue(request, None)
    }

    /// Takes a trajectory that was interrupted, with its keys and values where it has them. Keys and values of other
    /// weights are kept, as [`super::ResumeMode::KeepKv`] keeps them; leave them away to have them computed anew.
    ///
    /// # Errors
    /// As for [`Self::submit`], and when the keys and values do not fit this model or trajectory.
    pub fn resume(&mut self, paused: Paused) -> Result<(), GenerateError> {
        self.enqueue(paused.request, paused.kv)
    }

    fn enqueue(&mut self, request: Request, saved: Option<SavedKv>) -> Result<(), GenerateError> {
        request::check(&request, &self.decoder, &self.config)?;
        let (id, length) = (request.trajectory.id, request.trajectory.len());
        if let Some(saved) = &saved {
            saved.check(&self.pool, length).map_err(|why| GenerateError::request(id, why))?;
        }
        if !self.ids.insert(id) {
            return Err(GenerateError::request(
                id,
                "it is in the engine already; ids are of one trajectory each",
            ));
        }
        let mut sequence = Sequence::new(request, saved);
        let shares = self.shares_prompt(&sequence);
        sequence.expect_prompt(&mut self.prompts, shares);
        self.waiting.push_back(sequence);
        Ok(())
    }

    /// Appends the task's answer to a trajectory that is held, which goes on before others that wait. Where the answer
    /// would fill the model's context, the trajectory ends without it and is given back.
    ///
    /// # Errors
    /// When no such trajectory is held, the answer is empty or has an unknown token, or the trajectory would no longer
    /// fit into the cache; it stays held then.
    pub fn observe(&mut self, id: TrajectoryId, tokens: &[u32]) -> Result<Option<Finished>, GenerateError> {
        let place = self.held_place(id)?;
        let mut request = self.held[place].request.clone();
        if tokens.is_empty() {
            return Err(GenerateError::request(id, "an observation needs at least one token"));
        }
        let length = request.trajectory.len() + tokens.len();
        if length >= self.decoder.config().context {
            let sequence = self.held.remove(place);
            let mut trajectory = self.forget(sequence).trajectory;
            trajectory.finish = Some(Finish::Context);
            return Ok(Some(Finished { trajectory, held: false }));
        }
        request.trajectory.push_observation(tokens, self.weights.version);
        if !request.trajectory.candidates.is_empty() {
            request.trajectory.candidates.resize(request.trajectory.tokens.len(), Vec::new());
        }
        request.trajectory.finish = None;
        request::check(&request, &self.decoder, &self.config)?;
        let mut sequence = self.held.remove(place);
        sequence.request = request;
        let shares = self.shares_prompt(&sequence);
        sequence.expect_prompt(&mut self.prompts, shares);
        self.waiting.push_front(sequence);
        Ok(None)
    }

    /// Lets go of a trajectory that is held.
    ///
    /// # Errors
    /// When no such trajectory is held.
    pub fn release(&mut self, id: TrajectoryId) -> Result<(), GenerateError> {
        let sequence = self.held.remove(self.held_place(id)?);
        self.forget(sequence);
        Ok(())
    }

    fn held_place(&self, id: TrajectoryId) -> Result<usize, GenerateError> {
        let place = self.held.iter().position(|sequence| sequence.id() == id);
        place.ok_or(GenerateError::Unknown { id, state: "held" })
    }

    /// One batched forward pass; gives the trajectories that ended with it. Does nothing when idle.
    ///
    /// # Errors
    /// When the model's logits are no numbers, an operator fails, or memory that was given back is not there. No
    /// trajectory has got a token then, and none is lost: [`Self::interrupt`] gives them back.
    pub fn step(&mut self) -> Result<Vec<Finished>, GenerateError> {
        if !self.is_idle() {
            self.take_memory()?;
        }
        let mut finished = self.finish_exhausted();
        let jobs = self.plan();
        self.pool.flush()?;
        if jobs.is_empty() {
            return Ok(finished);
        }
        self.totals.steps += 1;
        let (forced, free): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.forced);
        for jobs in [forced, free] {
            if !jobs.is_empty() {
                self.run(&jobs)?;
            }
        }
        finished.append(&mut self.take_finished());
        Ok(finished)
    }

    /// Takes out those who wait although nothing is left to generate for them.
    fn finish_exhausted(&mut self) -> Vec<Finished> {
        let context = self.decoder.config().context;
        let mut finished = Vec::new();
        for mut sequence in std::mem::take(&mut self.waiting) {
            let finish = sequence.exhausted(context);
            if finish.is_some() {
                sequence.request.trajectory.finish = finish;
                finished.push(Finished { trajectory: self.forget(sequence).trajectory, held: false });
            } else {
                self.waiting.push_back(sequence);
            }
        }
        finished
    }

    /// Computes the rows of some jobs, and draws a token for each sequence whose last row is among them.
    fn run(&mut self, jobs: &[Job]) -> Result<(), GenerateError> {
        let (mut tokens, mut positions, mut experts) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            let range = job.first..job.first + job.count;
            positions.extend(range.clone().map(|position| position as u32));
            match &job.holder {
                Holder::Prompt(prompt) => tokens.extend_from_slice(&prompt[range]),
                Holder::Sequence(index) => {
                    let trajectory = &self.running[*index].request.trajectory;
                    tokens.extend(range.clone().map(|position| trajectory.token(position)));
                    if job.forced {
                        let width = self.decoder.experts_per_row();
                        experts
                            .extend_from_slice(&trajectory.experts[range.start * width..range.end * width]);
                    }
                }
            }
        }
        let parameters = self.weights.parameters.clone();
        let mut attend = PagedRows::new(&mut self.pool, jobs)?;
        let experts = (!experts.is_empty()).then_some(experts.as_slice());
        let input = DecoderInput { tokens: &tokens, positions: &positions, experts };
        let hidden = self.decoder.hidden(&parameters, input, &mut attend)?;

        let (mut sampling, mut rows, mut row) = (Vec::new(), Vec::new(), 0);
        for job in jobs {
            row += job.count;
            if let Holder::Sequence(index) = job.holder
                && job.first + job.count == self.running[index].len()
            {
                sampling.push(index);
                rows.push(row as u32 - 1);
            }
        }
        let drawn = self.draw(&hidden.states, &rows, &sampling)?;
        self.advance(jobs, &hidden.experts, sampling.len());
        for (index, drawn) in sampling.into_iter().zip(drawn) {
            self.push(index, drawn);
        }
        Ok(())
    }

    /// Draws a token from each of some rows, for the sequences of these indices.
    fn draw(&self, states: &Tensor, rows: &[u32], sampling: &[usize]) -> Result<Vec<Drawn>, GenerateError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let states = if rows.len() == states.dim(0)? {
            states.clone()
        } else {
            states.index_select(&Tensor::from_slice(rows, rows.len(), states.device())?, 0)?
        };
        let logits = self.decoder.logits(&self.weights.parameters, &states)?;
        let requests: Vec<&Request> = sampling.iter().map(|&index| &self.running[index].request).collect();
        let drawn = self.drawing.all(&logits, &requests, self.pool.is_on_device())?;
        let named = drawn.into_iter().zip(requests).map(|(drawn, request)| {
            drawn.map_err(|source| GenerateError::Draw {
                id: request.trajectory.id,
                position: request.trajectory.len(),
                version: self.weights.version,
                source,
            })
        });
        named.collect()
    }

    /// Notes what jobs have computed.
    fn advance(&mut self, jobs: &[Job], experts: &[u16], sampled: usize) {
        let width = self.decoder.experts_per_row();
        let recorded = if self.config.record_experts { experts } else { &[] };
        let mut row = 0;
        for job in jobs {
            let own = recorded.get(row * width..(row + job.count) * width).unwrap_or_default();
            match &job.holder {
                Holder::Sequence(index) => {
                    let sequence = &mut self.running[*index];
                    sequence.computed += job.count;
                    sequence.record_experts(job.first, own, width);
                }
                Holder::Prompt(prompt) => {
                    if let Some(prompt) = self.prompts.get_mut(prompt) {
                        prompt.computed += job.count;
                        prompt.experts.extend_from_slice(own);
                    }
                }
            }
            row += job.count;
        }
        self.totals.sampled_tokens += sampled as u64;
        self.totals.prefilled_tokens += (row - sampled) as u64;
    }

    /// Appends a token that was drawn.
    fn push(&mut self, index: usize, drawn: Drawn) {
        let sequence = &mut self.running[index];
        let trajectory = &mut sequence.request.trajectory;
        if !(drawn.candidates.is_empty() && trajectory.candidates.is_empty()) {
            trajectory.candidates.resize(trajectory.tokens.len(), Vec::new());
            trajectory.candidates.push(drawn.candidates);
        }
        trajectory.push_action(drawn.token, drawn.log_prob, self.weights.version);
        sequence.sampled = true;
        sequence.actions += 1;
        let stopped = sequence.request.stops.end(&sequence.request.trajectory).then_some(Finish::Stop);
        let cut_off = || sequence.exhausted(self.decoder.config().context);
        let repeats = || sequence.repeats().then_some(Finish::Repetition);
        let finish = stopped.or_else(cut_off).or_else(repeats);
        sequence.request.trajectory.finish = finish;
    }

    /// Takes out those that have ended.
    fn take_finished(&mut self) -> Vec<Finished> {
        let mut finished = Vec::new();
        for sequence in std::mem::take(&mut self.running) {
            match sequence.request.trajectory.finish {
                None if sequence.has_paused() => self.paused.push(sequence),
                None => self.running.push(sequence),
                Some(Finish::Stop) if sequence.request.hold => {
                    finished.push(Finished { trajectory: sequence.request.trajectory.clone(), held: true });
                    self.held.push(sequence);
                }
                Some(_) => {
                    finished.push(Finished { trajectory: self.forget(sequence).trajectory, held: false });
                }
            }
        }
        finished
    }
}
