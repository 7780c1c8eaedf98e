//! What the current policy and value function say about a batch.

use candle_core::{Tensor, WithDType};

use super::ObjectiveError;
use crate::learner::Real;

/// The current policy's log-probabilities and entropies and the value function's values, entry by entry, both as
/// tensors that carry gradients and as plain numbers, fetched once. Any shape will do (`[T, B]`, or `[N]` for a
/// minibatch) so long as all have it; plain data given beside it is in row-major order.
#[derive(Debug, Clone)]
pub struct Evaluation<F> {
    pub(super) log_prob: Tensor,
    pub(super) entropy: Tensor,
    pub(super) value: Tensor,
    log_probs: Vec<F>,
    entropies: Vec<F>,
    values: Vec<F>,
}

impl<F: Real + WithDType> Evaluation<F> {
    /// Takes log π(a) of the actions taken (nats), the policy's entropy (nats) and the values, all of one shape and
    /// of the number type `F`.
    ///
    /// # Errors
    /// When shapes or types do not fit, or the device fails.
    pub fn new(log_prob: &Tensor, entropy: &Tensor, value: &Tensor) -> Result<Self, ObjectiveError> {
        let fetch = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<F>();
        let (log_probs, entropies, values) = (fetch(log_prob)?, fetch(entropy)?, fetch(value)?);
        ObjectiveError::check_length("entropy", entropies.len(), log_probs.len())?;
        ObjectiveError::check_length("value", values.len(), log_probs.len())?;
        Ok(Self {
            log_prob: log_prob.clone(),
            entropy: entropy.clone(),
            value: value.clone(),
            log_probs,
            entropies,
            values,
        })
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.log_probs.len()
    }

    /// log π(a) of the actions taken, nats.
    #[must_use]
    pub fn log_probs(&self) -> &[F] {
        &self.log_probs
    }

    /// Entropies of the policy, nats.
    #[must_use]
    pub fn entropies(&self) -> &[F] {
        &self.entropies
    }

    /// Values.
    #[must_use]
    pub fn values(&self) -> &[F] {
        &self.values
    }

    /// log π(a)/μ(a), given log μ(a) as it was recorded while sampling.
    ///
    /// # Errors
    /// When the number of entries differs.
    pub fn log_ratios(&self, behaviour_log_probs: &[F]) -> Result<Vec<F>, ObjectiveError> {
        ObjectiveError::check_length("behaviour_log_probs", behaviour_log_probs.len(), self.entries())?;
        Ok(self
            .log_probs
            .iter()
            .zip(behaviour_log_probs)
            .map(|(&current, &behaviour)| current - behaviour)
            .collect())
    }
}
