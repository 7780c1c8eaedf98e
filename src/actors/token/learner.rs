//! The learner's role in a token run: warms up, takes batches of groups, updates, publishes, evaluates, and decides
//! when the run is complete.
//!
//! It takes whole batches, as the schedule forms them. What is in one leaves the ledger's buffer only here: consumed by
//! an applied update, or dropped as not finite; a dropped one gives its places back to the schedule. Batches are put in
//! the order of their problems, so that an update does not depend on which of them was finished first.

mod balancer;
mod examine;
mod report;
mod save;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::balancer::Balancer;
use self::report::Totals;
use super::demonstrations::Demonstrations;
use super::journal::TokenJournal;
use super::plane::ReadyGroup;
use super::run::TokenRun;
use crate::actors::faults::{Fault, FaultKind, kill_if_struck, struck};
use crate::actors::interrupt::Interrupt;
use crate::actors::parameter_bus::Published;
use crate::actors::recorder::Recorder;
use crate::actors::role::{Role, RoleError, Turn};
use crate::codec::CheckpointStore;
use crate::learner::LearnerError;
use crate::learner::schedule::Progress;
use crate::learner::token::{Figure, LearningRates, TokenApplied, TokenLearner, TokenOutcome};
use crate::schedule::trace::UpdateStatistics;
use crate::telemetry::{SampleWriter, TokenRecord};
use crate::trajectory::{DropReason, Group, Version};

/// What the learner's role is made of.
pub struct TokenLearnerParts {
    /// What is shared with the rest of the run.
    pub run: Arc<TokenRun>,
    /// Parameters and optimiser.
    pub learner: TokenLearner,
    /// What is remembered of the run.
    pub journal: TokenJournal,
    /// Chooses how much work a step holds, where that is not set.
    pub balancer: Balancer,
    /// What a warm-up imitates.
    pub demonstrations: Demonstrations,
    /// Metrics and files.
    pub recorder: Recorder<TokenRecord>,
    /// Answers to show.
    pub samples: SampleWriter,
    /// Where checkpoints go.
    pub store: CheckpointStore,
    /// Asks for the end.
    pub interrupt: Interrupt,
}

/// See the module's documentation.
pub struct TokenLearnerRole {
    run: Arc<TokenRun>,
    learner: TokenLearner,
    /// The batch in hand.
    batch: Option<Vec<ReadyGroup>>,
    journal: TokenJournal,
    balancer: Balancer,
    demonstrations: Demonstrations,
    recorder: Recorder<TokenRecord>,
    samples: SampleWriter,
    store: CheckpointStore,
    interrupt: Interrupt,
    /// Published versions that trajectories may be checked under, newest first.
    versions: VecDeque<Arc<Published>>,
    record: TokenRecord,
    /// Groups of the batch in hand whose answers were all alike, where answers are compared.
    alike: Option<u64>,
    /// Totals at the last report, from which a record's shares are told.
    seen: Totals,
    last_checkpoint: (Version, Instant),
    complete: Option<String>,
    begun: bool,
    /// Time for which it waited for the batch in hand.
    waited: Duration,
}

