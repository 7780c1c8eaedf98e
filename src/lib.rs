//! Forebay: asynchronous reinforcement learning in one supervised process tree.
//!
//! Rollout actors pour experience into bounded channels; a learner draws batches, corrects for the policy lag,
//! updates, and broadcasts parameters. `docs/architecture.md` walks through the whole.

pub mod actors;
pub mod cli;
pub mod codec;
pub mod config;
pub mod env;
pub mod generate;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
pub mod kernel_check;
pub mod learner;
pub mod ops;
pub mod policy;
pub mod random;
pub mod schedule;
pub mod simulate;
pub mod telemetry;
pub mod trajectory;
