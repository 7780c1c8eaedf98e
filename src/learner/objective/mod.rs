//! Objectives: what is minimised, given the advantages and targets that an estimator computed.
//!
//! An objective is a pure function from an [`Evaluation`] (what the current policy and value function say about a
//! batch, as tensors that carry gradients) and plain data to a [`Loss`]: a scalar tensor to call `backward` on, and
//! the figures that belong to it. Its documentation states the formula, its source, what carries no gradient, and
//! the denominators.
//!
//! Invariants:
//!
//! - A batch is small beside the network, and its estimators run on the host; so do the objectives. Each knows its
//!   gradient with respect to the log-probabilities, entropies and values in closed form and hands both to
//!   automatic differentiation as one operator ([`Loss::total`] works on any device). Sums are taken in `f64`.
//! - Entries that are masked out are never read: whatever they hold, NaN too, changes neither loss nor gradient.
//! - With [`Reduction::Mean`] the denominator is the number of entries that are not masked, before any clipping.

mod actor_critic;
mod diagnostics;
mod differentiable;
mod error;
mod evaluation;
mod loss;
mod ppo;
mod value_loss;
mod vtrace;

pub use actor_critic::{ActorCriticBatch, actor_critic_loss};
pub use diagnostics::{Clipped, Diagnostics};
pub use error::ObjectiveError;
pub use evaluation::Evaluation;
pub use loss::{Loss, LossConfig, Reduction};
pub use ppo::{PpoBatch, PpoConfig, normalize_advantages, ppo_loss};
pub use value_loss::{ValueClip, ValueLoss, value_loss};
pub use vtrace::vtrace_loss;

#[cfg(test)]
mod tests;
