//! The token learner: parameters, optimiser state, and the step from a batch of groups to the next version.
//!
//! A step, in this order: log-probabilities of the reference policy and values of the critic where something needs
//! them; advantages; log-probabilities at the start of the step where the objective anchors on them; then for each
//! pass and minibatch its micro-batches forward and backward, and one optimiser step.
//!
//! Invariants: a version counts batches, not minibatches; denominators are those of the whole minibatch, so that
//! micro-batches add up; a loss or gradient that is not finite never reaches the parameters (the update is skipped and
//! the version stays); everything that the next update depends on is in [`TokenLearnerState`], the parameters, the
//! reference and the optimiser's tensors.

use std::sync::Arc;

use candle_core::{Device, Var};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::advantage::{RewardBaseline, TokenAdvantageConfig};
use super::applied::{Tally, TokenApplied};
use super::flat::Flat;
use super::settings::TokenLearnerConfig;
use super::{
    Aggregation, Denominators, Needs, TokenValueClip, reference_kl_rewards, token_loss, token_value_loss,
};
use crate::learner::LearnerError;
use crate::learner::advantage::{TokenRow, skip_observation_gae};
use crate::learner::optimizer::{Optimizer, OptimizerError};
use crate::ops::with_threads;
use crate::policy::{Decoder, Gradients, Pack, Packing, Parameters, ScoreGradients, Scores, TrainingPass};
use crate::random::{Stream, draw};
use crate::trajectory::{Group, Version};

/// Skipped updates in a row that end the run.
const MOST_SKIPS: u32 = 3;

/// What an update came to.
#[derive(Debug)]
pub enum TokenOutcome {
    /// There is a new version.
    Applied(Box<TokenApplied>),
    /// The parameters are unchanged.
    Skipped {
        /// The loss, or the parameter whose gradient was not finite.
        culprit: String,
    },
    /// Somebody asked for the end meanwhile; nothing has changed.
    Abandoned,
}

/// The part of the learner that is neither parameters nor optimiser tensors.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenLearnerState {
    /// Completed updates.
    pub version: Version,
    /// Updates skipped since the last applied one.
    pub skips_in_a_row: u32,
    /// A baseline across problems, where the advantage has one.
    pub baseline: Option<RewardBaseline>,
}

/// How far recorded log-probabilities are from those that are computed anew (nats, the greatest of a group).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogProbDifferences {
    /// Of tokens whose whole past was sampled or read under their own version.
    pub same_version: Option<f64>,
    /// Of tokens that follow tokens of an older version.
    pub mixed_versions: Option<f64>,
}

/// See the module's documentation.
pub struct TokenLearner {
    config: TokenLearnerConfig,
    seed: u64,
    decoder: Arc<Decoder>,
    temperature: f64,
    threads: Arc<ThreadPool>,
    variables: Vec<(String, Var)>,
    parameters: Parameters,
    gradients: Gradients,
    optimizer: Optimizer,
    reference: Option<Parameters>,
    state: TokenLearnerState,
}

/// An update that stopped on the way.
enum Stopped {
    NotFinite(String),
    Abandoned,
}

type Attempt<T> = Result<Result<T, Stopped>, LearnerError>;