impl TokenLearnerRole {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: TokenLearnerParts) -> Self {
        let older = parts.run.plane.older_versions();
        let versions = std::iter::once(parts.run.bus.latest()).chain(older).collect();
        let last_checkpoint = (parts.learner.version(), Instant::now());
        Self {
            run: parts.run,
            learner: parts.learner,
            batch: None,
            journal: parts.journal,
            balancer: parts.balancer,
            demonstrations: parts.demonstrations,
            recorder: parts.recorder,
            samples: parts.samples,
            store: parts.store,
            interrupt: parts.interrupt,
            versions,
            record: TokenRecord::default(),
            alike: None,
            seen: Totals::default(),
            last_checkpoint,
            complete: None,
            begun: false,
            waited: Duration::ZERO,
        }
    }

    /// Ends the records: waiting updates become a last line.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(&mut self) -> Result<(), RoleError> {
        // It is in the last checkpoint; its tickets book it as lost in the shutdown.
        self.batch = None;
        self.recorder.finish().map_err(|error| RoleError::Files(error.to_string()))
    }

    /// Wall time of all sessions of the run, seconds.
    #[must_use]
    pub fn wall_seconds(&self) -> f64 {
        self.recorder.wall_seconds()
    }

    /// What is remembered of the run.
    #[must_use]
    pub fn journal(&self) -> &TokenJournal {
        &self.journal
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> Version {
        self.learner.version()
    }

    /// Updates so far that changed the value function alone.
    #[must_use]
    pub fn value_only(&self) -> u64 {
        self.learner.state().value_only
    }

    /// Whether there is more to imitate before reinforcement learning begins.
    fn is_warming_up(&self) -> bool {
        !self.journal.started && self.run.config.warmup.goes_on(&self.journal)
    }

    /// One update of the warm-up.
    fn warm_up(&mut self) -> Result<(), RoleError> {
        let since = Instant::now();
        let config = self.run.config.warmup.clone();
        let batch = self.demonstrations.batch(self.journal.warmup, config.batch).map_err(RoleError::Files)?;
        let rate = config.rate(self.journal.warmup);
        match self.learner.imitate(&batch, rate)? {
            TokenOutcome::Applied(applied) => {
                self.journal.warmup_losses.push(applied.loss);
                self.record.warmup_loss = Some(applied.loss);
                self.record.gradient_norm = Some(applied.gradient_norm);
            }
            TokenOutcome::Skipped { culprit } => {
                tracing::warn!("warm-up update skipped: {culprit} was not finite");
                self.record.skipped_non_finite += 1;
            }
            TokenOutcome::Abandoned => {}
        }
        self.journal.warmup += 1;
        self.record.learning_rate = Some(rate);
        self.record.update_seconds += since.elapsed().as_secs_f64();
        self.run.learner_busy.add(since.elapsed());
        self.report()
    }

    /// Publishes the initial policy and lets generation begin; after a checkpoint, goes on with what was published.
    fn begin(&mut self) -> Result<(), RoleError> {
        self.begun = true;
        if !self.journal.started {
            self.learner.begin()?;
            self.publish_first()?;
            self.journal.started = true;
            if self.run.config.evaluation.initial && self.run.config.evaluation.every_updates.is_some() {
                self.evaluate_now()?;
                self.journal.initial_evaluation = self.journal.rewards.evaluation();
            }
            self.journal.next_evaluation = self.run.config.evaluation.every_updates.unwrap_or_default();
        }
        self.run.plane.start(self.run.bus.latest());
        Ok(())
    }

    fn published(&self) -> candle_core::Result<Published> {
        Ok(Published {
            version: self.learner.version(),
            parameters: self.learner.parameters().snapshot()?,
            normalizer: None,
        })
    }

    fn publish_first(&mut self) -> Result<(), RoleError> {
        self.run.bus.publish(self.published().map_err(LearnerError::from)?);
        self.versions = VecDeque::from([self.run.bus.latest()]);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), RoleError> {
        // Old versions go first: with a large model there is no memory for one more than needed.
        let oldest = self.run.plane.greatest_lag();
        let keep = if self.run.config.learner.check_every > 0 { oldest as usize + 2 } else { 0 };
        self.versions.truncate(keep.saturating_sub(1));
        self.run.bus.publish(self.published().map_err(LearnerError::from)?);
        let latest = self.run.bus.latest();
        if keep > 0 {
            self.versions.push_front(Arc::clone(&latest));
        }
        self.run.set_learner_works(false);
        self.run.plane.published(latest);
        Ok(())
    }

    /// Takes a batch, unless there is one in hand.
    fn fill(&mut self, patience: Duration) -> bool {
        if self.batch.is_some() {
            return true;
        }
        let since = Instant::now();
        let taken = self.run.plane.take_batch(patience);
        self.record.starved_seconds += since.elapsed().as_secs_f64();
        self.waited += since.elapsed();
        let Some(mut batch) = taken else { return false };
        let (version, groups) = (self.learner.version(), batch.len() as f64);
        for ready in &batch {
            let oldest = ready.group.oldest_version().unwrap_or(version);
            let waited = ready.ready_at.elapsed().as_secs_f64();
            let metrics = &self.run.metrics.queue;
            metrics.wait_seconds.observe(waited);
            metrics.lag_in_flight.observe(ready.ready_under.lag_of(oldest) as f64);
            metrics.lag_in_queue.observe(version.lag_of(ready.ready_under) as f64);
            *self.record.queue_wait_seconds.get_or_insert_default() += waited / groups;
        }
        batch.sort_by_key(|ready| (ready.group.epoch, ready.group.prompt));
        self.batch = Some(batch);
        true
    }

    /// The policy's rate does not rise before its first update, which follows the critic's warm-up.
    fn learning_rates(&self) -> LearningRates {
        let (stop, config) = (&self.run.config.stop, &self.run.config.learner);
        let updates = self.learner.version().0;
        let progress = Progress::furthest([
            Progress::new(updates, stop.updates),
            Progress::new(self.run.ledger.submitted_steps(), stop.tokens),
        ]);
        LearningRates {
            policy: config.schedule.at(self.learner.state().policy_updates(), progress),
            values: config.critic_schedule().at(updates, progress),
        }
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
        self.run.set_learner_works(true);
        self.record.queue_depth = Some(self.run.plane.ready_groups() as f64);
        self.journal.attempts += 1;
        self.kill_if(FaultKind::KillBeforeUpdate);
        if let Some(delay) = self.fault(FaultKind::SlowUpdate) {
            std::thread::sleep(delay);
        }
        let poison = self.fault(FaultKind::NanGradient).is_some();
        let rates = self.learning_rates();
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let answers = Self::answers_of(&batch);
        let before = self.learner.version();
        let groups: Vec<&Group> = batch.iter().map(|ready| &ready.group).collect();
        let interrupt = self.interrupt.clone();
        let abandon = || interrupt.signal().is_some();
        self.learner.set_pass_rates(self.run.plane.pass_rates());
        let outcome = self.learner.update(&groups, rates, poison, &abandon);
        self.record.learning_rate = Some(rates.policy);
        let mut passes = None;
        match outcome {
            Ok(TokenOutcome::Applied(applied)) => {
                passes = (!applied.value_only).then_some(applied.passes);
                let spread = spread(&applied);
                self.describe(&batch, &applied);
                self.check_log_probs(&groups)?;
                self.write_samples(&groups)?;
                let traced = self.run.plane.is_traced().then(|| update_statistics(&groups, before));
                for ready in batch {
                    self.note_lag(&ready.group, before);
                    ready.tickets.into_iter().for_each(crate::trajectory::BufferedTicket::consume);
                }
                self.run.plane.fold_passes();
                if let Some(spread) = spread {
                    self.run.plane.measured(spread);
                }
                self.publish()?;
                if let Some(statistics) = traced {
                    self.run.plane.trace_update(&UpdateStatistics {
                        learning_seconds: since.elapsed().as_secs_f64(),
                        waiting_seconds: self.waited.as_secs_f64(),
                        ..statistics
                    });
                }
                self.waited = Duration::ZERO;
            }
            Ok(TokenOutcome::Skipped { culprit }) => {
                tracing::warn!("update skipped: {culprit} was not finite; the parameters are unchanged");
                self.record.skipped_non_finite += 1;
                self.drop_batch(batch);
            }
            Ok(TokenOutcome::Abandoned) => {
                // Nothing has changed; the batch is in the checkpoint that follows.
                self.run.set_learner_works(false);
                self.batch = Some(batch);
                self.journal.attempts -= 1;
                return Ok(());
            }
            Err(error) => {
                self.drop_batch(batch);
                return Err(error.into());
            }
        }
        let took = since.elapsed();
        self.run.learner_busy.add(took);
        self.record.update_seconds += took.as_secs_f64();
        self.balance(answers, took, passes);
        self.kill_if(FaultKind::KillAfterUpdate);
        Ok(())
    }

    fn drop_batch(&mut self, batch: Vec<ReadyGroup>) {
        batch.into_iter().for_each(|ready| ready.discard(DropReason::NonFinite));
        self.run.set_learner_works(false);
        self.run.plane.skipped();
    }

    fn stop_condition(&self) -> Option<String> {
        let rewards = &self.journal.rewards;
        let score = rewards.mean().filter(|_| rewards.window_is_full());
        let (tokens, updates) = (self.run.ledger.submitted_steps(), self.learner.version().0);
        let seconds = self.recorder.wall_seconds();
        self.run.config.stop.reached(tokens, updates, seconds, score, rewards.evaluation())
    }
}

