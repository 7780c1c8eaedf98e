//! The generator's role: takes groups from the plane, samples them with the engine, has them judged, and brings the
//! ended trajectories back.
//!
//! What the schedule says of trajectories that are here (stop, go on, give up) is done between two steps of the engine;
//! what stops is handed in, and any generator can go on with it. It never waits for a grader: answers go to the grading pool, and what comes back is looked at between two steps of
//! the engine. Weights are taken up between two steps too; the engine stamps each token with the version that sampled
//! it.

mod figures;
mod judging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::engine_trace::EngineTrace;
use super::plane::{BegunMember, Member, Order, Stored};
use super::run::TokenRun;
use crate::actors::role::{Role, RoleError, Turn};
use crate::generate::{Engine, Finished, Interrupt, Paused, Request};
use crate::ops::with_threads;
use crate::telemetry::GeneratorMetrics;
use crate::trajectory::{DropReason, LiveTicket, Trajectory, TrajectoryId, Version};

/// What a generator shows of itself in a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorSnapshot {
    /// Trajectories that are not graded.
    pub begun: Vec<BegunMember>,
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
    /// Actions at which it stops by itself until the next round.
    pause_at: Option<usize>,
    /// Whether it stops before its next turn.
    pauses: bool,
}

impl Flight {
    /// Books what the ledger does not know of, of a trajectory that has so many tokens by now.
    fn book(&mut self, tokens: usize, metrics: &GeneratorMetrics) {
        let new = tokens.saturating_sub(self.booked) as u64;
        self.ticket.step(new);
        metrics.tokens.inc_by(new);
        self.booked = tokens;
    }
}

/// See the module's documentation.
pub struct Generator {
    run: Arc<TokenRun>,
    index: usize,
    engine: Engine,
    pool: ThreadPool,
    flights: BTreeMap<TrajectoryId, Flight>,
    metrics: GeneratorMetrics,
    /// Running trajectories that had lost their pages at the last look.
    seen_preempted: u64,
    /// Whether trajectories still waited for the engine after its last step.
    waiting: bool,
    /// Steps until the schedule is shown the engine's load again.
    until_load: u32,
    /// Whether the memory of its KV cache is given back while the learner learns.
    gives_back: bool,
    /// How often saved keys and values had been brought back at the last look.
    seen_loads: u64,
    /// What steps take, where the run is traced.
    trace: Option<EngineTrace>,
    snapshots: flume::Sender<(usize, GeneratorSnapshot)>,
}

