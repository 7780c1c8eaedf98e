//! Learning: advantages and objectives as pure functions, optimisers, schedules.

pub mod advantage;
pub mod objective;
pub mod optimizer;
mod real;
pub mod schedule;

pub use real::Real;
