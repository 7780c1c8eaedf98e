//! The supervised tree: roles that are stepped by threads or by the serial loop, what travels between them, and the
//! run as a whole.
//!
//! Experience flows one way round a ring: environments → [`Rollout`](rollout::Rollout) → [`queue`](queue::queue) →
//! [`LearnerRole`](learner::LearnerRole) → [`ParameterBus`](parameter_bus::ParameterBus) → rollout. Control flows
//! through the guardians of [`supervisor`]; the two never share a channel.

mod build;
pub mod checkpoint;
mod conclude;
pub mod control;
pub mod cut;
pub mod devices;
pub mod evaluation;
pub mod evaluator;
pub mod exit_status;
pub mod faults;
pub mod incidents;
pub mod inference;
pub mod interrupt;
pub mod journal;
pub mod lane;
pub mod learner;
pub mod monitor;
pub mod parameter_bus;
pub mod queue;
pub mod recorder;
pub mod restart;
mod resume;
pub mod role;
pub mod rollout;
pub mod run;
pub mod run_dir;
pub mod serial;
pub mod snapshot;
pub mod standing;
pub mod stopwatch;
pub mod supervisor;
pub mod threaded;
pub mod token;
pub mod train;
mod train_error;

pub use evaluation::{EvaluationConfig, EvaluationResult, evaluate};
pub use faults::{Fault, FaultKind};
pub use inference::InferenceConfig;
pub use restart::RestartConfig;
pub use resume::load_policy;
pub use train::{TrainOptions, train};
pub use train_error::TrainError;
