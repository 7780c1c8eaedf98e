//! Learning: advantages and objectives as pure functions, optimisers, schedules.

pub mod advantage;
mod batch;
mod config;
mod error;
pub mod objective;
pub mod optimizer;
mod real;
mod reward_scale;
pub mod schedule;
pub mod token;
mod update;

pub use batch::{Batch, Finals};
pub use config::{ActorCriticConfig, LearnerConfig, ObjectiveConfig, PpoSettings};
pub use error::LearnerError;
pub use real::Real;
pub use reward_scale::RewardScale;
pub use update::{Applied, Learner, LearnerState, Outcome};
