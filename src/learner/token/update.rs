//! The token learner: parameters, optimiser state, and the step from a batch of groups to the next version.
//!
//! A step, in this order: rewards after rubric and shaping; log-probabilities of teachers and of the reference policy
//! where something needs them; values; advantages; log-probabilities at the start of the step where the objective
//! anchors on them; then for each pass and minibatch its micro-batches forward and backward, and one optimiser step; then
//! the reference, where it is due to change. A critic on the policy's layers learns in the same optimiser steps. One with
//! a trunk of its own ([`Critic`]) has steps of its own: before the policy's, with values and advantages made anew in
//! between, or after them (`learner.critic.order`); while it warms up, it alone learns.
//!
//! Invariants: a version counts batches, not minibatches; denominators are those of the whole minibatch, so that
//! micro-batches add up; a loss or gradient that is not finite never reaches the parameters (the update is skipped and
//! the version stays); everything that the next update depends on is in [`TokenLearnerState`], the parameters, the
//! reference, the critic and the optimisers' tensors.

mod bounds;
mod check;
mod minibatch;
mod prepare;
mod reference;
mod roundings;
mod routing;
mod state;
mod teachers;
mod values;

use std::sync::Arc;

use candle_core::{Tensor, Var};
use rayon::ThreadPool;

pub use check::LogProbDifferences;
pub(super) use prepare::estimate;
use roundings::Roundings;
pub use state::{LearningRates, TokenLearnerState};
pub use teachers::Teacher;

use super::Needs;
use super::advantage::{PassRates, RewardBaseline, TokenAdvantageConfig};
use super::applied::{Tally, TokenApplied};
use super::critic::Critic;
use super::flat::{Flat, LossMask};
use super::group_rewards::{GroupRewards, RewardFigures};
use super::reference_kl::mean_divergence;
use super::settings::TokenLearnerConfig;
use crate::learner::LearnerError;
use crate::learner::optimizer::{Optimizer, OptimizerError, StepReport};
use crate::ops::with_threads;
use crate::policy::{
    BlockNorms, Decoder, Gradients, NamePatterns, Packing, Parameters, ScoreGradients, Scores, TrainingPass,
};
use crate::random::{Stream, draw};
use crate::trajectory::{Group, Version};

/// Skipped updates in a row that end the run.
const MOST_SKIPS: u32 = 3;

/// Last counter of the draws that order the minibatches of the policy's updates.
const POLICY_ORDER: u32 = 1;

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

/// See the module's documentation.
pub struct TokenLearner {
    config: TokenLearnerConfig,
    seed: u64,
    decoder: Arc<Decoder>,
    temperature: f64,
    threads: Arc<ThreadPool>,
    /// What the optimiser updates, in f32.
    variables: Vec<(String, Var)>,
    /// What is computed with, and published: the variables themselves, or their roundings.
    parameters: Parameters,
    roundings: Roundings,
    gradients: Gradients,
    optimizer: Optimizer,
    reference: Option<Parameters>,
    /// Those of `config.teachers`, in their order.
    teachers: Vec<Teacher>,
    /// With a trunk of its own.
    critic: Option<Critic>,
    state: TokenLearnerState,
}

/// An update that stopped on the way.
#[derive(Debug)]
pub(super) enum Stopped {
    /// What was not finite.
    NotFinite(String),
    /// Somebody asked for the end.
    Abandoned,
}

pub(super) type Attempt<T> = Result<Result<T, Stopped>, LearnerError>;