impl TokenLearner {
    /// A learner at version 0, or, with `state`, at a later one whose optimiser state is loaded next. `temperature` is
    /// that of sampling.
    ///
    /// # Errors
    /// When a setting is out of range or memory is short.
    pub fn new(
        config: TokenLearnerConfig,
        seed: u64,
        decoder: Arc<Decoder>,
        parameters: &Parameters,
        temperature: f64,
        mut state: TokenLearnerState,
    ) -> Result<Self, LearnerError> {
        let (variables, parameters) = parameters.to_variables()?;
        let gradients = Gradients::new(&parameters)?;
        let optimizer = Optimizer::new(&config.optimizer, variables.clone())?;
        let name = |i| format!("learner {i}");
        let threads = rayon::ThreadPoolBuilder::new().num_threads(config.threads).thread_name(name).build();
        let threads = Arc::new(threads.map_err(LearnerError::Threads)?);
        if let (TokenAdvantageConfig::Reinforce(settings), None) = (&config.advantage, &state.baseline) {
            state.baseline = Some(RewardBaseline::new(settings.baseline)?);
        }
        Ok(Self {
            config,
            seed,
            decoder,
            temperature,
            threads,
            variables,
            parameters,
            gradients,
            optimizer,
            reference: None,
            state,
        })
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> Version {
        self.state.version
    }

    /// What a checkpoint keeps beside the tensors.
    #[must_use]
    pub fn state(&self) -> &TokenLearnerState {
        &self.state
    }

    /// The parameters, which share their storage with the variables that are updated.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The reference policy, where there is one.
    #[must_use]
    pub fn reference(&self) -> Option<&Parameters> {
        self.reference.as_ref()
    }

    /// Puts a reference policy in place of the one there is.
    pub fn set_reference(&mut self, reference: Parameters) {
        self.reference = Some(reference);
    }

    /// The optimiser, to save or load its state.
    pub fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    /// Runs something on the learner's threads.
    pub fn with_threads<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        with_threads(&self.threads, work)
    }

    /// Reinforcement learning begins: the parameters as they are become the reference policy if something needs one,
    /// and the optimiser forgets a warm-up.
    ///
    /// # Errors
    /// When memory is short.
    pub fn begin(&mut self) -> Result<(), LearnerError> {
        if self.needs().reference || self.config.reward_kl > 0.0 {
            self.reference = Some(self.parameters.deep_copy(&Device::Cpu)?);
        }
        self.optimizer = Optimizer::new(&self.config.optimizer, self.variables.clone())?;
        Ok(())
    }

    fn needs(&self) -> Needs {
        self.config.loss.needs()
    }

    fn packing(&self) -> Packing {
        let experts_per_row = if self.config.replay_experts { self.decoder.experts_per_row() } else { 0 };
        Packing { rows: self.config.microbatch_tokens, experts_per_row }
    }

