//! The learner's role in a token run: warms up, draws batches of groups, updates, publishes, evaluates, and decides
//! when the run is complete.
//!
//! It is the single consumer of the queue. A group leaves the ledger's buffer only here: consumed by an applied
//! update, or dropped as stale or not finite; a dropped one gives its place back to the schedule. Batches are put in
//! the order of their problems, so that an update does not depend on which of them was finished first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};

use super::checkpoint::{TOKEN_RUN_STATE, TokenRunState, files as own_files};
use super::demonstrations::Demonstrations;
use super::evaluation::{Examinee, TokenEvaluation, evaluate_tokens};
use super::generator::GeneratorSnapshot;
use super::journal::TokenJournal;
use super::plane::{GroupCounts, ReadyGroup};
use super::run::{TokenFigures, TokenRun};
use crate::actors::checkpoint::files;
use crate::actors::faults::{Fault, FaultKind};
use crate::actors::interrupt::Interrupt;
use crate::actors::parameter_bus::Published;
use crate::actors::queue::QueueReceiver;
use crate::actors::recorder::Recorder;
use crate::actors::role::{Learning, Role, RoleError, Turn};
use crate::codec::{self, CheckpointStore};
use crate::generate::Weights;
use crate::learner::LearnerError;
use crate::learner::schedule::Progress;
use crate::learner::token::{Figure, TokenApplied, TokenLearner, TokenOutcome};
use crate::ops::Sampling;
use crate::telemetry::{Sample, SampleWriter, TokenRecord};
use crate::trajectory::{DropReason, Group, Version};

/// Answers of a batch that are written to the samples.
const SAMPLES: usize = 4;

/// What the learner's role is made of.
pub struct TokenLearnerParts {
    /// What is shared with the rest of the run.
    pub run: Arc<TokenRun>,
    /// Parameters and optimiser.
    pub learner: TokenLearner,
    /// Where experience comes from.
    pub queue: QueueReceiver<ReadyGroup>,
    /// Groups of a checkpoint, older than anything in the queue.
    pub carried: VecDeque<ReadyGroup>,
    /// What is remembered of the run.
    pub journal: TokenJournal,
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
    queue: QueueReceiver<ReadyGroup>,
    carried: VecDeque<ReadyGroup>,
    batch: Vec<ReadyGroup>,
    journal: TokenJournal,
    demonstrations: Demonstrations,
    recorder: Recorder<TokenRecord>,
    samples: SampleWriter,
    store: CheckpointStore,
    interrupt: Interrupt,
    /// Published versions that trajectories may be checked under, newest first.
    versions: VecDeque<Arc<Published>>,
    record: TokenRecord,
    seen: GroupCounts,
    seen_generate_seconds: f64,
    seen_grade_seconds: f64,
    last_checkpoint: (Version, Instant),
    complete: Option<String>,
    begun: bool,
}

