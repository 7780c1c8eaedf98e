//! Environments: the contract, the spaces, the registry, the wrappers and the built-in environments.
//!
//! `docs/environments.md` shows how to write one and how to register it.

pub mod builtin;
mod chance;
mod checked;
#[cfg(test)]
mod contract_tests;
mod environment;
mod hint;
pub mod minatar;
mod options;
mod registry;
mod space;
mod state;
pub mod task;
mod wrappers;

pub use chance::Chance;
pub use checked::Checked;
pub use environment::{EnvError, Environment, Step};
pub use options::{EnvOptions, NoOptions};
pub use registry::{EnvEntry, Registry};
pub use space::{Action, ActionSpace, EnvSpec};
pub use wrappers::{FrameStack, TimeLimit, WrapperConfig};

/// The guide's example, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/environments.md")]
struct Guide;