/// Standard deviation of the log ratios of the policy to the one that sampled, where the objective has them.
fn spread(applied: &TokenApplied) -> Option<f64> {
    let (first, second) = (applied.figure(Figure::KlK1)?, applied.figure(Figure::KlK2)?);
    let variance = (2.0 * second - first * first).max(0.0);
    Some(variance.sqrt()).filter(|spread| spread.is_finite())
}

/// What a batch is made of, for the run's trace.
fn update_statistics(groups: &[&Group], version: Version) -> UpdateStatistics {
    let members = || groups.iter().flat_map(|group| &group.members);
    let lags = || members().flat_map(|m| m.actions().map(|index| version.lag_of(m.versions[index])));
    let tokens = lags().count() as u64;
    UpdateStatistics {
        version: version.0 + 1,
        groups: groups.len() as u64,
        answers: members().count() as u64,
        tokens,
        old_tokens: lags().filter(|lag| *lag > 0).count() as u64,
        lag_mean: lags().sum::<u64>() as f64 / tokens.max(1) as f64,
        lag_max: lags().max().unwrap_or_default(),
        ..UpdateStatistics::default()
    }
}

impl Role for TokenLearnerRole {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        if self.complete.is_some() {
            return Ok(Turn::Finished);
        }
        if let Some(why) = self.run.plane.fatal() {
            return Err(RoleError::Starved(why));
        }
        if self.is_warming_up() {
            self.warm_up()?;
            self.complete = self.stop_condition();
            return Ok(Turn::Worked);
        }
        if !self.begun {
            self.begin()?;
            // The initial policy may be good enough.
            self.complete = self.stop_condition();
            return Ok(Turn::Worked);
        }
        if !self.fill(patience) {
            // A run may also end while the learner starves.
            self.complete = self.stop_condition();
            return Ok(Turn::Waiting);
        }
        self.update()?;
        if self.batch.is_none() {
            self.evaluate_if_due()?;
            self.report()?;
            self.complete = self.stop_condition();
        }
        Ok(Turn::Worked)
    }
}