    fn pass(&self) -> TrainingPass<'_> {
        TrainingPass {
            decoder: &self.decoder,
            temperature: self.temperature,
            checkpointing: self.config.checkpointing,
        }
    }

    /// One supervised update: raises the log-probability of every answer token of `groups`.
    ///
    /// # Errors
    /// When a computation fails or too many updates in a row had to be skipped.
    pub fn imitate(&mut self, groups: &[Group], learning_rate: f64) -> Result<TokenOutcome, LearnerError> {
        let threads = Arc::clone(&self.threads);
        let outcome = with_threads(&threads, || -> Attempt<Tally> {
            let packs = Packing { experts_per_row: 0, ..self.packing() }.pack(groups)?;
            let tokens: usize = packs.iter().map(|pack| pack.places.len()).sum();
            let weight = -1.0 / tokens.max(1) as f32;
            self.gradients.clear();
            let mut tally = Tally::default();
            // Imitation is of the plain distribution, whatever the sampling temperature.
            let pass = TrainingPass { temperature: 1.0, ..self.pass() };
            for pack in &packs {
                let gradient = |scores: &Scores| -> Result<ScoreGradients, LearnerError> {
                    let log_probs = vec![weight; scores.log_probs.len()];
                    Ok(ScoreGradients { log_probs, ..ScoreGradients::default() })
                };
                let scores = pass.accumulate(&self.parameters, pack, &self.gradients, gradient)?;
                let sum: f64 = scores.log_probs.iter().map(|&log_prob| f64::from(log_prob)).sum();
                tally.loss += f64::from(weight) * sum;
            }
            self.descend(&mut tally, learning_rate, false)
        })?;
        match outcome {
            Ok(tally) => Ok(TokenOutcome::Applied(Box::new(tally.applied()))),
            Err(stopped) => self.stopped(stopped),
        }
    }

    /// Learns from a batch of groups. `poison` makes the gradient not a number, for tests of that fault; when `abandon`
    /// says so, the update stops between two micro-batches of its first minibatch and nothing has changed.
    ///
    /// # Errors
    /// When a computation fails or too many updates in a row had to be skipped.
    pub fn update(
        &mut self,
        groups: &[&Group],
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<TokenOutcome, LearnerError> {
        let threads = Arc::clone(&self.threads);
        let outcome = with_threads(&threads, || self.attempt(groups, learning_rate, poison, abandon))?;
        match outcome {
            Ok(tally) => {
                self.state.version = self.state.version.next();
                self.state.skips_in_a_row = 0;
                Ok(TokenOutcome::Applied(Box::new(tally.applied())))
            }
            Err(stopped) => self.stopped(stopped),
        }
    }

    fn stopped(&mut self, stopped: Stopped) -> Result<TokenOutcome, LearnerError> {
        match stopped {
            Stopped::Abandoned => Ok(TokenOutcome::Abandoned),
            Stopped::NotFinite(culprit) => {
                self.state.skips_in_a_row += 1;
                if self.state.skips_in_a_row >= MOST_SKIPS {
                    return Err(LearnerError::NotFinite { culprit, updates: self.state.skips_in_a_row });
                }
                Ok(TokenOutcome::Skipped { culprit })
            }
        }
    }

    fn attempt(
        &mut self,
        groups: &[&Group],
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Attempt<Tally> {
        let mut flat = Flat::new(groups, self.config.mask_truncated);
        let baseline = self.state.baseline;
        if !self.prepare(groups, &mut flat, abandon)? {
            self.state.baseline = baseline;
            return Ok(Err(Stopped::Abandoned));
        }
        let mut tally = Tally::of_batch(&flat);
        let (epochs, parts) = (self.config.epochs, self.config.minibatches.min(groups.len()));
        for epoch in 0..epochs {
            let order = self.order(groups.len(), parts, epoch as u32);
            for (index, part) in order.iter().enumerate() {
                // After the first step there is no way back.
                let first = epoch == 0 && index == 0;
                let may_abandon: &(dyn Fn() -> bool + Sync) = if first { abandon } else { &|| false };
                let outcome =
                    self.minibatch(groups, &flat, part, learning_rate, poison, may_abandon, &mut tally)?;
                if let Err(stopped) = outcome {
                    if first {
                        self.state.baseline = baseline;
                    }
                    return Ok(Err(stopped));
                }
            }
        }
        Ok(Ok(tally))
    }

    /// The groups of each minibatch of a pass.
    fn order(&self, groups: usize, parts: usize, epoch: u32) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..groups).collect();
        if parts > 1 {
            let key = |group: &usize| {
                draw(self.seed, Stream::Minibatch, [self.state.version.0 as u32, epoch, *group as u32, 1])
            };
            order.sort_by_cached_key(key);
        }
        let parts = parts.max(1);
        let bounds = |part: usize| part * groups / parts;
        (0..parts)
            .map(|part| {
                let mut part = order[bounds(part)..bounds(part + 1)].to_vec();
                part.sort_unstable();
                part
            })
            .collect()
    }

    /// Fills in what an objective reads beside the current policy. False when it was abandoned.
    fn prepare(
        &mut self,
        groups: &[&Group],
        flat: &mut Flat,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, LearnerError> {
        let needs = self.needs();
        let packs = self.packing().pack(groups)?;
        let with_reference = needs.reference || self.config.reward_kl > 0.0;
        if let Some(reference) = self.reference.clone().filter(|_| with_reference) {
            let Some(scores) = self.scores(&reference, &packs, abandon)? else { return Ok(false) };
            flat.reference = spread(flat, &packs, &scores, |scores| &scores.log_probs);
        }
        let with_values = self.config.advantage.needs_values();
        let several_steps = self.config.epochs > 1 || self.config.minibatches > 1;
        let with_proximal = needs.proximal && several_steps;
        if with_proximal || with_values {
            let Some(scores) = self.scores(&self.parameters, &packs, abandon)? else { return Ok(false) };
            if with_proximal {
                flat.proximal = spread(flat, &packs, &scores, |scores| &scores.log_probs);
            }
            if with_values {
                flat.values = spread(flat, &packs, &scores, |scores| &scores.values);
            }
        }
        self.advantages(groups, flat)?;
        Ok(true)
    }

    /// Scores of all packs under some parameters; `None` when it was abandoned.
    fn scores(
        &self,
        parameters: &Parameters,
        packs: &[Pack],
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Scores>>, LearnerError> {
        let mut all = Vec::with_capacity(packs.len());
        for pack in packs {
            if abandon() {
                return Ok(None);
            }
            all.push(self.pass().evaluate(parameters, pack)?);
        }
        Ok(Some(all))
    }

    fn advantages(&mut self, groups: &[&Group], flat: &mut Flat) -> Result<(), LearnerError> {
        // What the divergence from the reference costs each token, where it is part of the reward.
        let mut token_rewards = vec![0.0_f32; flat.tokens()];
        if self.config.reward_kl > 0.0 {
            let estimator = self.config.loss.reference_kl().estimator;
            let (shape, sampled) = (flat.shape(), &flat.behaviour);
            token_rewards =
                reference_kl_rewards(self.config.reward_kl, estimator, &shape, sampled, &flat.reference)?;
        }
        let mut rewards = flat.rewards.clone();
        if !self.config.advantage.needs_values() {
            for (reward, row) in rewards.iter_mut().zip(&flat.rows) {
                let cost: f32 = token_rewards[row.clone()].iter().sum();
                *reward = reward.map(|reward| reward + f64::from(cost));
            }
        }
        let of_rows: Vec<f64> = match (&self.config.advantage, &mut self.state.baseline) {
            (TokenAdvantageConfig::SkipObservationGae(settings), _) => {
                let mut targets = Vec::with_capacity(flat.tokens());
                let mut advantages = Vec::with_capacity(flat.tokens());
                let members = groups.iter().flat_map(|group| &group.members);
                for ((row, member), reward) in flat.rows.iter().zip(members).zip(&rewards) {
                    let cut_off = member.finish.is_some_and(|finish| !finish.is_terminal());
                    let last = member.actions().last().map_or(0.0, |last| flat.values[row.start + last]);
                    let found = skip_observation_gae(
                        settings,
                        &TokenRow {
                            token_rewards: &token_rewards[row.clone()],
                            values: &flat.values[row.clone()],
                            action_mask: &flat.mask[row.clone()],
                            terminal_reward: reward.unwrap_or(0.0) as f32,
                            // An answer that was cut off might have gone on: its last value stands for the rest.
                            bootstrap: if cut_off && self.config.critic.bootstrap_truncated {
                                last
                            } else {
                                0.0
                            },
                        },
                    )?;
                    advantages.extend(found.advantages_policy);
                    targets.extend(found.value_targets);
                }
                flat.advantages = advantages;
                flat.value_targets = targets;
                return Ok(());
            }
            (TokenAdvantageConfig::Reinforce(_), Some(baseline)) => baseline.advantages(&rewards),
            (config, _) => {
                let mut first = 0;
                let of_groups = groups.iter().map(|group| {
                    let own = first..first + group.members.len();
                    first = own.end;
                    config.group(&rewards[own]).map(|found| found.advantages).unwrap_or_default()
                });
                of_groups.flatten().collect()
            }
        };
        flat.advantages = vec![0.0; flat.tokens()];
        for (advantage, row) in of_rows.into_iter().zip(&flat.rows) {
            flat.advantages[row.clone()].fill(advantage as f32);
        }
        Ok(())
    }

    fn minibatch(
        &mut self,
        groups: &[&Group],
        flat: &Flat,
        part: &[usize],
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
        tally: &mut Tally,
    ) -> Attempt<()> {
        let own: Vec<&Group> = part.iter().map(|&group| groups[group]).collect();
        let flat = if part.len() == groups.len() { flat.clone() } else { flat.of_groups(part) };
        let packs = self.packing().pack(&own)?;
        let denominators = Denominators::new(&self.config.loss, &flat.shape())?;
        // Both sides of a pair are needed at once, and they may stand in different packs.
        let known = if denominators.pairs().is_empty() {
            None
        } else {
            let Some(scores) = self.scores(&self.parameters, &packs, abandon)? else {
                return Ok(Err(Stopped::Abandoned));
            };
            let log_probs = spread(&flat, &packs, &scores, |scores| &scores.log_probs);
            let entropies = spread(&flat, &packs, &scores, |scores| &scores.entropies);
            let batch = flat.batch(&log_probs, &entropies, self.state.version);
            let loss = token_loss(&self.config.loss, &batch, &denominators)?;
            tally.add(&loss, &flat, &log_probs, &entropies);
            Some(loss)
        };
        let value_weights = match &self.config.critic {
            critic if self.config.advantage.needs_values() => {
                let shape = flat.shape();
                Some((critic.clone(), Denominators::of_all_rows(Aggregation::TokenMean, None, &shape)?))
            }
            _ => None,
        };
        self.gradients.clear();
        for pack in &packs {
            if abandon() {
                return Ok(Err(Stopped::Abandoned));
            }
            let mut rows: Vec<usize> = pack.places.iter().map(|place| flat.row(place)).collect();
            rows.dedup();
            let mut seen = rows.clone();
            seen.sort_unstable();
            seen.dedup();
            debug_assert_eq!(seen.len(), rows.len(), "a trajectory stands in one place of one pack");
            let small = flat.select(&rows);
            let selected = known.is_none().then(|| denominators.select(&rows)).transpose()?;
            // Entry of each predicted token in the part's arrays.
            let starts: std::collections::BTreeMap<usize, usize> =
                rows.iter().zip(&small.rows).map(|(&row, range)| (row, range.start)).collect();
            let entries: Vec<usize> =
                pack.places.iter().map(|place| starts[&flat.row(place)] + place.token).collect();
            let gradient = |scores: &Scores| -> Result<ScoreGradients, LearnerError> {
                let full = |values: &[f32]| {
                    let mut full = vec![0.0; small.tokens()];
                    entries.iter().zip(values).for_each(|(&entry, &value)| full[entry] = value);
                    full
                };
                let gather =
                    |values: &[f32]| entries.iter().map(|&entry| values[entry]).collect::<Vec<f32>>();
                let mut wanted = ScoreGradients::default();
                match (&known, &selected) {
                    (Some(loss), _) => {
                        let places = pack.places.iter();
                        wanted.log_probs =
                            places.map(|place| loss.log_prob_gradient[flat.entry(place)]).collect();
                        if let Some(entropies) = &loss.entropy_gradient {
                            let places = pack.places.iter();
                            wanted.entropies = places.map(|place| entropies[flat.entry(place)]).collect();
                        }
                    }
                    (None, selected) => {
                        let (log_probs, entropies) = (full(&scores.log_probs), full(&scores.entropies));
                        let mut batch = small.batch(&log_probs, &entropies, self.state.version);
                        // In a step of one pass over one minibatch the policy at its start is the current one.
                        batch.proximal = batch.proximal.or(Some(&log_probs));
                        let selected = selected.as_ref().unwrap_or(&denominators);
                        let loss = token_loss(&self.config.loss, &batch, selected)?;
                        tally.add(&loss, &small, &log_probs, &entropies);
                        wanted.log_probs = gather(&loss.log_prob_gradient);
                        if let Some(entropies) = &loss.entropy_gradient {
                            wanted.entropies = gather(entropies);
                        }
                    }
                }
                if let Some((critic, weights)) = &value_weights {
                    let values = full(&scores.values);
                    let clip = critic.clip.map(|range| TokenValueClip { old_values: &small.values, range });
                    let weights = weights.select(&rows)?;
                    let targets = &small.value_targets;
                    let loss = token_value_loss(&small.shape(), &weights, &values, targets, clip)?;
                    tally.value_loss = Some(tally.value_loss.unwrap_or(0.0) + loss.loss);
                    tally.loss += critic.coefficient * loss.loss;
                    let scale = critic.coefficient as f32;
                    wanted.values = gather(&loss.gradient).into_iter().map(|value| scale * value).collect();
                }
                Ok(wanted)
            };
            self.pass().accumulate(&self.parameters, pack, &self.gradients, gradient)?;
        }
        Ok(self.descend(tally, learning_rate, poison)?.map(|_| ()))
    }

    /// One optimiser step with what the micro-batches added up to.
    fn descend(&mut self, tally: &mut Tally, learning_rate: f64, poison: bool) -> Attempt<Tally> {
        if !tally.loss.is_finite() {
            return Ok(Err(Stopped::NotFinite("the loss".into())));
        }
        let mut gradients = self.gradients.tensors()?;
        if let (true, Some(first)) = (poison, gradients.first_mut()) {
            *first = first.affine(f64::NAN, 0.0)?;
        }
        let most = self.config.clip_norm.unwrap_or(f64::INFINITY);
        match self.optimizer.step_with(&gradients, learning_rate, most) {
            Ok(report) => {
                tally.gradient_norm = report.gradient_norm;
                Ok(Ok(tally.clone()))
            }
            Err(OptimizerError::NonFiniteGradient { name }) => {
                Ok(Err(Stopped::NotFinite(format!("the gradient of {name}"))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Recomputes a group under the versions that sampled it, where those are at hand.
    ///
    /// # Errors
    /// When a computation fails.
    pub fn log_prob_differences(
        &self,
        group: &Group,
        kept: impl Fn(Version) -> Option<Parameters>,
    ) -> Result<LogProbDifferences, LearnerError> {
        let mut versions: Vec<Version> = group
            .members
            .iter()
            .flat_map(|member| member.actions().map(|index| member.versions[index]))
            .collect();
        versions.sort_unstable();
        versions.dedup();
        let mut found = LogProbDifferences::default();
        let packs = self.packing().pack(&[group])?;
        for version in versions {
            let Some(parameters) = kept(version) else { continue };
            let scored = with_threads(&self.threads, || self.scores(&parameters, &packs, &|| false))?;
            for (pack, scores) in packs.iter().zip(scored.unwrap_or_default()) {
                for (place, log_prob) in pack.places.iter().zip(&scores.log_probs) {
                    let member = &group.members[place.member];
                    if member.versions[place.token] != version {
                        continue;
                    }
                    let difference = f64::from((log_prob - member.log_probs[place.token]).abs());
                    let mixed = member.versions[..place.token].iter().any(|&before| before != version);
                    let slot = if mixed { &mut found.mixed_versions } else { &mut found.same_version };
                    *slot = Some(slot.unwrap_or(0.0).max(difference));
                }
            }
        }
        Ok(found)
    }
}

/// Scores of packs as one flat array, 0 where nothing is predicted.
fn spread(flat: &Flat, packs: &[Pack], scores: &[Scores], values: impl Fn(&Scores) -> &Vec<f32>) -> Vec<f32> {
    let mut spread = vec![0.0; flat.tokens()];
    for (pack, scores) in packs.iter().zip(scores) {
        for (place, value) in pack.places.iter().zip(values(scores)) {
            spread[flat.entry(place)] = *value;
        }
    }
    spread
}
