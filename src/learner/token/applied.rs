//! What an applied update of the token learner has to tell.

use super::flat::Flat;
use super::{Diagnostics, Figure, FourBounds, RewardFigures, TokenLoss};
use crate::policy::BlockNorms;
use crate::trajectory::{TokenFate, TokenFates, Version};

/// How far log-probabilities that were recorded in generation are from the learner's own before its first step, over
/// answers that were sampled under the version that learns alone: what no lag explains (nats).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mismatch {
    sum: f64,
    tokens: u64,
    greatest: f64,
}

impl Mismatch {
    /// Adds the answers of a micro-batch.
    fn add(&mut self, version: Version, flat: &Flat, log_probs: &[f32]) {
        for row in &flat.rows {
            if flat.versions[row.clone()].iter().any(|&sampled| sampled != version) {
                continue;
            }
            for token in row.clone().filter(|&token| flat.mask[token]) {
                let difference = f64::from((log_probs[token] - flat.behaviour[token]).abs());
                self.sum += difference;
                self.tokens += 1;
                self.greatest = self.greatest.max(difference);
            }
        }
    }

    /// Mean over tokens; `None` where there was no such answer.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.sum / self.tokens as f64)
    }

    /// The greatest; `None` where there was no such answer.
    #[must_use]
    pub fn greatest(&self) -> Option<f64> {
        (self.tokens > 0).then_some(self.greatest)
    }
}

/// Sums over the micro-batches of an update.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) loss: f64,
    pub(super) value_loss: Option<f64>,
    pub(super) gradient_norm: f64,
    pub(super) block_norms: BlockNorms,
    /// Bounds of the ratio that the objective went by, where a controller moves them.
    pub(super) bounds: Option<FourBounds>,
    /// Whether the policy stays as it is.
    pub(super) value_only: bool,
    /// Of a separate critic: its optimiser steps, and the norm of the last one's gradient.
    pub(super) value_steps: u64,
    pub(super) value_gradient_norm: Option<f64>,
    policy_loss: f64,
    reference_kl: f64,
    entropy_sum: f64,
    ratios: Option<(f64, f64)>,
    /// The version that learns, as long as it has taken no step.
    pub(super) unmoved: Option<Version>,
    mismatch: Mismatch,
    tokens: u64,
    fates: TokenFates,
    diagnostics: Option<Diagnostics>,
    advantage_mean: Option<f64>,
    advantage_deviation: Option<f64>,
    advantages: Option<(f64, f64)>,
    explained_variance: Option<f64>,
    value_bias: Option<f64>,
    explained_variance_updated: Option<f64>,
    rewards: RewardFigures,
    /// Divergence of the sampling policy from the reference, nats a token, where there is a reference.
    pub(super) divergence: Option<f64>,
    pub(super) kl_coefficient: Option<f64>,
    pub(super) reference_version: Option<Version>,
    pub(super) passes: u64,
    pub(super) expert_disagreement: Option<f64>,
}

/// The figures of an applied update; sums over its minibatches where there are several.
#[derive(Debug, Clone)]
pub struct TokenApplied {
    /// Whether the value function alone has learned, and the policy is what it was.
    pub value_only: bool,
    /// What was minimised; without the loss of a separate critic, unless that alone was.
    pub loss: f64,
    /// The objective's part.
    pub policy_loss: f64,
    /// The critic's loss before its coefficient, where there is a critic; the mean over the steps of a separate one.
    pub value_loss: Option<f64>,
    /// The reference KL's part, with its coefficient.
    pub reference_kl: f64,
    /// Mean divergence of the policy that sampled from the reference, before its coefficient (nats a token, by the
    /// estimator of the reference KL); `None` without a reference.
    pub divergence: Option<f64>,
    /// Coefficient of the reference KL in this update, where a controller moves it.
    pub kl_coefficient: Option<f64>,
    /// The version that was the reference in this update, where there is one.
    pub reference_version: Option<Version>,
    /// Passes over the batch.
    pub passes: u64,
    /// Share of the experts that generation used, over a micro-batch, that the routers would not choose under the version
    /// that learns; `None` unless experts are replayed.
    pub expert_disagreement: Option<f64>,
    /// Mean entropy at loss tokens (nats); `None` without any.
    pub entropy: Option<f64>,
    /// Least and greatest ratio of the current to the sampling policy, over loss tokens.
    pub ratios: Option<(f64, f64)>,
    /// What sets generation and training apart where nothing is stale.
    pub mismatch: Mismatch,
    /// Global norm of the gradient of the last minibatch before clipping.
    pub gradient_norm: f64,
    /// The same for each kind of block of the policy; that of a separate critic's value head is not among them.
    pub block_norms: BlockNorms,
    /// What became of the tokens after the prompts in each pass over the batch; nothing where the value function alone
    /// has learned.
    pub fates: TokenFates,
    /// Bounds of the ratio that the objective went by, where a controller moves them.
    pub bounds: Option<FourBounds>,
    /// Mean advantage of the loss tokens.
    pub advantage_mean: Option<f64>,
    /// Standard deviation of the advantages.
    pub advantage_deviation: Option<f64>,
    /// Least and greatest advantage.
    pub advantages: Option<(f64, f64)>,
    /// Steps of a separate critic's optimiser.
    pub value_steps: u64,
    /// Global norm of the gradient of a separate critic's last step before clipping.
    pub value_gradient_norm: Option<f64>,
    /// Fraction of the value targets' variance that the values explained before anything was learned from the batch.
    pub explained_variance: Option<f64>,
    /// Mean of value minus value target, of the same values: what a constant error amounts to, which the explained
    /// variance does not see.
    pub value_bias: Option<f64>,
    /// The explained variance of the values that the advantages are made of, where a separate critic learned from the
    /// batch first.
    pub explained_variance_updated: Option<f64>,
    /// What rubric and shaping did to the batch's rewards.
    pub rewards: RewardFigures,
    /// What the objective tells.
    pub diagnostics: Diagnostics,
}

