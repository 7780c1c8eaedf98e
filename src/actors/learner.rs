//! The learner's role: draws batches from the queue, updates, publishes, and decides when the run is complete.
//!
//! It is the single consumer of the queue. Experience that a resumed checkpoint held is consumed first, in its old
//! order. A unit leaves the ledger's buffer only here: consumed by an applied update, or dropped as
//! stale or not finite.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{RUN_STATE, RunState, files};
use super::evaluator::Evaluator;
use super::faults::{Fault, FaultKind, kill_if_struck, struck};
use super::journal::Journal;
use super::lane::Experience;
use super::parameter_bus::Published;
use super::queue::QueueReceiver;
use super::recorder::Recorder;
use super::role::{Learning, Role, RoleError, Turn};
use super::run::{Figures, Run};
use super::snapshot::RolloutSnapshot;
use crate::codec::{self, CheckpointStore};
use crate::learner::objective::Clipped;
use crate::learner::schedule::Progress;
use crate::learner::{Applied, Learner, LearnerError, Outcome};
use crate::telemetry::UpdateRecord;
use crate::trajectory::{DropReason, Unroll, Version};

/// Versions kept for recomputing log-probabilities.
const KEPT_VERSIONS: usize = 64;

/// What the learner's role is made of.
pub struct LearnerParts {
    /// What is shared with the rest of the run.
    pub run: Arc<Run>,
    /// Parameters and optimiser.
    pub learner: Learner,
    /// Where experience comes from.
    pub queue: QueueReceiver<Experience>,
    /// Experience of a checkpoint, older than anything in the queue.
    pub carried: VecDeque<Experience>,
    /// What is remembered of the run.
    pub journal: Journal,
    /// Where evaluations run.
    pub evaluator: Evaluator,
    /// Metrics and files.
    pub recorder: Recorder<UpdateRecord>,
    /// Where checkpoints go.
    pub store: CheckpointStore,
}

/// See the module's documentation.
pub struct LearnerRole {
    run: Arc<Run>,
    learner: Learner,
    queue: QueueReceiver<Experience>,
    carried: VecDeque<Experience>,
    batch: Vec<Experience>,
    journal: Journal,
    evaluator: Evaluator,
    recorder: Recorder<UpdateRecord>,
    store: CheckpointStore,
    versions: VecDeque<Arc<Published>>,
    record: UpdateRecord,
    /// Time that producers had been blocked at the last report.
    seen_blocked: Duration,
    last_checkpoint: (Version, Instant),
    complete: Option<String>,
}

