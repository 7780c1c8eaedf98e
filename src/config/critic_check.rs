//! Checks of the critic's settings against one another, the advantage and the policy.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::learner::token::{CriticConfig, CriticParameters, CriticTrunk, UpdateOrder};
use crate::policy::Decoder;

/// The first of the settings that only a critic with a trunk of its own has and that is not as it is by default.
fn set_for_separate(critic: &CriticConfig) -> Option<&'static str> {
    let set = [
        ("learner.critic.updates", critic.updates != 1),
        ("learner.critic.train", critic.train != CriticParameters::All),
        ("learner.critic.frozen", !critic.frozen.0.is_empty()),
        ("learner.critic.warmup_updates", critic.warmup_updates > 0),
        ("learner.critic.order", critic.order != UpdateOrder::default()),
        ("learner.critic.path", critic.path.is_some()),
        ("learner.critic.learning_rate", critic.learning_rate.is_some()),
        ("learner.critic.optimizer", critic.optimizer.is_some()),
    ];
    set.into_iter().find(|(_, set)| *set).map(|(field, _)| field)
}

impl TokenConfig {
    /// Refuses settings of the critic that contradict each other.
    pub(super) fn check_critic_settings(&self) -> Result<(), Contradiction> {
        let critic = &self.learner.critic;
        if critic.updates == 0 {
            return Err(refuse(&["learner.critic.updates"], "must be at least 1"));
        }
        if let Some(rate) = critic.learning_rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            let why = format!("is {rate}, must be a positive number");
            return Err(refuse(&["learner.critic.learning_rate"], why));
        }
        if let Some(optimizer) = &critic.optimizer {
            optimizer.validate().map_err(|error| refuse(&["learner.critic.optimizer"], error.to_string()))?;
        }
        if self.learner.advantage.needs_values() && !self.learner.loss.needs().advantages {
            return Err(refuse(
                &["learner.advantage", "learner.loss.objective"],
                format!(
                    "{} reads no advantages, so that values would be learned for nothing; take `grpo` as advantage, or \
                     another objective",
                    self.learner.loss.objective.kind()
                ),
            ));
        }
        let separate = critic.trunk == CriticTrunk::Separate;
        let without_values = separate.then_some("learner.critic.trunk").or(set_for_separate(critic));
        if let (false, Some(field)) = (self.learner.advantage.needs_values(), without_values) {
            return Err(refuse(
                &[field, "learner.advantage"],
                "this advantage has no use for values, so that there is no critic; take `skip_observation_gae`",
            ));
        }
        if let (false, Some(field)) = (separate, set_for_separate(critic)) {
            return Err(refuse(
                &[field, "learner.critic.trunk"],
                "a critic on the policy's layers learns with the policy, in the same steps; set trunk = \"separate\"",
            ));
        }
        Ok(())
    }

    /// Refuses patterns that mean no parameter of a critic with a trunk of its own, or leave nothing to train.
    ///
    /// # Errors
    /// As for [`TokenConfig::check`].
    pub fn check_critic(&self, decoder: &Decoder) -> Result<(), Contradiction> {
        let (critic, layout) = (&self.learner.critic, decoder.layout());
        critic.frozen.check(layout).map_err(|error| refuse(&["learner.critic.frozen"], error.to_string()))?;
        if layout.names().any(|name| critic.is_trained(name)) {
            return Ok(());
        }
        Err(refuse(
            &["learner.critic.frozen", "learner.critic.train"],
            "nothing of the critic is left to train; take away a pattern",
        ))
    }
}
