//! The learner: parameters, optimiser state, and the step from a batch to the next version.
//!
//! Invariants: a version counts batches, not minibatches; a loss or gradient that is not finite never reaches the
//! parameters (the update is skipped and the version stays); everything that the next update depends on is in
//! [`LearnerState`], the parameters and the optimiser's tensors.

use std::sync::Arc;

use candle_core::{Device, Var};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::advantage::{Boundaries, VtraceInput, gae, n_step_returns, vtrace};
use super::batch::Batch;
use super::config::{ActorCriticConfig, LearnerConfig, ObjectiveConfig, PpoSettings};
use super::error::LearnerError;
use super::objective::{
    ActorCriticBatch, Diagnostics, Evaluation, Loss, PpoBatch, actor_critic_loss, ppo_loss, vtrace_loss,
};
use super::optimizer::{Optimizer, OptimizerError};
use super::reward_scale::RewardScale;
use crate::ops::with_threads;
use crate::policy::{Moments, Normalizer, Parameters, Policy, SequenceOutput};
use crate::random::{Stream, draw};
use crate::trajectory::{Unroll, Version};

/// Skipped updates in a row that end the run.
const MOST_SKIPS: u32 = 3;

/// What an update came to.
#[derive(Debug)]
pub enum Outcome {
    /// There is a new version.
    Applied(Applied),
    /// The parameters are unchanged.
    Skipped {
        /// The loss, or the parameter whose gradient was not finite.
        culprit: String,
    },
}

/// The figures of an applied update; of its last minibatch where there are several.
#[derive(Debug)]
pub struct Applied {
    /// From the objective.
    pub diagnostics: Diagnostics,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
}

/// The part of the learner that is neither parameters nor optimiser tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnerState {
    /// Completed updates.
    pub version: Version,
    /// Updates skipped since the last applied one.
    pub skips_in_a_row: u32,
    /// Statistics of observations, when they are normalised.
    pub observations: Option<Moments>,
    /// Scale of rewards, when they are normalised.
    pub rewards: Option<RewardScale>,
}

/// See the module's documentation.
pub struct Learner {
    config: LearnerConfig,
    seed: u64,
    policy: Arc<Policy>,
    device: Device,
    threads: Arc<ThreadPool>,
    variables: Vec<(String, Var)>,
    parameters: Parameters,
    optimizer: Optimizer,
    state: LearnerState,
}