impl LearnerRole {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: LearnerParts) -> Self {
        let LearnerParts { run, learner, queue, carried, journal, evaluator, recorder, store } = parts;
        let versions = VecDeque::from([run.bus.latest()]);
        let last_checkpoint = (learner.version(), Instant::now());
        Self {
            run,
            learner,
            queue,
            carried,
            batch: Vec::new(),
            journal,
            evaluator,
            recorder,
            store,
            versions,
            record: UpdateRecord::default(),
            seen_blocked: Duration::ZERO,
            last_checkpoint,
            complete: None,
        }
    }

    /// Ends the queue and the records: waiting updates become a last line.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(&mut self) -> Result<(), RoleError> {
        self.evaluator.abandon();
        // What stood in it is in the last checkpoint; its tickets book it as lost in the shutdown.
        drop(self.queue.close());
        self.recorder.finish().map_err(|error| RoleError::Files(error.to_string()))
    }

    /// Wall time of all sessions of the run, seconds.
    #[must_use]
    pub fn wall_seconds(&self) -> f64 {
        self.recorder.wall_seconds()
    }

    /// What is remembered of the run.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> Version {
        self.learner.version()
    }

    /// Draws experience until the batch is complete.
    fn fill(&mut self, patience: Duration) -> bool {
        let (batch_unrolls, max_lag) =
            (self.run.config.learner.batch_unrolls, self.run.config.learner.max_lag);
        while self.batch.len() < batch_unrolls {
            let since = Instant::now();
            let drawn = match self.carried.pop_front() {
                Some(experience) => Some((experience, Duration::ZERO)),
                None => self.queue.take(patience),
            };
            self.record.starved_seconds += since.elapsed().as_secs_f64();
            let Some((experience, waited)) = drawn else { return false };
            let lag = self.learner.version().lag_of(experience.unroll.versions[0]);
            if max_lag.is_some_and(|most| lag > most) {
                self.note_episodes(&experience.unroll);
                experience.ticket.discard(DropReason::Stale);
                continue;
            }
            let behaviour = experience.unroll.versions[0];
            self.run.metrics.queue.wait_seconds.observe(waited.as_secs_f64());
            self.run.metrics.queue.lag_in_flight.observe(experience.queued_at.lag_of(behaviour) as f64);
            let queued = self.learner.version().lag_of(experience.queued_at);
            self.run.metrics.queue.lag_in_queue.observe(queued as f64);
            let share = waited.as_secs_f64() / batch_unrolls as f64;
            *self.record.queue_wait_seconds.get_or_insert_default() += share;
            self.batch.push(experience);
        }
        true
    }

    fn note_episodes(&mut self, unroll: &Unroll) {
        for episode in &unroll.episodes {
            self.journal.returns.push(episode.episode_return);
            self.record.add_episode(episode.episode_return, episode.length);
            self.run.metrics.record_episode(episode);
        }
    }

    fn learning_rate(&self) -> f64 {
        let stop = &self.run.config.stop;
        let progress = Progress::furthest([
            Progress::new(self.learner.version().0, stop.updates),
            Progress::new(self.run.ledger.submitted_steps(), stop.env_steps),
        ]);
        self.run.config.learner.schedule.at(self.learner.version().0, progress)
    }

    /// Whether a fault of this kind strikes at the update in hand.
    fn fault(&self, kind: FaultKind) -> Option<Duration> {
        struck(&self.run.config.faults, kind, self.journal.attempts).map(Fault::delay)
    }

    /// Kills the process if a fault of this kind strikes at the update in hand.
    fn kill_if(&self, kind: FaultKind) {
        kill_if_struck(&self.run.config.faults, kind, self.journal.attempts);
    }

    /// Learns from the complete batch.
    fn update(&mut self) -> Result<(), RoleError> {
        let since = Instant::now();
        // What a checkpoint took out of the queue still waits like the rest of it.
        self.record.queue_depth = Some((self.carried.len() + self.run.queue_depth()) as f64);
        self.journal.attempts += 1;
        self.kill_if(FaultKind::KillBeforeUpdate);
        if let Some(delay) = self.fault(FaultKind::SlowUpdate) {
            std::thread::sleep(delay);
        }
        let poison = self.fault(FaultKind::NanGradient).is_some();
        let learning_rate = self.learning_rate();
        let batch = std::mem::take(&mut self.batch);
        for experience in &batch {
            self.note_episodes(&experience.unroll);
        }
        let unrolls: Vec<&Unroll> = batch.iter().map(|experience| &experience.unroll).collect();
        let before = self.learner.version();
        let outcome = self.learner.update(&unrolls, learning_rate, poison);
        self.record.learning_rate = Some(learning_rate);
        match outcome {
            Ok(Outcome::Applied(applied)) => {
                for experience in batch {
                    self.note_lag(&experience.unroll, before);
                    self.check_log_probs(&experience.unroll)?;
                    experience.ticket.consume();
                }
                describe(&mut self.record, &applied);
                self.publish().map_err(LearnerError::from)?;
            }
            Ok(Outcome::Skipped { culprit }) => {
                tracing::warn!("update skipped: {culprit} was not finite; the parameters are unchanged");
                self.record.skipped_non_finite += 1;
                batch.into_iter().for_each(|experience| experience.ticket.discard(DropReason::NonFinite));
            }
            Err(error) => {
                batch.into_iter().for_each(|experience| experience.ticket.discard(DropReason::NonFinite));
                return Err(error.into());
            }
        }
        self.run.learner_busy.add(since.elapsed());
        self.record.update_seconds += since.elapsed().as_secs_f64();
        self.kill_if(FaultKind::KillAfterUpdate);
        Ok(())
    }

    fn note_lag(&mut self, unroll: &Unroll, version: Version) {
        for steps in unroll.versions.chunk_by(|a, b| a == b) {
            let lag = version.lag_of(steps[0]);
            let entries = (steps.len() * unroll.columns) as u64;
            self.journal.lags.consumed(lag, entries);
            self.record.add_lag(lag, entries);
        }
    }

    /// Recomputes one unroll now and then; the first of a batch whose turn it is.
    fn check_log_probs(&mut self, unroll: &Unroll) -> Result<(), RoleError> {
        let every = self.run.config.learner.check_every;
        if every == 0
            || !self.journal.attempts.is_multiple_of(every)
            || self.record.log_prob_difference.is_some()
        {
            return Ok(());
        }
        let kept = |version: Version| {
            let published = self.versions.iter().find(|published| published.version == version)?;
            Some((published.parameters.clone(), published.normalizer.clone()))
        };
        self.record.log_prob_difference = self.learner.log_prob_difference(unroll, kept)?;
        Ok(())
    }

    fn publish(&mut self) -> candle_core::Result<()> {
        let published = Published {
            version: self.learner.version(),
            parameters: self.learner.parameters().deep_copy(&candle_core::Device::Cpu)?,
            normalizer: self.learner.normalizer(),
        };
        self.run.bus.publish(published);
        if self.run.config.learner.check_every > 0 {
            self.versions.truncate(KEPT_VERSIONS - 1);
            self.versions.push_front(self.run.bus.latest());
        }
        Ok(())
    }

    /// Starts an evaluation when one is due, and takes the result of one that finished.
    fn evaluate(&mut self) -> Result<(), RoleError> {
        let steps = self.run.ledger.submitted_steps();
        if let Some(every) = self.run.config.evaluation.every_env_steps
            && steps >= self.journal.next_evaluation
            && self.evaluator.is_idle()
        {
            self.journal.next_evaluation = steps - steps % every.max(1) + every.max(1);
            self.evaluator.start(&self.run, self.run.bus.latest(), self.run.config.evaluation.episodes)?;
        }
        if let Some(result) = self.evaluator.result(self.run.env_timeout())? {
            self.journal.returns.evaluated(result.mean());
            self.record.eval_mean = Some(result.mean());
        }
        Ok(())
    }

    fn stop_condition(&self) -> Option<String> {
        let returns = &self.journal.returns;
        let score = returns.mean().filter(|_| returns.window_is_full());
        let (steps, updates) = (self.run.ledger.submitted_steps(), self.learner.version().0);
        self.run.config.stop.reached(steps, updates, self.recorder.wall_seconds(), score)
    }

    fn report(&mut self) -> Result<(), RoleError> {
        self.journal.returns.updated();
        let mut record = std::mem::take(&mut self.record);
        record.update = self.learner.version().0;
        record.env_steps = self.run.ledger.submitted_steps();
        record.return_mean = self.journal.returns.mean();
        self.run.set_figures(Figures {
            version: self.learner.version(),
            return_mean: record.return_mean,
            eval_mean: self.journal.returns.evaluation(),
            lag_mean: record.lag_mean,
        });
        record.wall_seconds = self.recorder.wall_seconds();
        let blocked = self.run.blocked();
        record.blocked_seconds =
            blocked.saturating_sub(std::mem::replace(&mut self.seen_blocked, blocked)).as_secs_f64();
        self.run.metrics.record_update(&record);
        self.recorder.record(record).map_err(|error| RoleError::Files(error.to_string()))
    }
}

