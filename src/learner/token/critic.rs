//! A critic with a trunk of its own: parameters, gradients and optimiser beside the policy's.
//!
//! Invariants: nothing that it learns touches the policy, and no generator ever sees its parameters; parameters that
//! are not trained stay the same bits; a loss or gradient that is not finite never reaches the parameters. Its router,
//! where it has experts, chooses for itself: experts recorded from the policy's are of another network.

use std::sync::Arc;

use super::flat::{Flat, PackRows, spread};
use super::settings::TokenLearnerConfig;
use super::update::{Attempt, Stopped, descend};
use super::{Aggregation, Denominators, TokenValueClip, token_value_loss};
use crate::learner::LearnerError;
use crate::learner::optimizer::Optimizer;
use crate::policy::{
    Checkpointing, Decoder, Gradients, Pack, Packing, Parameters, ScoreGradients, Scores, TrainingPass,
};
use crate::trajectory::Group;

/// See the module's documentation.
pub struct Critic {
    decoder: Arc<Decoder>,
    /// The trained ones are variables, which the optimiser updates.
    parameters: Parameters,
    gradients: Gradients,
    optimizer: Optimizer,
    packing: Packing,
    checkpointing: Checkpointing,
    /// How far a value may move from its old one before its gradient stops.
    clip: Option<f64>,
    clip_norm: Option<f64>,
}

/// What one step of the optimiser came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueStep {
    /// The loss before the step, a mean over tokens.
    pub(super) loss: f64,
    /// Global norm of the gradient before clipping.
    pub(super) gradient_norm: f64,
}

impl Critic {
    /// A critic whose optimiser has made no step yet. `decoder` is a value function ([`Decoder::value_function`]), and
    /// `parameters` are what it begins as; those that are not trained keep their storage, which nobody may change.
    ///
    /// # Errors
    /// When a setting is out of range or memory is short.
    pub fn new(
        config: &TokenLearnerConfig,
        decoder: Arc<Decoder>,
        parameters: &Parameters,
    ) -> Result<Self, LearnerError> {
        let (variables, parameters) = parameters.to_variables_where(|name| config.critic.is_trained(name))?;
        let optimizer = config.critic.optimizer.as_ref().unwrap_or(&config.optimizer);
        Ok(Self {
            gradients: Gradients::new(&parameters)?,
            optimizer: Optimizer::new(optimizer, variables)?,
            decoder,
            parameters,
            packing: Packing { rows: config.microbatch_tokens, experts_per_row: 0 },
            checkpointing: config.checkpointing,
            clip: config.critic.clip,
            clip_norm: config.clip_norm,
        })
    }

    /// Its architecture.
    #[must_use]
    pub fn decoder(&self) -> &Arc<Decoder> {
        &self.decoder
    }

    /// Its parameters, which share their storage with the variables that are updated.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Its optimiser, to save or load its state.
    pub fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    fn pass(&self) -> TrainingPass<'_> {
        // It predicts no tokens, so that there is no temperature.
        TrainingPass { decoder: &self.decoder, temperature: 1.0, checkpointing: self.checkpointing }
    }

    /// Packs of the rows that are learned from.
    fn packs(&self, groups: &[&Group], flat: &Flat) -> Result<Vec<Pack>, LearnerError> {
        Ok(self.packing.pack_where(groups, |group, member| flat.is_learned(group, member))?)
    }

    /// Value of the state in which each action was chosen, one entry a token, 0 where nothing is learned; `None` when it
    /// was abandoned.
    pub(super) fn values(
        &self,
        groups: &[&Group],
        flat: &Flat,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<f32>>, LearnerError> {
        let packs = self.packs(groups, flat)?;
        let mut all = Vec::with_capacity(packs.len());
        for pack in &packs {
            if abandon() {
                return Ok(None);
            }
            all.push(self.pass().evaluate(&self.parameters, pack)?);
        }
        Ok(Some(spread(flat, &packs, &all, |scores| &scores.values)))
    }

    /// One step of the optimiser towards the value targets in `flat`, the arrays of `groups`. `poison` makes the gradient
    /// not a number; nothing has changed when the step was abandoned or is not finite.
    pub(super) fn step(
        &mut self,
        groups: &[&Group],
        flat: &Flat,
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Attempt<ValueStep> {
        let weights = Denominators::of_all_rows(Aggregation::TokenMean, None, &flat.shape())?;
        let mut sum = 0.0;
        self.gradients.clear();
        for pack in &self.packs(groups, flat)? {
            if abandon() {
                return Ok(Err(Stopped::Abandoned));
            }
            let held = PackRows::new(flat, pack);
            let gradient = |scores: &Scores| -> Result<ScoreGradients, LearnerError> {
                let (rows, values) = (&held.flat, held.spread(&scores.values));
                let clip = self.clip.map(|range| TokenValueClip { old_values: &rows.values, range });
                let weights = weights.select(&held.rows)?;
                let loss = token_value_loss(&rows.shape(), &weights, &values, &rows.value_targets, clip)?;
                sum += loss.loss;
                Ok(ScoreGradients { values: held.gather(&loss.gradient), ..ScoreGradients::default() })
            };
            self.pass().accumulate(&self.parameters, pack, &self.gradients, gradient)?;
        }
        let name = |what: String| format!("{what} of the critic");
        let (gradients, clip_norm) = (&self.gradients, self.clip_norm);
        let outcome = descend(&mut self.optimizer, gradients, sum, learning_rate, clip_norm, poison)?;
        Ok(match outcome {
            Ok(step) => Ok(ValueStep { loss: sum, gradient_norm: step.gradient_norm }),
            Err(Stopped::NotFinite(culprit)) => Err(Stopped::NotFinite(name(culprit))),
            Err(stopped) => Err(stopped),
        })
    }
}