impl Tally {
    /// With what is known of a whole batch before it is learned from.
    pub(super) fn of_batch(flat: &Flat, rewards: RewardFigures) -> Self {
        let (explained_variance, value_bias) = (explained(flat), bias(flat));
        let mut tally = Self { explained_variance, value_bias, rewards, ..Self::default() };
        tally.note_advantages(flat);
        tally
    }

    /// Advantages were made anew from values that a critic computed after it had learned.
    pub(super) fn look_again(&mut self, flat: &Flat) {
        self.explained_variance_updated = explained(flat);
        self.note_advantages(flat);
    }

    fn note_advantages(&mut self, flat: &Flat) {
        let advantages = flat.mask.iter().zip(&flat.advantages).filter(|(mask, _)| **mask);
        let moments = moments(advantages.map(|(_, &advantage)| f64::from(advantage)));
        self.advantage_mean = moments.map(|(mean, _)| mean);
        self.advantage_deviation = moments.map(|(_, variance)| variance.sqrt());
        let advantages = flat.mask.iter().zip(&flat.advantages).filter(|(mask, _)| **mask);
        self.advantages =
            advantages.fold(None, |range, (_, &advantage)| Some(widened(range, f64::from(advantage))));
    }

    /// Counts tokens that a pass over the batch leaves out, by why.
    pub(super) fn leave_out(&mut self, fates: &TokenFates) {
        self.fates.merge(fates);
    }

    /// Counts tokens of answers that do not run through the model.
    pub(super) fn leave_out_some(&mut self, fate: TokenFate, tokens: usize) {
        self.fates.add(fate, tokens as u64);
    }

    /// Adds a micro-batch.
    pub(super) fn add(&mut self, loss: &TokenLoss<f32>, flat: &Flat, log_probs: &[f32], entropies: &[f32]) {
        self.loss += loss.loss;
        self.policy_loss += loss.objective;
        self.reference_kl += loss.reference_kl;
        for token in (0..flat.tokens()).filter(|&token| flat.mask[token]) {
            self.tokens += 1;
            self.entropy_sum += f64::from(entropies[token]);
            let ratio = f64::from(log_probs[token] - flat.behaviour[token]).exp();
            self.ratios = Some(widened(self.ratios, ratio));
        }
        if let Some(version) = self.unmoved {
            self.mismatch.add(version, flat, log_probs);
        }
        self.fates.merge(&loss.diagnostics.fates());
        match &mut self.diagnostics {
            Some(diagnostics) => diagnostics.merge(&loss.diagnostics),
            none => *none = Some(loss.diagnostics.clone()),
        }
    }