impl TokenLearner {
    /// A learner at version 0, or, with `state`, at a later one whose optimiser state is loaded next. `frozen` names
    /// what is not trained; `temperature` is that of sampling.
    ///
    /// # Errors
    /// When a setting is out of range or memory is short.
    pub fn new(
        mut config: TokenLearnerConfig,
        seed: u64,
        decoder: Arc<Decoder>,
        parameters: &Parameters,
        frozen: &NamePatterns,
        temperature: f64,
        mut state: TokenLearnerState,
    ) -> Result<Self, LearnerError> {
        let (variables, parameters) =
            parameters.to_variables_where(|name| decoder.is_trained(name, frozen))?;
        let (parameters, roundings) = Roundings::of(&variables, parameters, decoder.dtype())?;
        let gradients = Gradients::new(&parameters)?;
        let optimizer = Optimizer::new(&config.optimizer, variables.clone())?;
        let name = |i| format!("learner {i}");
        let threads = rayon::ThreadPoolBuilder::new().num_threads(config.threads).thread_name(name).build();
        let threads = Arc::new(threads.map_err(LearnerError::Threads)?);
        if let (TokenAdvantageConfig::Reinforce(settings), None) = (&config.advantage, &state.baseline) {
            state.baseline = Some(RewardBaseline::new(settings.baseline)?);
        }
        bounds::begin(&mut config.loss.objective, &mut state);
        let mut learner = Self {
            config,
            seed,
            decoder,
            temperature,
            threads,
            variables,
            parameters,
            roundings,
            gradients,
            optimizer,
            reference: None,
            teachers: Vec::new(),
            critic: None,
            state,
        };
        learner.take_coefficient();
        Ok(learner)
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

    /// The pass rates that the next update goes by.
    pub fn set_pass_rates(&mut self, rates: PassRates) {
        self.state.pass_rates = rates;
    }

    /// The parameters as they are computed with: they share their storage with the variables that are updated, or are
    /// those rounded to the decoder's float type.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The parameters that are trained, as the optimiser has them: what a checkpoint holds. They share its storage.
    #[must_use]
    pub fn trained(&self) -> Vec<(String, Tensor)> {
        let detached = |(name, variable): &(String, Var)| (name.clone(), variable.as_detached_tensor());
        self.variables.iter().map(detached).collect()
    }

    /// Of parameters of this architecture, those that are trained here: what differs between versions.
    #[must_use]
    pub fn trained_of(&self, parameters: &Parameters) -> Vec<(String, Tensor)> {
        let trained = |name: &str| self.variables.iter().any(|(variable, _)| variable == name);
        let kept = parameters.iter().filter(|(name, _)| trained(name));
        kept.map(|(name, tensor)| (name.to_owned(), tensor.detach())).collect()
    }

    /// Of the parameters, those that no update changes.
    #[must_use]
    pub fn frozen(&self) -> Vec<(String, Tensor)> {
        let frozen = self.parameters.iter().filter(|(_, tensor)| !tensor.is_variable());
        frozen.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect()
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

    /// Passes over each batch from now on; at least one is made.
    pub fn set_epochs(&mut self, epochs: usize) {
        self.config.epochs = epochs.max(1);
    }

    /// Runs something on the learner's threads.
    pub fn with_threads<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        with_threads(&self.threads, work)
    }

    /// Reinforcement learning begins: the parameters as they are become the reference policy if something needs one, and
    /// what a critic with a trunk of its own begins as if it was given nothing; the optimiser forgets a warm-up.
    ///
    /// # Errors
    /// When memory is short.
    pub fn begin(&mut self) -> Result<(), LearnerError> {
        if self.config.needs_reference() {
            self.reference = Some(self.parameters.snapshot()?);
            self.state.reference_version = Some(self.state.version);
        }
        self.optimizer = Optimizer::new(&self.config.optimizer, self.variables.clone())?;
        self.begin_critic()
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
            Ok(self.descend(&mut tally, learning_rate, false)?.map(|()| tally))
        })?;
        match outcome {
            Ok(tally) => Ok(TokenOutcome::Applied(Box::new(tally.applied()))),
            Err(stopped) => self.stopped(stopped),
        }
    }

    /// Learns from a batch of groups, at one learning rate or at two of them. `poison` makes the gradient not a number, for
    /// tests of that fault; when `abandon` says so, the update stops between two micro-batches before its first
    /// optimiser step and nothing has changed. While a critic warms up, the version that follows has the same policy.
    ///
    /// # Errors
    /// When a computation fails or too many updates in a row had to be skipped.
    pub fn update(
        &mut self,
        groups: &[&Group],
        rates: impl Into<LearningRates>,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<TokenOutcome, LearnerError> {
        let (threads, rates) = (Arc::clone(&self.threads), rates.into());
        let outcome = with_threads(&threads, || self.attempt(groups, rates, poison, abandon))?;
        match outcome {
            Ok(mut tally) => {
                self.control_bounds(&tally);
                let reference = if tally.value_only { None } else { self.next_reference()? };
                tally.passes = self.config.epochs as u64;
                tally.kl_coefficient = self.state.kl_coefficient;
                tally.reference_version = self.state.reference_version;
                self.state.version = self.state.version.next();
                self.state.value_only += u64::from(tally.value_only);
                self.state.skips_in_a_row = 0;
                if !tally.value_only {
                    self.control(tally.divergence);
                }
                if let Some(reference) = reference {
                    self.reference = Some(reference);
                    self.state.reference_version = Some(self.state.version);
                }
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
        rates: LearningRates,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Attempt<Tally> {
        self.begin_critic()?;
        let mut flat = Flat::new(groups, LossMask::new(&self.config, self.state.version));
        let rewards = self.group_rewards(groups)?;
        flat.rewards = rewards.iter().flat_map(GroupRewards::rewards).collect();
        let mut figures = RewardFigures::default();
        rewards.iter().for_each(|rewards| figures.add(rewards));
        let baseline = self.state.baseline;
        if !self.prepare(groups, &rewards, &mut flat, &mut figures, abandon)? {
            self.state.baseline = baseline;
            return Ok(Err(Stopped::Abandoned));
        }
        let (mut tally, steps) = (Tally::of_batch(&flat, figures), self.optimizer.updates());
        if !flat.reference.is_empty() {
            let estimator = self.config.loss.reference_kl().estimator;
            tally.divergence = mean_divergence(estimator, &flat.shape(), &flat.behaviour, &flat.reference)?;
        }
        let outcome = self.learn(groups, &rewards, &mut flat, rates, poison, abandon, &mut tally)?;
        if outcome.is_err() && self.optimizer.updates() == steps {
            self.state.baseline = baseline;
        }
        Ok(outcome.map(|()| tally))
    }

    /// The steps of the policy's optimiser; abandoned before the first of them or not at all.
    fn policy_steps(
        &mut self,
        groups: &[&Group],
        flat: &Flat,
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
        tally: &mut Tally,
    ) -> Attempt<()> {
        let (epochs, parts) = (self.config.epochs, self.config.minibatches.min(groups.len()));
        tally.bounds = self.state.bounds;
        tally.expert_disagreement = self.expert_disagreement(groups, flat)?;
        for epoch in 0..epochs {
            tally.leave_out(&flat.left_out);
            let order = self.order(groups.len(), parts, epoch as u32, POLICY_ORDER);
            for (index, part) in order.iter().enumerate() {
                // After the first step there is no way back.
                let first = epoch == 0 && index == 0;
                tally.unmoved = first.then_some(self.state.version);
                let abandon: &(dyn Fn() -> bool + Sync) = if first { abandon } else { &|| false };
                let outcome = self.minibatch(groups, flat, part, learning_rate, poison, abandon, tally)?;
                if let Err(stopped) = outcome {
                    return Ok(Err(stopped));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The groups of each minibatch of a pass; `whose` tells the draws of policy and critic apart.
    fn order(&self, groups: usize, parts: usize, epoch: u32, whose: u32) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..groups).collect();
        if parts > 1 {
            let key = |group: &usize| {
                draw(self.seed, Stream::Minibatch, [self.state.version.0 as u32, epoch, *group as u32, whose])
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

    /// One optimiser step with what the micro-batches added up to.
    fn descend(&mut self, tally: &mut Tally, learning_rate: f64, poison: bool) -> Attempt<()> {
        let (loss, most) = (tally.loss, self.config.clip_norm);
        let outcome = descend(&mut self.optimizer, &self.gradients, loss, learning_rate, most, poison)?;
        self.roundings.renew()?;
        Ok(outcome.map(|step| {
            tally.block_norms = BlockNorms::new(self.optimizer.names().zip(step.squares));
            tally.gradient_norm = step.gradient_norm;
        }))
    }
}

/// One optimiser step with gradients that were summed up; tells their norms before clipping to `most`. A loss or gradient
/// that is not finite changes nothing.
pub(super) fn descend(
    optimizer: &mut Optimizer,
    gradients: &Gradients,
    loss: f64,
    learning_rate: f64,
    most: Option<f64>,
    poison: bool,
) -> Attempt<StepReport> {
    if !loss.is_finite() {
        return Ok(Err(Stopped::NotFinite("the loss".into())));
    }
    let mut gradients = gradients.tensors()?;
    if let (true, Some(first)) = (poison, gradients.first_mut()) {
        *first = first.affine(f64::NAN, 0.0)?;
    }
    match optimizer.step_with(&gradients, learning_rate, most.unwrap_or(f64::INFINITY)) {
        Ok(report) => Ok(Ok(report)),
        Err(OptimizerError::NonFiniteGradient { name }) => {
            Ok(Err(Stopped::NotFinite(format!("the gradient of {name}"))))
        }
        Err(error) => Err(error.into()),
    }
}