impl TokenLearnerRole {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: TokenLearnerParts) -> Self {
        let versions = VecDeque::from([parts.run.bus.latest()]);
        let last_checkpoint = (parts.learner.version(), Instant::now());
        Self {
            run: parts.run,
            learner: parts.learner,
            queue: parts.queue,
            carried: parts.carried,
            batch: Vec::new(),
            journal: parts.journal,
            demonstrations: parts.demonstrations,
            recorder: parts.recorder,
            samples: parts.samples,
            store: parts.store,
            interrupt: parts.interrupt,
            versions,
            record: TokenRecord::default(),
            seen: GroupCounts::default(),
            seen_generate_seconds: 0.0,
            seen_grade_seconds: 0.0,
            last_checkpoint,
            complete: None,
            begun: false,
        }
    }

    /// Ends the queue and the records: waiting updates become a last line.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(&mut self) -> Result<(), RoleError> {
        self.run.plane.close();
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
    pub fn journal(&self) -> &TokenJournal {
        &self.journal
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> Version {
        self.learner.version()
    }

    /// One update of the warm-up.
    fn warm_up(&mut self) -> Result<(), RoleError> {
        let since = Instant::now();
        let config = self.run.config.warmup.clone();
        let batch = self.demonstrations.batch(self.journal.warmup, config.batch).map_err(RoleError::Files)?;
        let progress = Progress::new(self.journal.warmup, Some(config.updates));
        // Falls to a tenth, so that the last updates settle.
        let rate = config.learning_rate * (1.0 - 0.9 * progress.fraction());
        match self.learner.imitate(&batch, rate)? {
            TokenOutcome::Applied(applied) => {
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
            }
            self.journal.next_evaluation = self.run.config.evaluation.every_updates.unwrap_or_default();
        }
        self.run.plane.start(self.run.bus.latest());
        Ok(())
    }

    fn published(&self) -> candle_core::Result<Published> {
        Ok(Published {
            version: self.learner.version(),
            parameters: self.learner.parameters().deep_copy(&Device::Cpu)?,
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
        let lead = self.run.plane.lead();
        let keep = if self.run.config.learner.check_every > 0 { lead as usize + 2 } else { 0 };
        self.versions.truncate(keep.saturating_sub(1));
        self.run.bus.publish(self.published().map_err(LearnerError::from)?);
        let latest = self.run.bus.latest();
        if keep > 0 {
            self.versions.push_front(Arc::clone(&latest));
        }
        self.run.plane.published(latest);
        Ok(())
    }

    /// Draws groups until the batch is complete.
    fn fill(&mut self, patience: Duration) -> bool {
        let (prompts, max_lag) = (self.run.config.learner.prompts, self.run.config.learner.max_lag);
        while self.batch.len() < prompts {
            let since = Instant::now();
            let drawn = match self.carried.pop_front() {
                Some(group) => Some((group, Duration::ZERO)),
                None => self.queue.take(patience),
            };
            self.record.starved_seconds += since.elapsed().as_secs_f64();
            let Some((ready, waited)) = drawn else { return false };
            let version = self.learner.version();
            let oldest = ready.group.oldest_version().unwrap_or(version);
            if max_lag.is_some_and(|most| version.lag_of(oldest) > most) {
                ready.discard(DropReason::Stale);
                self.run.plane.discarded(1);
                continue;
            }
            self.run.metrics.queue.wait_seconds.observe(waited.as_secs_f64());
            self.run.metrics.queue.lag_in_flight.observe(ready.queued_at.lag_of(oldest) as f64);
            self.run.metrics.queue.lag_in_queue.observe(version.lag_of(ready.queued_at) as f64);
            *self.record.queue_wait_seconds.get_or_insert_default() += waited.as_secs_f64() / prompts as f64;
            self.batch.push(ready);
        }
        self.batch.sort_by_key(|ready| (ready.group.epoch, ready.group.prompt));
        true
    }

    fn learning_rate(&self) -> f64 {
        let stop = &self.run.config.stop;
        let progress = Progress::furthest([
            Progress::new(self.learner.version().0, stop.updates),
            Progress::new(self.run.ledger.submitted_steps(), stop.tokens),
        ]);
        self.run.config.learner.schedule.at(self.learner.version().0, progress)
    }

    /// Whether a fault of this kind strikes at the update in hand.
    fn fault(&self, kind: FaultKind) -> Option<Duration> {
        let attempt = self.journal.attempts;
        let faults = &self.run.config.faults;
        faults.iter().find(|fault| fault.kind == kind && fault.strikes(attempt)).map(Fault::delay)
    }

    /// Learns from the complete batch.
    fn update(&mut self) -> Result<(), RoleError> {
        let since = Instant::now();
        self.record.queue_depth = Some((self.carried.len() + self.run.queue_depth()) as f64);
        self.journal.attempts += 1;
        if let Some(delay) = self.fault(FaultKind::SlowUpdate) {
            std::thread::sleep(delay);
        }
        let poison = self.fault(FaultKind::NanGradient).is_some();
        let learning_rate = self.learning_rate();
        let batch = std::mem::take(&mut self.batch);
        let before = self.learner.version();
        let groups: Vec<&Group> = batch.iter().map(|ready| &ready.group).collect();
        let interrupt = self.interrupt.clone();
        let abandon = || interrupt.signal().is_some();
        let outcome = self.learner.update(&groups, learning_rate, poison, &abandon);
        self.record.learning_rate = Some(learning_rate);
        match outcome {
            Ok(TokenOutcome::Applied(applied)) => {
                self.describe(&groups, &applied);
                self.check_log_probs(&groups)?;
                self.write_samples(&groups)?;
                for ready in batch {
                    self.note_lag(&ready.group, before);
                    ready.tickets.into_iter().for_each(crate::trajectory::BufferedTicket::consume);
                }
                self.publish()?;
            }
            Ok(TokenOutcome::Skipped { culprit }) => {
                tracing::warn!("update skipped: {culprit} was not finite; the parameters are unchanged");
                self.record.skipped_non_finite += 1;
                self.drop_batch(batch);
            }
            Ok(TokenOutcome::Abandoned) => {
                // Nothing has changed; the batch is in the checkpoint that follows.
                self.batch = batch;
                self.journal.attempts -= 1;
                return Ok(());
            }
            Err(error) => {
                self.drop_batch(batch);
                return Err(error.into());
            }
        }
        self.run.learner_busy.add(since.elapsed());
        self.record.update_seconds += since.elapsed().as_secs_f64();
        Ok(())
    }

    fn drop_batch(&mut self, batch: Vec<ReadyGroup>) {
        let groups = batch.len();
        batch.into_iter().for_each(|ready| ready.discard(DropReason::NonFinite));
        self.run.plane.discarded(groups);
    }

    /// What the batch and its update have to tell.
    fn describe(&mut self, groups: &[&Group], applied: &TokenApplied) {
        let members = || groups.iter().flat_map(|group| &group.members);
        let rewards: Vec<f64> = groups.iter().flat_map(|group| group.rewards()).flatten().collect();
        let count = rewards.len().max(1) as f64;
        let mean = rewards.iter().sum::<f64>() / count;
        self.journal.rewarded(mean);
        let record = &mut self.record;
        record.reward_mean = Some(mean);
        record.reward_std =
            Some((rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / count).sqrt());
        record.solved = Some(rewards.iter().filter(|&&reward| reward >= 1.0).count() as f64 / count);
        record.groups = groups.len() as u64;
        record.trajectories = members().count() as u64;
        let all = record.trajectories.max(1) as f64;
        let lengths = || members().map(|member| member.tokens.len());
        record.response_length_mean = Some(lengths().sum::<usize>() as f64 / all);
        record.response_length_max = lengths().max().map(|length| length as u64);
        record.prompt_length_mean =
            Some(members().map(|member| member.prompt.len()).sum::<usize>() as f64 / all);
        let cut =
            members().filter(|member| member.finish.is_some_and(|finish| !finish.is_terminal())).count();
        record.truncated_fraction = Some(cut as f64 / all);
        let turns = |member: &crate::trajectory::Trajectory| {
            member.is_action.chunk_by(|a, b| a == b).filter(|run| run[0]).count()
        };
        record.turns_mean = Some(members().map(turns).sum::<usize>() as f64 / all);
        record.loss = Some(applied.loss);
        record.policy_loss = Some(applied.policy_loss);
        record.value_loss = applied.value_loss;
        record.reference_kl = (applied.reference_kl != 0.0).then_some(applied.reference_kl);
        record.entropy = applied.entropy;
        record.approx_kl = applied.figure(Figure::KlK3);
        record.gradient_norm = Some(applied.gradient_norm);
        record.ratio_mean = applied.figure(Figure::RatioMean);
        record.ratio_max = applied.ratio_max;
        record.clip_fraction_low = applied.figure(Figure::ClipFracLow);
        record.clip_fraction_high = applied.figure(Figure::ClipFracHigh);
        record.masked_fraction = applied.figure(Figure::MaskedFrac);
        record.explained_variance = applied.explained_variance;
        record.advantage_mean = applied.advantage_mean;
        record.advantage_std = applied.advantage_deviation;
    }

    fn note_lag(&mut self, group: &Group, version: Version) {
        for member in &group.members {
            for index in member.actions() {
                let lag = version.lag_of(member.versions[index]);
                self.journal.consumed(lag, 1);
                self.record.add_lag(lag, 1);
            }
        }
    }

    /// Recomputes one group now and then under the versions that sampled it.
    fn check_log_probs(&mut self, groups: &[&Group]) -> Result<(), RoleError> {
        let every = self.run.config.learner.check_every;
        if every == 0 || !self.journal.attempts.is_multiple_of(every) {
            return Ok(());
        }
        let versions = &self.versions;
        let kept = |version: Version| {
            versions.iter().find(|published| published.version == version).map(|p| p.parameters.clone())
        };
        let Some(group) = groups.first() else { return Ok(()) };
        let found = self.learner.log_prob_differences(group, kept)?;
        self.record.log_prob_difference = found.same_version;
        self.record.kept_kv_log_prob_difference = found.mixed_versions;
        Ok(())
    }

    fn write_samples(&mut self, groups: &[&Group]) -> Result<(), RoleError> {
        let tokenizer = &self.run.tokenizer;
        for group in groups.iter().take(SAMPLES) {
            let Some(member) = group.members.first() else { continue };
            let sample = Sample {
                update: self.learner.version().0,
                split: Some("train".into()),
                prompt: tokenizer.decode(&member.prompt),
                completion: tokenizer.decode(&member.tokens),
                reward: member.reward.as_ref().map(|reward| reward.value),
                answer: self
                    .run
                    .task
                    .problem(crate::env::task::Split::Train, group.prompt)
                    .ok()
                    .map(|p| p.answer),
                finish: member.finish,
                tokens: member.tokens.len() as u64,
            };
            self.samples.write(&sample).map_err(|error| RoleError::Files(error.to_string()))?;
        }
        Ok(())
    }

    /// Who is examined in this run.
    #[must_use]
    pub fn examinee(run: &TokenRun) -> Examinee {
        Examinee {
            task: Arc::clone(&run.task),
            tokenizer: Arc::clone(&run.tokenizer),
            decoder: Arc::clone(&run.decoder),
            stops: Arc::clone(&run.stops),
            engine: run.config.generate.engine.clone(),
            max_new_tokens: run.config.generate.max_new_tokens,
            seed: run.config.seed,
        }
    }

    /// Evaluates a published version on this thread; `None` when the run is asked to end meanwhile.
    ///
    /// # Errors
    /// When generation fails.
    pub fn evaluate(&mut self, problems: usize) -> Result<Option<TokenEvaluation>, RoleError> {
        let latest = self.run.bus.latest();
        let weights = Weights::new(Arc::new(latest.parameters.clone()), latest.version);
        let sampling =
            Sampling { temperature: self.run.config.evaluation.temperature, ..Sampling::default() };
        let examinee = Self::examinee(&self.run);
        let interrupt = self.interrupt.clone();
        let result = self.learner.with_threads(|| {
            evaluate_tokens(&examinee, weights, problems, &sampling, &|| interrupt.signal().is_none())
        });
        let Some(evaluation) = result.map_err(RoleError::Evaluation)? else { return Ok(None) };
        for answer in evaluation.answers.iter().take(SAMPLES) {
            let sample = Sample {
                update: latest.version.0,
                split: Some("evaluation".into()),
                prompt: answer.prompt.clone(),
                completion: answer.answer.clone(),
                reward: answer.reward,
                answer: Some(answer.reference.clone()),
                finish: answer.finish,
                tokens: answer.tokens as u64,
            };
            self.samples.write(&sample).map_err(|error| RoleError::Files(error.to_string()))?;
        }
        Ok(Some(evaluation))
    }

    fn evaluate_now(&mut self) -> Result<(), RoleError> {
        let evaluation = self.evaluate(self.run.config.evaluation.problems)?;
        if let Some(evaluation) = evaluation.filter(|evaluation| evaluation.graded() > 0) {
            self.journal.evaluated(evaluation.mean());
            self.record.eval_mean = Some(evaluation.mean());
        }
        Ok(())
    }

    /// Starts an evaluation when one is due.
    fn evaluate_if_due(&mut self) -> Result<(), RoleError> {
        let version = self.learner.version().0;
        if let Some(every) = self.run.config.evaluation.every_updates
            && version >= self.journal.next_evaluation
        {
            self.journal.next_evaluation = version - version % every.max(1) + every.max(1);
            self.evaluate_now()?;
        }
        Ok(())
    }

    fn stop_condition(&self) -> Option<String> {
        let stop = &self.run.config.stop;
        let tokens = self.run.ledger.submitted_steps();
        let reached =
            |name: &str, limit: &dyn std::fmt::Display| Some(format!("reached stop.{name} = {limit}"));
        match stop {
            _ if stop.tokens.is_some_and(|limit| tokens >= limit) => reached("tokens", &stop.tokens?),
            _ if stop.updates.is_some_and(|limit| self.learner.version().0 >= limit) => {
                reached("updates", &stop.updates?)
            }
            _ if stop.seconds.is_some_and(|limit| self.recorder.wall_seconds() >= limit) => {
                reached("seconds", &stop.seconds?)
            }
            _ if stop.target_reward.is_some_and(|target| {
                self.journal.window_is_full() && self.journal.reward_mean() >= Some(target)
            }) =>
            {
                reached("target_reward", &stop.target_reward?)
            }
            _ => None,
        }
    }

    fn report(&mut self) -> Result<(), RoleError> {
        let counts = self.run.plane.counts();
        let mut record = std::mem::take(&mut self.record);
        record.update = self.learner.version().0;
        record.tokens = self.run.ledger.submitted_steps();
        record.zero_variance_groups = counts.zero_variance - self.seen.zero_variance;
        record.grading_errors = counts.grading_errors - self.seen.grading_errors;
        self.seen = counts;
        let (generate, grade) = (self.run.generator_busy.total().as_secs_f64(), self.run.grading.seconds());
        record.generate_seconds = generate - std::mem::replace(&mut self.seen_generate_seconds, generate);
        record.grade_seconds = grade - std::mem::replace(&mut self.seen_grade_seconds, grade);
        self.run.set_figures(TokenFigures {
            version: self.learner.version(),
            warmup_loss: record.warmup_loss,
            solved: record.solved,
            response_length_mean: record.response_length_mean,
            reward_mean: self.journal.reward_mean(),
            eval_mean: self.journal.eval_mean,
            lag_mean: record.lag_mean,
        });
        record.wall_seconds = self.recorder.wall_seconds();
        self.run.metrics.record_update(&record);
        self.recorder.record(record).map_err(|error| RoleError::Files(error.to_string()))
    }
}

impl Learning for TokenLearnerRole {
    type Snapshot = GeneratorSnapshot;

    fn save(&mut self, snapshots: Vec<Option<GeneratorSnapshot>>) -> Result<(), RoleError> {
        let version = self.learner.version();
        let failed =
            |error: &dyn std::fmt::Display| RoleError::Files(format!("checkpoint {version}: {error}"));
        let standing = self.queue.drain();
        let waiting: Vec<Group> = self
            .batch
            .iter()
            .chain(&self.carried)
            .chain(&standing)
            .map(|ready| ready.group.clone())
            .collect();
        // Back where it stood, so that a checkpoint makes no room in the queue.
        let displaced = standing.into_iter().filter_map(|ready| self.run.put_back(ready));
        self.carried.extend(displaced);
        let begun: Vec<_> = snapshots
            .iter()
            .flatten()
            .flat_map(|snapshot| snapshot.begun.iter().map(|(trajectory, _)| trajectory.clone()))
            .collect();
        let (plane, ordered) = self.run.plane.snapshot(&begun);
        let older = self.run.plane.older_versions();
        let state = TokenRunState {
            older_versions: older.iter().map(|published| published.version).collect(),
            learner: self.learner.state().clone(),
            journal: self.journal.clone(),
            metrics: self.recorder.position().map_err(|e| failed(&e))?,
            samples: self.samples.position().map_err(|e| failed(&e))?,
            ledger: self.run.ledger.snapshot(),
            plane,
            ordered,
            generators: snapshots,
            queue: waiting,
        };
        let tensors = |named: &[(String, Tensor)]| {
            codec::tensors_to_bytes(named, &BTreeMap::new()).map_err(|e| failed(&e))
        };
        let detached = |parameters: &crate::policy::Parameters| -> Vec<(String, Tensor)> {
            parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.detach())).collect()
        };
        let optimizer = self.learner.optimizer().state().map_err(LearnerError::from)?;
        let mut contents = vec![
            (files::STATE.to_owned(), codec::encode(TOKEN_RUN_STATE, &state).map_err(|e| failed(&e))?),
            (files::PARAMETERS.to_owned(), tensors(&detached(self.learner.parameters()))?),
            (files::OPTIMIZER.to_owned(), tensors(&optimizer)?),
        ];
        if let Some(reference) = self.learner.reference() {
            contents.push((own_files::REFERENCE.to_owned(), tensors(&detached(reference))?));
        }
        for published in &older {
            let name = own_files::older(published.version);
            contents.push((name, tensors(&detached(&published.parameters))?));
        }
        let best = self.run.config.checkpoint.best && self.journal.is_best();
        self.store.save(version.0, &contents, best).map_err(|e| failed(&e))?;
        self.last_checkpoint = (version, Instant::now());
        Ok(())
    }

    fn checkpoint_due(&self) -> bool {
        let (version, instant) = self.last_checkpoint;
        let updates = self.learner.version().lag_of(version);
        self.run.config.checkpoint.is_due(updates, instant.elapsed().as_secs_f64())
    }

    fn complete(&self) -> Option<&str> {
        self.complete.as_deref()
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
        if !self.journal.started && self.journal.warmup < self.run.config.warmup.updates {
            self.warm_up()?;
            self.complete = self.stop_condition();
            return Ok(Turn::Worked);
        }
        if !self.begun {
            self.begin()?;
            return Ok(Turn::Worked);
        }
        if !self.fill(patience) {
            // A run may also end while the learner starves.
            self.complete = self.stop_condition();
            return Ok(Turn::Waiting);
        }
        self.update()?;
        if self.batch.is_empty() {
            self.evaluate_if_due()?;
            self.report()?;
            self.complete = self.stop_condition();
        }
        Ok(Turn::Worked)
    }
}
