//! What an applied update does to the reference: the coefficient that holds the policy near it moves, and the policy
//! takes its place when that is due.
//!
//! Both are in a checkpoint: the coefficient and the reference's version in the state, its parameters as tensors.

use super::TokenLearner;
use crate::learner::LearnerError;
use crate::learner::token::{ReferenceKlConfig, TokenLearnerConfig};
use crate::policy::Parameters;

impl TokenLearnerConfig {
    /// Whether an update needs the log-probabilities of a reference policy.
    #[must_use]
    pub fn needs_reference(&self) -> bool {
        self.loss.needs().reference || self.reward_kl > 0.0
    }

    /// The coefficient of the reference KL that is set, in the reward or else in the loss.
    #[must_use]
    pub fn kl_coefficient(&self) -> f64 {
        if self.reward_kl > 0.0 { self.reward_kl } else { self.loss.reference_kl().coefficient }
    }

    /// Sets it where it was found.
    fn set_kl_coefficient(&mut self, coefficient: f64) {
        if self.reward_kl > 0.0 {
            self.reward_kl = coefficient;
        } else {
            self.loss.reference_kl = Some(ReferenceKlConfig { coefficient, ..self.loss.reference_kl() });
        }
    }
}

impl TokenLearner {
    /// A controller goes on from the coefficient in the state, or begins at the one that is set. From here on the
    /// learner's own settings hold the coefficient in force.
    pub(super) fn take_coefficient(&mut self) {
        self.state.kl_coefficient = self
            .config
            .kl_control
            .map(|_| self.state.kl_coefficient.unwrap_or_else(|| self.config.kl_coefficient()));
        if let Some(coefficient) = self.state.kl_coefficient {
            self.config.set_kl_coefficient(coefficient);
        }
    }

    /// The coefficient follows what the policy's update measured.
    pub(super) fn control(&mut self, divergence: Option<f64>) {
        if let (Some(control), Some(coefficient), Some(divergence)) =
            (self.config.kl_control, self.state.kl_coefficient, divergence)
        {
            let next = control.next(coefficient, divergence);
            self.state.kl_coefficient = Some(next);
            self.config.set_kl_coefficient(next);
        }
    }

    /// What becomes the reference once this update of the policy is counted, if that is due.
    pub(super) fn next_reference(&self) -> Result<Option<Parameters>, LearnerError> {
        let Some(every) = self.config.refresh_reference.filter(|_| self.reference.is_some()) else {
            return Ok(None);
        };
        let due = (self.state.policy_updates() + 1).is_multiple_of(every.max(1));
        Ok(if due { Some(self.parameters.snapshot()?) } else { None })
    }

    /// Whether the reference is the policy as it is now.
    pub(super) fn is_reference_current(&self) -> bool {
        self.state.reference_version == Some(self.state.version)
    }
}
