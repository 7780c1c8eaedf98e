//! What an applied update of the token learner has to tell.

use super::flat::Flat;
use super::{Diagnostics, Figure, RewardFigures, TokenLoss};

/// Sums over the micro-batches of an update.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) loss: f64,
    pub(super) value_loss: Option<f64>,
    pub(super) gradient_norm: f64,
    policy_loss: f64,
    reference_kl: f64,
    entropy_sum: f64,
    ratio_max: Option<f64>,
    tokens: u64,
    diagnostics: Option<Diagnostics>,
    advantage_mean: Option<f64>,
    advantage_deviation: Option<f64>,
    explained_variance: Option<f64>,
    rewards: RewardFigures,
}

/// The figures of an applied update; sums over its minibatches where there are several.
#[derive(Debug, Clone)]
pub struct TokenApplied {
    /// What was minimised.
    pub loss: f64,
    /// The objective's part.
    pub policy_loss: f64,
    /// The critic's part before its coefficient, where there is a critic.
    pub value_loss: Option<f64>,
    /// The reference KL's part, with its coefficient.
    pub reference_kl: f64,
    /// Mean entropy at loss tokens (nats); `None` without any.
    pub entropy: Option<f64>,
    /// Greatest ratio of the current to the sampling policy.
    pub ratio_max: Option<f64>,
    /// Global norm of the gradient of the last minibatch before clipping.
    pub gradient_norm: f64,
    /// Mean advantage of the loss tokens.
    pub advantage_mean: Option<f64>,
    /// Standard deviation of the advantages.
    pub advantage_deviation: Option<f64>,
    /// Fraction of the value targets' variance that the values explained.
    pub explained_variance: Option<f64>,
    /// What rubric and shaping did to the batch's rewards.
    pub rewards: RewardFigures,
    /// What the objective tells.
    pub diagnostics: Diagnostics,
}

impl Tally {
    /// With what is known of a whole batch before it is learned from.
    pub(super) fn of_batch(flat: &Flat, rewards: RewardFigures) -> Self {
        let chosen = || (0..flat.tokens()).filter(|&token| flat.mask[token]);
        let moments = |value: &dyn Fn(usize) -> f64| {
            let count = chosen().count();
            let mean = chosen().map(value).sum::<f64>() / count.max(1) as f64;
            let variance =
                chosen().map(|token| (value(token) - mean).powi(2)).sum::<f64>() / count.max(1) as f64;
            (count > 0).then_some((mean, variance))
        };
        let advantages = moments(&|token| f64::from(flat.advantages[token]));
        let explained_variance = if flat.values.is_empty() {
            None
        } else {
            let targets = moments(&|token| f64::from(flat.value_targets[token]));
            let errors = moments(&|token| f64::from(flat.value_targets[token] - flat.values[token]));
            targets.zip(errors).filter(|(targets, _)| targets.1 > 0.0).map(|(t, e)| 1.0 - e.1 / t.1)
        };
        Self {
            advantage_mean: advantages.map(|(mean, _)| mean),
            advantage_deviation: advantages.map(|(_, variance)| variance.sqrt()),
            explained_variance,
            rewards,
            ..Self::default()
        }
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
            self.ratio_max = Some(self.ratio_max.map_or(ratio, |most| most.max(ratio)));
        }
        match &mut self.diagnostics {
            Some(diagnostics) => diagnostics.merge(&loss.diagnostics),
            none => *none = Some(loss.diagnostics.clone()),
        }
    }

    pub(super) fn applied(self) -> TokenApplied {
        TokenApplied {
            loss: self.loss,
            policy_loss: self.policy_loss,
            value_loss: self.value_loss,
            reference_kl: self.reference_kl,
            entropy: (self.tokens > 0).then(|| self.entropy_sum / self.tokens as f64),
            ratio_max: self.ratio_max,
            gradient_norm: self.gradient_norm,
            advantage_mean: self.advantage_mean,
            advantage_deviation: self.advantage_deviation,
            explained_variance: self.explained_variance,
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