impl Role for LearnerRole {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        if self.complete.is_some() {
            return Ok(Turn::Finished);
        }
        if !self.fill(patience) {
            // A run may also end while the learner starves.
            self.complete = self.stop_condition();
            return Ok(Turn::Waiting);
        }
        self.update()?;
        self.evaluate()?;
        self.report()?;
        self.complete = self.stop_condition();
        Ok(Turn::Worked)
    }
}

/// Adds the figures of an applied update.
fn describe(record: &mut UpdateRecord, applied: &Applied) {
    let diagnostics = &applied.diagnostics;
    record.loss = Some(diagnostics.total_loss);
    record.policy_loss = Some(diagnostics.policy_loss);
    record.value_loss = Some(diagnostics.baseline_loss);
    record.entropy = Some(diagnostics.entropy_mean);
    record.approx_kl = Some(diagnostics.kl_k3);
    record.explained_variance = diagnostics.explained_variance;
    record.gradient_norm = Some(applied.gradient_norm);
    record.ratio_mean = Some(diagnostics.ratio_mean);
    record.advantage_mean = Some(diagnostics.advantage_mean);
    record.advantage_std = Some(diagnostics.advantage_std);
    if let Clipped::Ratios { rho_bar, c_bar } = diagnostics.clipped {
        record.rho_clip_fraction = Some(rho_bar);
        record.c_clip_fraction = Some(c_bar);
    }
    if let Clipped::Surrogate { high, low, .. } = diagnostics.clipped {
        record.clip_fraction_high = Some(high);
        record.clip_fraction_low = Some(low);
    }
}

