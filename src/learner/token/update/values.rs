//! The part of a step in which a critic with a trunk of its own learns, and how that part and the policy's follow one
//! another.

use std::sync::Arc;

use super::{Attempt, LearningRates, TokenLearner};
use crate::learner::LearnerError;
use crate::learner::token::applied::Tally;
use crate::learner::token::flat::Flat;
use crate::learner::token::group_rewards::{GroupRewards, RewardFigures};
use crate::learner::token::{Critic, UpdateOrder};
use crate::policy::{Decoder, Parameters};
use crate::trajectory::Group;

/// Last counter of the draws that order the minibatches of value updates; those of the policy's have 1.
const VALUE_ORDER: u32 = 2;

impl TokenLearner {
    /// The critic with a trunk of its own, once there is one.
    #[must_use]
    pub fn critic(&self) -> Option<&Critic> {
        self.critic.as_ref()
    }

    /// The same, to save or load the state of its optimiser.
    pub fn critic_mut(&mut self) -> Option<&mut Critic> {
        self.critic.as_mut()
    }

    /// Puts a critic with a trunk of its own in place: a value function and its parameters.
    ///
    /// # Errors
    /// When a setting is out of range or memory is short.
    pub fn set_critic(&mut self, decoder: Arc<Decoder>, parameters: &Parameters) -> Result<(), LearnerError> {
        self.critic = Some(Critic::new(&self.config, decoder, parameters)?);
        Ok(())
    }

    /// A critic that begins as the policy is now, where one is needed and none is there.
    pub(super) fn begin_critic(&mut self) -> Result<(), LearnerError> {
        if !self.config.has_separate_critic() || self.critic.is_some() {
            return Ok(());
        }
        let decoder = Decoder::value_function(self.decoder.config(), self.decoder.device())?;
        // A copy, since the policy goes on from here without it.
        let parameters = decoder.take_trunk(&self.decoder, &self.parameters.snapshot()?)?;
        self.set_critic(Arc::new(decoder), &parameters)
    }

    /// Whether the next update changes the value function alone.
    #[must_use]
    pub fn is_value_only(&self) -> bool {
        self.config.has_separate_critic() && self.state.value_only < self.config.critic.warmup_updates
    }

    /// All that is learned from a batch that was prepared, in the order of the settings. When it is stopped before
    /// anything was learned, nothing has changed.
    pub(super) fn learn(
        &mut self,
        groups: &[&Group],
        rewards: &[GroupRewards],
        flat: &mut Flat,
        rates: LearningRates,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
        tally: &mut Tally,
    ) -> Attempt<()> {
        if self.critic.is_none() {
            return self.policy_steps(groups, flat, rates.policy, poison, abandon, tally);
        }
        // After the first step there is no way back.
        let never: &(dyn Fn() -> bool + Sync) = &|| false;
        if self.is_value_only() {
            tally.value_only = true;
            let outcome = self.value_steps(groups, flat, rates.values, poison, abandon, tally)?;
            tally.loss = tally.value_loss.unwrap_or(0.0);
            return Ok(outcome);
        }
        match self.config.critic.order {
            UpdateOrder::ValueFirst => {
                if let Err(stopped) = self.value_steps(groups, flat, rates.values, false, abandon, tally)? {
                    return Ok(Err(stopped));
                }
                if let Some(critic) = &self.critic {
                    flat.values = critic.values(groups, flat, never)?.unwrap_or_default();
                }
                self.advantages(groups, rewards, flat, &mut RewardFigures::default())?;
                tally.look_again(flat);
                self.policy_steps(groups, flat, rates.policy, poison, never, tally)
            }
            UpdateOrder::PolicyFirst => {
                if let Err(stopped) = self.policy_steps(groups, flat, rates.policy, poison, abandon, tally)? {
                    return Ok(Err(stopped));
                }
                self.value_steps(groups, flat, rates.values, false, never, tally)
            }
        }
    }

    /// The steps of the critic's optimiser: so many for each of the policy's, over minibatches of the same size.
    fn value_steps(
        &mut self,
        groups: &[&Group],
        flat: &Flat,
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
        tally: &mut Tally,
    ) -> Attempt<()> {
        let parts = self.config.minibatches.min(groups.len());
        let passes = self.config.critic.updates * self.config.epochs;
        let order: Vec<Vec<usize>> =
            (0..passes).flat_map(|pass| self.order(groups.len(), parts, pass as u32, VALUE_ORDER)).collect();
        let Some(critic) = &mut self.critic else { return Ok(Ok(())) };
        let mut losses = 0.0;
        for (index, part) in order.iter().enumerate() {
            let abandon: &(dyn Fn() -> bool + Sync) = if index == 0 { abandon } else { &|| false };
            let own: Vec<&Group> = part.iter().map(|&group| groups[group]).collect();
            let outcome = if part.len() == groups.len() {
                critic.step(&own, flat, learning_rate, poison, abandon)?
            } else {
                critic.step(&own, &flat.of_groups(part), learning_rate, poison, abandon)?
            };
            let step = match outcome {
                Ok(step) => step,
                Err(stopped) => return Ok(Err(stopped)),
            };
            losses += step.loss;
            tally.value_gradient_norm = Some(step.gradient_norm);
        }
        tally.value_steps = order.len() as u64;
        tally.value_loss = Some(losses / order.len().max(1) as f64);
        Ok(Ok(()))
    }
}
