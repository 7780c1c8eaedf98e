//! The generator's role: takes groups from the plane, samples them with the engine, has them judged, and brings the
//! ended trajectories back.
//!
//! It never waits for a grader: answers go to the grading pool, and what comes back is looked at between two steps of
//! the engine. Weights are taken up between two steps too; the engine stamps each token with the version that sampled
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::grading::{Answer, Judged, Verdict, WholeGroup};
use super::plane::{Complete, Ended, Job, Member};
use super::run::TokenRun;
use crate::actors::role::{Role, RoleError, Turn};
use crate::generate::{Engine, Finished, Interrupt, Paused, Request, ResumeMode, SavedKv};
use crate::ops::with_threads;
use crate::schedule::KvResume;
use crate::telemetry::GeneratorMetrics;
use crate::trajectory::{Finish, LiveTicket, Trajectory, TrajectoryId, Version};

/// What a generator shows of itself in a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorSnapshot {
    /// Which life.
    pub incarnation: u32,
    /// Trajectories that are not graded, with the keys and values of those that keep them over versions.
    pub begun: Vec<(Trajectory, Option<SavedKv>)>,
}

/// A trajectory that this generator is responsible for.
struct Flight {
    ticket: LiveTicket,
    /// Tokens that the ledger knows of.
    booked: usize,
    /// `None` while the grading pool has it.
    conversation: Option<Conversation>,
    /// Whether the engine keeps its keys and values for the next turn.
    held: bool,
}

/// See the module's documentation.
pub struct Generator {
    run: Arc<TokenRun>,
    index: usize,
    incarnation: u32,
    engine: Engine,
    pool: ThreadPool,
    flights: BTreeMap<TrajectoryId, Flight>,
    metrics: GeneratorMetrics,
    /// Keys and values that a checkpoint brought back, until their trajectories are taken.
    saved: BTreeMap<TrajectoryId, SavedKv>,
    /// Steps of the engine and tokens at the last look.
    seen_preempted: u64,
    snapshots: flume::Sender<(usize, GeneratorSnapshot)>,
}

impl Generator {
    /// A generator's next life. What an earlier one had begins anew, unless a checkpoint's snapshot continues it.
    ///
    /// # Errors
    /// When the engine or its threads cannot be made.
    pub fn new(
        run: Arc<TokenRun>,
        index: usize,
        incarnation: u32,
        snapshot: Option<GeneratorSnapshot>,
        snapshots: flume::Sender<(usize, GeneratorSnapshot)>,
    ) -> Result<Self, RoleError> {
        let config = &run.config.generate;
        let published = run.bus.latest();
        let weights = run.generator_weights(index, &published)?;
        let decoder = Arc::clone(run.places[index].decoder());
        let engine = Engine::new(decoder, weights, config.engine.clone(), run.config.seed)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(config.threads)
            .thread_name(move |thread| format!("generator {index}.{thread}"))
            .build()
            .map_err(|error| {
                RoleError::Files(format!("the generator's threads cannot be started: {error}"))
            })?;
        let saved = snapshot.unwrap_or_default().begun.into_iter();
        let saved = saved.filter_map(|(trajectory, kv)| Some((trajectory.id, kv?))).collect();
        if incarnation > 0 {
            run.grading.forget(index);
            run.plane.lost(index);
        }
        Ok(Self {
            metrics: run.metrics.generator(index as u32),
            run,
            index,
            incarnation,
            engine,
            pool,
            flights: BTreeMap::new(),
            saved,
            seen_preempted: 0,
            snapshots,
        })
    }