impl Learning for LearnerRole {
    type Snapshot = RolloutSnapshot;

    fn complete(&self) -> Option<&str> {
        self.complete.as_deref()
    }

    fn checkpoint_due(&self) -> bool {
        let (version, instant) = self.last_checkpoint;
        let updates = self.learner.version().lag_of(version);
        self.run.config.checkpoint.is_due(updates, instant.elapsed().as_secs_f64())
    }

    fn save(&mut self, rollouts: Vec<Option<RolloutSnapshot>>) -> Result<(), RoleError> {
        let standing = self.queue.drain();
        let version = self.learner.version();
        let failed =
            |error: &dyn std::fmt::Display| RoleError::Files(format!("checkpoint {version}: {error}"));
        let waiting: Vec<Unroll> =
            self.batch.iter().chain(&self.carried).chain(&standing).map(|e| e.unroll.clone()).collect();
        // Back where it stood, so that a checkpoint makes no room in the queue. What a late actor displaced meanwhile
        // is consumed first.
        let displaced = standing.into_iter().filter_map(|experience| self.run.put_back(experience));
        self.carried.extend(displaced);
        let state = RunState {
            learner: self.learner.state().clone(),
            journal: self.journal.clone(),
            metrics: self.recorder.position().map_err(|e| failed(&e))?,
            ledger: self.run.ledger.snapshot(),
            next_episodes: self.run.episodes.to_vec(),
            rollouts,
            queue: waiting,
        };
        let parameters: Vec<_> = self
            .learner
            .parameters()
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.detach()))
            .collect();
        let optimizer = self.learner.optimizer().state().map_err(LearnerError::from)?;
        let tensors = |named: &[_]| codec::tensors_to_bytes(named, &BTreeMap::new()).map_err(|e| failed(&e));
        let contents = [
            (files::STATE, codec::encode(RUN_STATE, &state).map_err(|e| failed(&e))?),
            (files::PARAMETERS, tensors(&parameters)?),
            (files::OPTIMIZER, tensors(&optimizer)?),
        ];
        let best = self.run.config.checkpoint.best && self.journal.returns.is_best();
        let written = self.store.write(version.0, &contents, best).map_err(|e| failed(&e))?;
        self.kill_if(FaultKind::KillSaving);
        written.put_in_place().map_err(|e| failed(&e))?;
        self.last_checkpoint = (version, Instant::now());
        Ok(())
    }
}