impl Generator {
    /// A generator's next life. What an earlier one had begins anew.
    ///
    /// # Errors
    /// When the engine or its threads cannot be made.
    pub fn new(
        run: Arc<TokenRun>,
        index: usize,
        incarnation: u32,
        snapshots: flume::Sender<(usize, GeneratorSnapshot)>,
    ) -> Result<Self, RoleError> {
        let config = &run.config.generate;
        let published = run.bus.latest();
        let weights = run.generator_weights(index, &published)?;
        let decoder = Arc::clone(run.places[index].decoder());
        let gives_back = run.gives_memory_back(index);
        // It may begin in the learner's turn.
        let engine = if gives_back { Engine::without_memory } else { Engine::new };
        let engine = engine(decoder, weights, config.engine.clone(), run.config.seed)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(config.threads)
            .thread_name(move |thread| format!("generator {index}.{thread}"))
            .build()
            .map_err(|error| {
                RoleError::Files(format!("the generator's threads cannot be started: {error}"))
            })?;
        let metrics = run.metrics.generator(index as u32);
        let trace = run.plane.is_traced().then(EngineTrace::default);
        if incarnation > 0 {
            // That of the life before is gone.
            metrics.kv_cache_bytes.set(engine.usage().bytes as u64);
            run.grading.forget(index);
            run.plane.lost(index);
        }
        Ok(Self {
            metrics,
            run,
            index,
            engine,
            pool,
            flights: BTreeMap::new(),
            seen_preempted: 0,
            waiting: false,
            until_load: 0,
            gives_back,
            seen_loads: 0,
            trace,
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
        if !self.engine.is_idle() {
            let running = self.engine.usage().running as u64;
            self.metrics.interrupted.inc_by(running);
        }
        let since = Instant::now();
        let weights = self.run.generator_weights(self.index, &published)?;
        self.engine.swap(weights, self.run.resume_mode());
        if let Some(trace) = &mut self.trace {
            trace.loaded(since.elapsed());
        }
        self.run.bus.note(self.index, published.version);
        self.run.set_current(self.index, &published);
        Ok(())
    }

    /// Whether it may generate now. In the learner's turn it has given its memory back, where it does that.
    fn has_turn(&mut self) -> bool {
        let has_turn = !self.gives_back || self.run.plane.lend_memory(self.index);
        if !has_turn {
            self.give_back_memory();
        }
        has_turn
    }

    /// Gives the memory of the KV cache back for the learner's turn.
    pub fn give_back_memory(&mut self) {
        if self.gives_back {
            self.engine.give_back_memory(self.run.stores_kv());
            self.show();
            self.run.plane.memory_returned(self.index);
        }
    }

    /// Does what the schedule says of trajectories that are here.
    fn obey(&mut self) -> Result<(), RoleError> {
        let mut to_pause = Vec::new();
        for order in self.run.plane.orders(self.index) {
            match order {
                Order::Pause(id) => to_pause.push(id),
                Order::Continue(id) => {
                    if let Some(flight) = self.flights.get_mut(&id) {
                        flight.pauses = false;
                    }
                }
                Order::Abort(id, reason) => {
                    self.engine.interrupt(Interrupt::Only(&[id]), false);
                    if let Some(flight) = self.flights.remove(&id) {
                        if flight.held {
                            self.engine.release(id)?;
                        }
                        flight.ticket.discard(reason);
                    }
                }
            }
        }
        if !to_pause.is_empty() {
            self.hand_in(&to_pause);
            for id in to_pause {
                // What is left of them is with its grader.
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.pauses = self.run.plane.will_pause(id);
                }
            }
        }
        Ok(())
    }

    /// Stops those of these that run or wait.
    fn hand_in(&mut self, ids: &[TrajectoryId]) {
        self.book();
        let paused = self.engine.interrupt(Interrupt::Only(ids), self.run.stores_kv());
        self.metrics.interrupted.inc_by(paused.len() as u64);
        for paused in paused {
            self.store(paused, false);
        }
    }

    /// Notes something for the run's trace, and writes it there now and then.
    fn note(&mut self, what: impl FnOnce(&mut EngineTrace)) {
        let Some(trace) = &mut self.trace else { return };
        what(trace);
        if let Some(sums) = trace.take_if_due() {
            self.run.plane.trace_engine(self.index, &sums);
        }
    }

    fn store(&mut self, paused: Paused, exhausted: bool) {
        let Paused { request, kv } = paused;
        let trajectory = request.trajectory;
        let Some(mut flight) = self.flights.remove(&trajectory.id) else { return };
        // One that has used up its budget left the engine with its last token.
        flight.book(trajectory.tokens.len(), &self.metrics);
        let kv = kv.map(|kv| (kv, self.engine.version()));
        self.run
            .plane
            .paused(Stored { trajectory, ticket: flight.ticket, kv, pause_at: request.pause_at }, exhausted);
    }

    /// Takes what there is room for.
    fn take_members(&mut self) -> Result<(), RoleError> {
        while let Some(complete) = self.run.plane.take_whole(self.index) {
            self.grade_whole(complete)?;
        }
        let usage = self.engine.usage();
        if self.waiting && usage.waiting > 0 {
            // For memory, or for their turn to be read: more would only wait behind them.
            return Ok(());
        }
        let most = self.run.config.generate.engine.max_running;
        let mut room = most.saturating_sub(usage.running + usage.waiting);
        while room > 0 && self.run.plane.is_short(self.index) {
            let Some(members) = self.run.plane.take(self.index) else { break };
            room = room.saturating_sub(members.len());
            // A version may have been published since this step looked, and these let go under it.
            self.take_weights()?;
            members.into_iter().try_for_each(|member| self.begin(member))?;
        }
        Ok(())
    }

    fn begin(&mut self, member: Member) -> Result<(), RoleError> {
        let Member { problem, trajectory, ticket, kv, pause_at } = member;
        let (id, booked) = (trajectory.id, trajectory.tokens.len());
        let (ticket, conversation) = match ticket {
            None => {
                if let Some(trace) = &mut self.trace {
                    trace.began(trajectory.prompt.len());
                }
                (self.run.ledger.begin(), Conversation::new(problem))
            }
            Some(ticket) => {
                let (task, tokenizer) = (&*self.run.task, &*self.run.tokenizer);
                let stops = &self.run.stops.strings;
                let replayed = Conversation::replay(problem, task, tokenizer, stops, &trajectory);
                (ticket, replayed.map_err(RoleError::Files)?)
            }
        };
        let conversation = Some(conversation);
        let flight = Flight { ticket, booked, conversation, held: false, pause_at, pauses: false };
        self.flights.insert(id, flight);
        if trajectory.finish.is_some() {
            self.turn_over(Finished { trajectory, held: false });
        } else {
            let request = self.request(trajectory);
            self.engine.resume(Paused { request, kv })?;
        }
        Ok(())
    }

    fn request(&self, trajectory: Trajectory) -> Request {
        let config = &self.run.config.generate;
        let flight = self.flights.get(&trajectory.id);
        let problem = flight.and_then(|flight| Some(&flight.conversation.as_ref()?.problem));
        let forced = problem.and_then(|problem| self.run.task.forced_length(problem, trajectory.id.member));
        Request {
            sampling: config.sampling(),
            max_new_tokens: forced.unwrap_or(usize::MAX).min(config.max_new_tokens),
            pause_at: flight.and_then(|flight| flight.pause_at),
            repetition: self.run.plane.settings().repetition,
            stops: if forced.is_some() { Arc::default() } else { Arc::clone(&self.run.stops) },
            hold: self.run.task.is_multi_turn(),
            trajectory,
        }
    }

    /// The state between two steps.
    #[must_use]
    pub fn snapshot(&mut self) -> GeneratorSnapshot {
        let paused = self.engine.interrupt(Interrupt::All, true);
        let keep = self.run.stores_kv();
        let version = self.engine.version();
        let shown = |paused: &Paused| BegunMember {
            trajectory: paused.request.trajectory.clone(),
            kv: paused.kv.clone().filter(|_| keep).map(|kv| (kv, version)),
            pause_at: paused.request.pause_at,
        };
        let mut begun: Vec<_> = paused.iter().map(shown).collect();
        for paused in paused {
            // It came out of this engine a moment ago.
            if let Err(error) = self.engine.resume(paused) {
                tracing::error!("a trajectory was lost in a snapshot: {error}");
            }
        }
        let grading = self.run.grading.trajectories(self.index).into_iter();
        let pause_at = |id| self.flights.get(&id).and_then(|flight: &Flight| flight.pause_at);
        begun.extend(grading.map(|trajectory| {
            let pause_at = pause_at(trajectory.id);
            BegunMember { trajectory, kv: None, pause_at }
        }));
        GeneratorSnapshot { begun }
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
        self.run.plane.tick();
        self.obey()?;
        let has_turn = self.has_turn();
        self.take_weights()?;
        let heard = self.hear_verdicts()?;
        self.take_members()?;
        if !has_turn || self.engine.is_idle() {
            if heard {
                return Ok(Turn::Worked);
            }
            let since = Instant::now();
            self.run.plane.wait(seen, patience);
            self.note(|trace| trace.idle(since.elapsed()));
            return Ok(Turn::Waiting);
        }
        let (since, before, turns) = (Instant::now(), self.engine.usage(), self.run.learner_turns());
        self.run.faults.engine_step(self.index);
        let (engine, pool) = (&mut self.engine, &self.pool);
        let finished = with_threads(pool, || engine.step())?;
        let (took, after) = (since.elapsed(), self.engine.usage());
        self.waiting = after.waiting > 0;
        self.run.generator_busy.add(took);
        let beside = self.run.learner_worked_since(turns);
        self.note(|trace| trace.step(&before, &after, took, beside));
        self.book();
        finished.into_iter().for_each(|finished| self.turn_over(finished));
        let exhausted = self.engine.take_paused(self.run.stores_kv());
        exhausted.into_iter().for_each(|paused| self.store(paused, true));
        Ok(Turn::Worked)
    }

    fn pause(&mut self) {
        if let Some(trace) = &mut self.trace {
            self.run.plane.trace_engine(self.index, &trace.take());
        }
        let snapshot = self.snapshot();
        drop(self.snapshots.try_send((self.index, snapshot)));
    }

    fn fail(&mut self) {
        for flight in std::mem::take(&mut self.flights).into_values() {
            flight.ticket.discard(DropReason::ActorRestart);
        }
        self.run.plane.wake();
    }
}