    /// Whether nothing is generated, judged or waiting here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    fn take_weights(&mut self) -> Result<(), RoleError> {
        let Some(published) = self.run.plane.weights() else { return Ok(()) };
        // Before anything was published the engine has version 0 as it was before a warm-up.
        if published.version == self.engine.version() && self.run.is_current(self.index, &published) {
            return Ok(());
        }
        let mode = match self.run.resume_mode() {
            KvResume::KeepKv => ResumeMode::KeepKv,
            KvResume::Reprefill => ResumeMode::Reprefill,
        };
        if !self.engine.is_idle() {
            let running = self.engine.usage().running as u64;
            self.metrics.interrupted.inc_by(running);
        }
        let weights = self.run.generator_weights(self.index, &published)?;
        self.engine.swap(weights, mode);
        self.run.bus.note(self.index, published.version);
        self.run.set_current(self.index, &published);
        Ok(())
    }

    fn take_groups(&mut self) -> Result<(), RoleError> {
        loop {
            let usage = self.engine.usage();
            let room = self.run.config.generate.engine.max_running;
            if usage.waiting > 0 || usage.running >= room {
                return Ok(());
            }
            let Some(job) = self.run.plane.take(self.index) else { return Ok(()) };
            // A version may have been published since this step looked, and the group ordered under it.
            self.take_weights()?;
            self.begin(job)?;
        }
    }

    fn begin(&mut self, job: Job) -> Result<(), RoleError> {
        if job.members.is_empty() {
            return self.grade_whole(self.run.plane.all_ended(job.key));
        }
        for Member { problem, trajectory, begun } in job.members {
            let id = trajectory.id;
            let tokens = trajectory.tokens.len();
            let ledger = &self.run.ledger;
            let ticket = if begun { ledger.adopt_live(tokens as u64) } else { ledger.begin() };
            let conversation = if begun {
                let (task, tokenizer) = (&*self.run.task, &*self.run.tokenizer);
                Conversation::replay(problem, task, tokenizer, &self.run.stops.strings, &trajectory)
                    .map_err(RoleError::Files)?
            } else {
                Conversation::new(problem)
            };
            let flight = Flight { ticket, booked: tokens, conversation: Some(conversation), held: false };
            self.flights.insert(id, flight);
            if trajectory.finish.is_some() {
                self.turn_over(Finished { trajectory, held: false });
            } else {
                let request = self.request(trajectory);
                match self.saved.remove(&id) {
                    Some(kv) => self.engine.resume(Paused { request, kv: Some(kv) })?,
                    None => self.engine.submit(request)?,
                }
            }
        }
        Ok(())
    }

    fn request(&self, trajectory: Trajectory) -> Request {
        let config = &self.run.config.generate;
        Request {
            trajectory,
            sampling: config.sampling(),
            max_new_tokens: config.max_new_tokens,
            stops: Arc::clone(&self.run.stops),
            hold: self.run.task.is_multi_turn(),
        }
    }

    /// Books the tokens that were sampled since the last look.
    fn book(&mut self) {
        let (flights, metrics) = (&mut self.flights, &self.metrics);
        for (id, tokens) in self.engine.lengths() {
            if let Some(flight) = flights.get_mut(&id) {
                let new = tokens.saturating_sub(flight.booked) as u64;
                flight.ticket.step(new);
                flight.booked = tokens;
                metrics.tokens.inc_by(new);
            }
        }
        let usage = self.engine.usage();
        metrics.running.set(usage.running as u64);
        metrics.waiting.set(usage.waiting as u64);
        metrics.kv_cache_tokens.set(usage.cached_tokens as u64);
        metrics.kv_cache_capacity.set(usage.capacity_tokens as u64);
        metrics.preempted.inc_by(usage.preempted - self.seen_preempted);
        self.seen_preempted = usage.preempted;
    }

    /// An answer is complete: the grading pool judges it.
    fn turn_over(&mut self, finished: Finished) {
        let Finished { trajectory, held } = finished;
        let Some(flight) = self.flights.get_mut(&trajectory.id) else { return };
        let new = trajectory.tokens.len().saturating_sub(flight.booked);
        flight.ticket.step(new as u64);
        self.metrics.tokens.inc_by(new as u64);
        flight.booked = trajectory.tokens.len();
        flight.held = held;
        let Some(mut conversation) = flight.conversation.take() else { return };
        conversation.end_turn(&self.run.tokenizer, &self.run.stops.strings, &trajectory);
        self.run.grading.submit(Answer { trajectory, conversation, generator: self.index });
    }

    fn hear_verdicts(&mut self) -> Result<bool, RoleError> {
        self.run.grading.watch().map_err(RoleError::Files)?;
        let judged = self.run.grading.judged(self.index);
        let any = !judged.is_empty();
        for judged in judged {
            self.hear(judged)?;
        }
        // Asked after the answers: without grading threads, the last of them had its group judged at once.
        let groups = self.run.grading.judged_groups(self.index);
        let any = any || !groups.is_empty();
        for judged in groups {
            if let Err(error) = &judged.grades {
                self.run.metrics.record_group_grading_error(error.kind());
            }
            self.run.plane.group_judged(judged.key, judged.attempt, judged.grades);
        }
        Ok(any)
    }

    /// Has a complete group graded as a whole, where the task does that.
    fn grade_whole(&self, complete: Option<Complete>) -> Result<(), RoleError> {
        let Some(Complete { key, attempt, problem, graded }) = complete else { return Ok(()) };
        let (task, tokenizer, stops) = (&*self.run.task, &*self.run.tokenizer, &self.run.stops.strings);
        let answers = graded.into_iter().map(|(asked, trajectory)| {
            let turns = Conversation::turns_of(asked, task, tokenizer, stops, &trajectory)?;
            let finish = trajectory.finish.unwrap_or(Finish::Stop);
            Ok((turns, finish, trajectory.reward.unwrap_or_default()))
        });
        let answers = answers.collect::<Result<_, String>>().map_err(RoleError::Files)?;
        self.run.grading.submit_group(WholeGroup { key, attempt, problem, answers, generator: self.index });
        Ok(())
    }

    fn hear(&mut self, judged: Judged) -> Result<(), RoleError> {
        let Judged { answer: Answer { mut trajectory, mut conversation, .. }, verdict, seconds } = judged;
        let id = trajectory.id;
        let error = match verdict {
            Verdict::Observe(said) => {
                let observed = conversation.observe(&self.run.tokenizer, &trajectory, said);
                let ids = observed.map_err(|error| RoleError::Files(error.to_string()))?;
                let full = trajectory.len() + ids.len() >= self.run.decoder.config().context;
                let Some(flight) = self.flights.get_mut(&id) else { return Ok(()) };
                if full || ids.is_empty() {
                    // Nothing more fits: cut off as it stands, and graded so.
                    trajectory.finish = Some(Finish::Context);
                    self.run.grading.submit(Answer { trajectory, conversation, generator: self.index });
                    return Ok(());
                }
                flight.conversation = Some(conversation);
                if std::mem::take(&mut flight.held) {
                    if let Some(finished) = self.engine.observe(id, &ids)? {
                        self.turn_over(finished);
                    }
                } else {
                    trajectory.finish = None;
                    trajectory.push_observation(&ids, self.engine.version());
                    let request = self.request(trajectory);
                    self.engine.submit(request)?;
                }
                return Ok(());
            }
            Verdict::Graded(reward) => {
                let (source, length) = (&conversation.problem.source, trajectory.tokens.len());
                self.run.metrics.record_graded(source, length, seconds);
                trajectory.reward = Some(reward);
                None
            }
            Verdict::Failed(error) => {
                tracing::warn!("trajectory {id} was not graded: {error}");
                self.run.metrics.record_grading_error(error.kind());
                Some(error)
            }
        };
        let Some(flight) = self.flights.remove(&id) else { return Ok(()) };
        if flight.held {
            self.engine.release(id)?;
        }
        let complete = self.run.plane.ended(Ended { trajectory, ticket: flight.ticket.complete(), error });
        self.grade_whole(complete)
    }

    /// The state between two steps.
    #[must_use]
    pub fn snapshot(&mut self) -> GeneratorSnapshot {
        let paused = self.engine.interrupt(Interrupt::All, true);
        let keep = self.run.resume_mode() == KvResume::KeepKv;
        let mut begun: Vec<_> = paused
            .iter()
            .map(|paused| (paused.request.trajectory.clone(), paused.kv.clone().filter(|_| keep)))
            .collect();
        for paused in paused {
            // It came out of this engine a moment ago.
            if let Err(error) = self.engine.resume(paused) {
                tracing::error!("a trajectory was lost in a snapshot: {error}");
            }
        }
        begun.extend(
            self.run.grading.trajectories(self.index).into_iter().map(|trajectory| (trajectory, None)),
        );
        GeneratorSnapshot { incarnation: self.incarnation, begun }
    }

    /// Version of the weights in use.
    #[must_use]
    pub fn version(&self) -> Version {
        self.engine.version()
    }
}

impl Role for Generator {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        let seen = self.run.plane.signals();
        self.take_weights()?;
        let heard = self.hear_verdicts()?;
        self.take_groups()?;
        if self.engine.is_idle() {
            if heard {
                return Ok(Turn::Worked);
            }
            self.run.plane.wait(seen, patience);
            return Ok(Turn::Waiting);
        }
        let since = Instant::now();
        self.run.faults.engine_step(self.index as u32);
        let (engine, pool) = (&mut self.engine, &self.pool);
        let finished = with_threads(pool, || engine.step())?;
        self.run.generator_busy.add(since.elapsed());
        self.book();
        finished.into_iter().for_each(|finished| self.turn_over(finished));
        Ok(Turn::Worked)
    }

    fn pause(&mut self) {
        let snapshot = self.snapshot();
        drop(self.snapshots.try_send((self.index, snapshot)));
    }

    fn fail(&mut self) {
        self.run.plane.wake();
    }
}
