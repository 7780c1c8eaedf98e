//! The plain advantage actor-critic objective, without correction for the policy lag.

use candle_core::WithDType;

use super::loss::{Parts, Selection, Term, combine};
use super::value_loss::squared_error;
use super::{Diagnostics, Evaluation, Loss, LossConfig, ObjectiveError};
use crate::learner::Real;

/// What [`actor_critic_loss`] reads beside the policy; every array has one entry for each of the policy's.
#[derive(Debug, Clone, Copy)]
pub struct ActorCriticBatch<'a, F> {
    /// n-step returns R: targets of the value function, and the advantages' first part.
    pub returns: &'a [F],
    /// log μ(a) recorded while sampling, nats; for the reported ratios and divergences only.
    pub behaviour_log_probs: &'a [F],
}

/// The loss of (asynchronous) advantage actor-critic:
///
/// ```text
/// policy_loss   = S[ −(R − V) log π(a) ]    baseline_loss = S[ (R − V)² / 2 ]           entropy = S[ H(π) ]
/// total_loss    = policy_loss + value_coef · baseline_loss − entropy_coef · entropy
/// ```
///
/// Source: Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016 (arXiv 1602.01783), algorithm
/// S3. No gradient flows through R, nor through V in the policy's part. It takes the actions as the current policy's
/// own, so it is biased as soon as the policy lags; it is here to be compared with. S sums over the entries where
/// `mask` is set (all without a mask); with [`Reduction::Mean`](super::Reduction::Mean) it is divided by their
/// number, at least 1.
///
/// # Errors
/// When numbers of entries differ or a tensor operation fails.
pub fn actor_critic_loss<F: Real + WithDType>(
    config: &LossConfig,
    policy: &Evaluation<F>,
    batch: &ActorCriticBatch<'_, F>,
    mask: Option<&[bool]>,
) -> Result<Loss, ObjectiveError> {
    ObjectiveError::check_length("returns", batch.returns.len(), policy.entries())?;
    let log_ratios = policy.log_ratios(batch.behaviour_log_probs)?;
    let selection = Selection::new(mask, policy.entries())?;
    let advantages: Vec<F> =
        batch.returns.iter().zip(policy.values()).map(|(&target, &value)| target - value).collect();
    let diagnostics =
        Diagnostics::describe(selection, &log_ratios, &advantages, policy.values(), batch.returns);
    let parts = Parts {
        policy: Term::policy_gradient(selection, policy.log_probs(), &advantages),
        baseline: squared_error(selection, policy.values(), batch.returns),
    };
    combine(config, policy, selection, parts, diagnostics)
}
