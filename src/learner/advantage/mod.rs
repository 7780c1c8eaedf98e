//! Advantage estimators: pure functions on plain slices, `f32` in runs and `f64` in golden tests.
//!
//! Arrays are time-major `[T, B]`, row-major, unless a function says otherwise. Two rules hold everywhere:
//!
//! - a terminated step has no successor, a truncated one is succeeded by the true final observation, and nothing
//!   of the next episode in the same column is ever used (see [`Boundaries`]);
//! - values that must be ignored are selected away, never multiplied by zero, so they may hold anything, NaN too.

mod boundaries;
mod error;
mod gae;
mod returns;
mod skip_observation_gae;
mod token_vtrace;
mod vtrace;

pub use boundaries::Boundaries;
pub use error::AdvantageError;
pub use gae::{GaeTargets, gae};
pub use returns::{discounted_returns, n_step_returns, upgo_returns};
pub use skip_observation_gae::{
    SkipObservationGaeConfig, SkipObservationGaeTargets, TokenRow, skip_observation_gae,
};
pub use token_vtrace::{TokenVtraceConfig, TokenVtraceTargets, token_vtrace};
pub use vtrace::{VtraceConfig, VtraceInput, VtraceTargets, vtrace};