impl Learner {
    /// A learner at version 0, or, with `state`, at a later one whose optimiser state is loaded next.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(
        config: LearnerConfig,
        seed: u64,
        policy: Arc<Policy>,
        device: Device,
        parameters: &Parameters,
        state: LearnerState,
    ) -> Result<Self, LearnerError> {
        let (variables, parameters) = parameters.to_variables()?;
        let optimizer = Optimizer::new(&config.optimizer, variables.clone())?;
        let name = |i| format!("learner {i}");
        let threads = rayon::ThreadPoolBuilder::new().num_threads(config.threads).thread_name(name).build();
        let threads = Arc::new(threads.map_err(LearnerError::Threads)?);
        Ok(Self { config, seed, policy, device, threads, variables, parameters, optimizer, state })
    }

    /// The state of a learner that has seen nothing.
    #[must_use]
    pub fn initial_state(config: &LearnerConfig, observation_len: Option<usize>) -> LearnerState {
        LearnerState {
            version: Version(0),
            skips_in_a_row: 0,
            observations: observation_len.map(Moments::new),
            rewards: config.normalize_rewards.then(|| RewardScale::new(config.discount)),
        }
    }

    /// Completed updates.
    #[must_use]
    pub fn version(&self) -> Version {
        self.state.version
    }

    /// What a checkpoint keeps beside the tensors.
    #[must_use]
    pub fn state(&self) -> &LearnerState {
        &self.state
    }

    /// The parameters, which share their storage with the variables that are updated.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The optimiser, to save or load its state.
    pub fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    /// The observation statistics as a map.
    #[must_use]
    pub fn normalizer(&self) -> Option<Normalizer> {
        self.state.observations.as_ref().map(Moments::normalizer)
    }

    /// Learns from unrolls of the same length. `poison` makes the gradient not a number, for tests of that fault.
    ///
    /// # Errors
    /// When a computation fails or too many updates in a row had to be skipped.
    pub fn update(
        &mut self,
        unrolls: &[&Unroll],
        learning_rate: f64,
        poison: bool,
    ) -> Result<Outcome, LearnerError> {
        let mut batch = Batch::collate(unrolls);
        if let Some(scale) = &mut self.state.rewards {
            unrolls.iter().for_each(|unroll| scale.observe(unroll));
            let factor = scale.factor();
            batch.rewards.iter_mut().for_each(|reward| *reward *= factor);
        }
        let threads = Arc::clone(&self.threads);
        let outcome = with_threads(&threads, || -> Result<Descent<(Diagnostics, f64)>, LearnerError> {
            if let ObjectiveConfig::Ppo(settings) = self.config.objective.clone() {
                return self.ppo(&settings, &batch, learning_rate, poison);
            }
            let loss = self.single_pass_loss(&batch)?;
            let step = self.descend(&loss, learning_rate, poison)?;
            Ok(step.map(|norm| (loss.diagnostics, norm)))
        })?;
        match outcome {
            Ok((diagnostics, gradient_norm)) => {
                self.state.version = self.state.version.next();
                self.state.skips_in_a_row = 0;
                // After the update, so that the actors' statistics belonged to the version they acted with.
                if let Some(moments) = &mut self.state.observations {
                    moments.add(
                        &batch.observations[..batch.observations.len() / (batch.steps + 1) * batch.steps],
                    );
                }
                Ok(Outcome::Applied(Applied { diagnostics, gradient_norm }))
            }
            Err(culprit) => {
                self.state.skips_in_a_row += 1;
                if self.state.skips_in_a_row >= MOST_SKIPS {
                    return Err(LearnerError::NotFinite { culprit, updates: self.state.skips_in_a_row });
                }
                Ok(Outcome::Skipped { culprit })
            }
        }
    }

    /// Largest absolute difference between the log-probabilities that `unroll` recorded and those that the learner's
    /// code computes with the versions that sampled it; `None` when one of them is no longer at hand.
    ///
    /// # Errors
    /// When a computation fails.
    pub fn log_prob_difference(
        &self,
        unroll: &Unroll,
        published: impl Fn(Version) -> Option<(Parameters, Option<Normalizer>)>,
    ) -> Result<Option<f64>, LearnerError> {
        let batch = Batch::collate(&[unroll]);
        let mut core_state = batch.core_state.clone();
        let mut largest: f64 = 0.0;
        let mut first = 0;
        for segment in unroll.versions.chunk_by(|a, b| a == b) {
            let Some((parameters, normalizer)) = published(segment[0]) else { return Ok(None) };
            let rows = first..first + segment.len();
            let part = batch.select_rows(rows.clone(), core_state);
            let output =
                self.policy.evaluate(&parameters, normalizer.as_ref(), part.input(), &Device::Cpu)?;
            let (log_probs, _) = self.policy.distribution().evaluate(
                &output.distribution,
                &part.action_masks,
                &part.actions,
            )?;
            for (ours, theirs) in log_probs.to_vec1::<f32>()?.iter().zip(&part.behaviour_log_probs) {
                largest = largest.max(f64::from((ours - theirs).abs()));
            }
            core_state = match &output.states {
                Some(states) => states.get(segment.len() - 1)?.flatten_all()?.to_vec1()?,
                None => Vec::new(),
            };
            first = rows.end;
        }
        Ok(Some(largest))
    }

    /// One differentiable look at a batch.
    fn look(&self, parameters: &Parameters, batch: &Batch) -> Result<Look, LearnerError> {
        let normalizer = self.normalizer();
        let output = self.policy.evaluate(parameters, normalizer.as_ref(), batch.input(), &self.device)?;
        let SequenceOutput { distribution, values, final_values, .. } = output;
        let (log_prob, entropy) =
            self.policy.distribution().evaluate(&distribution, &batch.action_masks, &batch.actions)?;
        let flat = values.flatten_all()?;
        let evaluation = Evaluation::new(&log_prob, &entropy, &flat.narrow(0, 0, batch.entries())?)?;
        let bootstrap = flat.narrow(0, batch.entries(), batch.columns)?.detach().to_vec1()?;
        Ok(Look { evaluation, bootstrap, final_values: batch.spread_final_values(&final_values) })
    }

    /// The loss of the objectives that look at a batch once.
    fn single_pass_loss(&self, batch: &Batch) -> Result<Loss, LearnerError> {
        let look = self.look(&self.parameters, batch)?;
        let log_ratios = look.evaluation.log_ratios(&batch.behaviour_log_probs)?;
        let discounts = vec![self.config.discount as f32; batch.entries()];
        match &self.config.objective {
            ObjectiveConfig::Vtrace(clips) => {
                let input = VtraceInput {
                    log_rhos: &log_ratios,
                    rewards: &batch.rewards,
                    values: look.evaluation.values(),
                    discounts: &discounts,
                };
                let targets = vtrace(clips, &input, &look.boundaries(batch))?;
                Ok(vtrace_loss(&self.config.loss, clips, &look.evaluation, &targets, &log_ratios, None)?)
            }
            ObjectiveConfig::ActorCritic(ActorCriticConfig { n_step }) => {
                let returns = n_step_returns(
                    n_step.unwrap_or(batch.steps),
                    &batch.rewards,
                    &discounts,
                    look.evaluation.values(),
                    &look.boundaries(batch),
                )?;
                let plain =
                    ActorCriticBatch { returns: &returns, behaviour_log_probs: &batch.behaviour_log_probs };
                Ok(actor_critic_loss(&self.config.loss, &look.evaluation, &plain, None)?)
            }
            ObjectiveConfig::Ppo(_) => unreachable!("PPO looks at a batch several times"),
        }
    }

    /// All passes of PPO over a batch. When one of them is not finite, those before it are undone.
    fn ppo(
        &mut self,
        settings: &PpoSettings,
        batch: &Batch,
        learning_rate: f64,
        poison: bool,
    ) -> Result<Descent<(Diagnostics, f64)>, LearnerError> {
        let look = self.look(&self.parameters.detached(), batch)?;
        let (discount, lambda) = (self.config.discount as f32, settings.gae_lambda as f32);
        let values = look.evaluation.values();
        let targets = gae(discount, lambda, &batch.rewards, values, &look.boundaries(batch))?;

        let saved_parameters = self.parameters.deep_copy(&self.device)?;
        let saved_optimizer = self.optimizer.state()?;
        let mut last = None;
        for epoch in 0..settings.epochs {
            let order = self.shuffled_columns(batch.columns, epoch as u32);
            for columns in order.chunks(batch.columns.div_ceil(settings.minibatches)) {
                let part = batch.select_columns(columns);
                let select = |values: &[f32]| batch.select(values, batch.steps, columns);
                let (advantages, returns) = (select(&targets.advantages), select(&targets.returns));
                let old_values = select(values);
                let look = self.look(&self.parameters, &part)?;
                let ppo_batch = PpoBatch {
                    behaviour_log_probs: &part.behaviour_log_probs,
                    advantages: &advantages,
                    returns: &returns,
                    old_values: &old_values,
                };
                let loss =
                    ppo_loss(&self.config.loss, &settings.surrogate, &look.evaluation, &ppo_batch, None)?;
                match self.descend(&loss, learning_rate, poison)? {
                    Ok(norm) => last = Some((loss.diagnostics, norm)),
                    Err(culprit) => {
                        for ((_, variable), (_, saved)) in self.variables.iter().zip(saved_parameters.iter())
                        {
                            variable.set(saved)?;
                        }
                        self.optimizer.load_state(&saved_optimizer)?;
                        return Ok(Err(culprit));
                    }
                }
            }
        }
        Ok(last.ok_or_else(|| "no minibatch".into()))
    }

    /// A permutation of the columns that depends on (seed, version, epoch) only.
    fn shuffled_columns(&self, columns: usize, epoch: u32) -> Vec<usize> {
        let version = self.state.version.0;
        let mut order: Vec<usize> = (0..columns).collect();
        for i in (1..columns).rev() {
            let word =
                draw(self.seed, Stream::Minibatch, [version as u32, (version >> 32) as u32, epoch, i as u32])
                    [0];
            order.swap(i, ((u64::from(word) * (i as u64 + 1)) >> 32) as usize);
        }
        order
    }

    /// One optimiser step; `Err` names what was not finite, and nothing has changed then.
    fn descend(
        &mut self,
        loss: &Loss,
        learning_rate: f64,
        poison: bool,
    ) -> Result<Descent<f64>, LearnerError> {
        if !loss.diagnostics.total_loss.is_finite() {
            return Ok(Err("the loss".into()));
        }
        let mut gradients = loss.total.backward()?;
        if poison {
            let parameter = self.variables[0].1.as_tensor();
            gradients.insert(parameter, (parameter.ones_like()? * f64::NAN)?);
        }
        let most = self.config.clip_norm.unwrap_or(f64::INFINITY);
        match self.optimizer.step(&gradients, learning_rate, most) {
            Ok(report) => Ok(Ok(report.gradient_norm)),
            Err(OptimizerError::NonFiniteGradient { name }) => Ok(Err(format!("the gradient of {name}"))),
            Err(error) => Err(error.into()),
        }
    }
}

/// A step that was made, or the name of what was not finite.
type Descent<T> = Result<T, String>;

/// What the current parameters say about a batch, with what the estimators need.
struct Look {
    evaluation: Evaluation<f32>,
    bootstrap: Vec<f32>,
    final_values: Vec<f32>,
}

impl Look {
    fn boundaries<'a>(&'a self, batch: &'a Batch) -> Boundaries<'a, f32> {
        Boundaries {
            terminated: &batch.terminated,
            truncated: &batch.truncated,
            final_values: &self.final_values,
            bootstrap: &self.bootstrap,
        }
    }
}
