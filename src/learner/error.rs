//! What can end the learner.

use super::advantage::AdvantageError;
use super::objective::ObjectiveError;
use super::optimizer::OptimizerError;
use super::token::TokenLossError;
use crate::policy::PackError;

/// See the variants.
#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
    /// Several updates in a row could not be applied.
    #[error(
        "{culprit} was not finite in {updates} updates in a row; lower the learning rate or look at the rewards"
    )]
    NotFinite {
        /// The loss, or the parameter with the gradient.
        culprit: String,
        /// How many.
        updates: u32,
    },
    /// Advantages could not be computed.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// The loss could not be computed.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// The loss of a batch of tokens could not be computed.
    #[error(transparent)]
    TokenLoss(#[from] TokenLossError),
    /// Groups do not fit together.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// An answer has no teacher.
    #[error(
        "no teacher for answers of {subject}: add one to learner.teachers, or one without a source for all that have none"
    )]
    NoTeacher {
        /// Source and effort, in words.
        subject: String,
    },
    /// The optimiser failed.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The threads for matrix products could not be started.
    #[error("cannot start learner.threads: {0}")]
    Threads(rayon::ThreadPoolBuildError),
    /// A tensor operation failed.
    #[error("the learner's computation failed: {0}")]
    Tensor(#[from] candle_core::Error),
}
