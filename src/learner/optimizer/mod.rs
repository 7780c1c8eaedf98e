//! Optimisers: the update rules as pure functions on slices, and [`Optimizer`], which owns the state of one.
//!
//! Invariants:
//!
//! - Every number that the next update depends on is in [`Optimizer::state`], so a checkpoint can hold it.
//! - A gradient that is not finite never reaches a parameter or a moment: the step is refused with the first such
//!   parameter's name and nothing has changed.
//! - On the CPU parameters are updated in place, on the threads of [`crate::ops::with_threads`] and at the width of the
//!   processor's vectors, with results that depend on neither; other devices use composed tensor operations.

mod adamw;
mod clip;
mod config;
mod error;
mod in_place;
mod rmsprop;
mod rule;
mod stepper;

pub use adamw::{AdamwConfig, adamw_update};
pub use clip::{clip_scale, global_norm, norm_of, squares, sum_of_squares};
pub use config::OptimizerConfig;
pub use error::OptimizerError;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
pub(crate) use rmsprop::rmsprop_factors;
pub use rmsprop::{EpsilonPlace, RmspropTfConfig, RmspropTorchConfig, rmsprop_accumulate, rmsprop_update};
pub use rule::Step;
pub use stepper::{Optimizer, StepReport};