    /// Mean entropy at the loss tokens so far, nats.
    pub(super) fn entropy(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.entropy_sum / self.tokens as f64)
    }

    pub(super) fn applied(self) -> TokenApplied {
        TokenApplied {
            value_only: self.value_only,
            loss: self.loss,
            policy_loss: self.policy_loss,
            value_loss: self.value_loss,
            reference_kl: self.reference_kl,
            divergence: self.divergence,
            kl_coefficient: self.kl_coefficient,
            reference_version: self.reference_version,
            passes: self.passes,
            expert_disagreement: self.expert_disagreement,
            entropy: self.entropy(),
            ratios: self.ratios,
            mismatch: self.mismatch,
            gradient_norm: self.gradient_norm,
            block_norms: self.block_norms,
            fates: self.fates,
            bounds: self.bounds,
            advantage_mean: self.advantage_mean,
            advantage_deviation: self.advantage_deviation,
            advantages: self.advantages,
            value_steps: self.value_steps,
            value_gradient_norm: self.value_gradient_norm,
            explained_variance: self.explained_variance,
            value_bias: self.value_bias,
            explained_variance_updated: self.explained_variance_updated,
            rewards: self.rewards,
            diagnostics: self.diagnostics.unwrap_or_default(),
        }
    }
}

impl TokenApplied {
    /// A figure of the objective's.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        self.diagnostics.get(figure)
    }
}

/// A least and a greatest value with one more.
fn widened(range: Option<(f64, f64)>, value: f64) -> (f64, f64) {
    range.map_or((value, value), |(least, greatest)| (least.min(value), greatest.max(value)))
}

/// Mean and variance; `None` of nothing.
fn moments(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let count = values.clone().count();
    let mean = values.clone().sum::<f64>() / count.max(1) as f64;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count.max(1) as f64;
    (count > 0).then_some((mean, variance))
}

/// Variance of targets over the square of the largest number among values and targets, below which the targets are
/// alike but for rounding: they are computed from the values.
const ALIKE: f64 = 1e-10;

/// Fraction of the variance of targets that values explain, of pairs of a value and its target: at most 1, and 0 for
/// values that are all alike. `None` when the targets are.
pub(super) fn explained_variance(pairs: impl Iterator<Item = (f32, f32)> + Clone) -> Option<f64> {
    let (_, of_targets) = moments(pairs.clone().map(|(_, target)| f64::from(target)))?;
    let (_, of_errors) = moments(pairs.clone().map(|(value, target)| f64::from(target - value)))?;
    let largest =
        pairs.fold(0.0_f64, |most, (value, target)| most.max(f64::from(value.abs().max(target.abs()))));
    (of_targets > ALIKE * largest.powi(2)).then(|| 1.0 - of_errors / of_targets)
}

/// Values and value targets at the loss tokens of a batch; none without values.
fn values_and_targets(flat: &Flat) -> impl Iterator<Item = (f32, f32)> + Clone + '_ {
    let pairs = flat.values.iter().copied().zip(flat.value_targets.iter().copied());
    pairs.zip(&flat.mask).filter(|(_, mask)| **mask).map(|(pair, _)| pair)
}

/// Explained variance of the values in a batch; `None` without values.
fn explained(flat: &Flat) -> Option<f64> {
    explained_variance(values_and_targets(flat))
}

/// Mean of value minus target; `None` without values.
fn bias(flat: &Flat) -> Option<f64> {
    moments(values_and_targets(flat).map(|(value, target)| f64::from(value) - f64::from(target)))
        .map(|(mean, _)| mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_is_the_constant_error_that_explained_variance_does_not_see() {
        let flat = Flat {
            values: vec![2.0, 1.0, f32::NAN],
            value_targets: vec![1.5, 0.5, f32::NAN],
            mask: vec![true, true, false],
            advantages: vec![-3.0, 0.5, f32::NAN],
            ..Flat::default()
        };
        let tally = Tally::of_batch(&flat, RewardFigures::default());
        assert_eq!((tally.explained_variance, tally.value_bias), (Some(1.0), Some(0.5)));
        assert_eq!(tally.advantages, Some((-3.0, 0.5)));
        let nothing = Tally::of_batch(&Flat::default(), RewardFigures::default());
        assert_eq!((nothing.value_bias, nothing.advantages), (None, None));
    }

    #[test]
    fn targets_that_are_alike_but_for_rounding_leave_no_variance_to_explain() {
        let of = |pairs: &[(f32, f32)]| explained_variance(pairs.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(0.5, 1.0), (0.25, 1.0)]), None);
        assert_eq!(of(&[(0.5, 1e-8), (0.25, 0.0), (0.1, -1e-8)]), None);
        assert_eq!(of(&[(0.0, 1.0), (0.0, 0.0)]), Some(0.0));
        assert_eq!(of(&[(1.0, 1.0), (0.0, 0.0)]), Some(1.0));
        // A constant error costs nothing.
        assert_eq!(of(&[(2.0, 1.0), (1.0, 0.0)]), Some(1.0));
    }
}
