//! Environments: the contract, the spaces, the registry, the wrappers and the built-in environments.

mod chance;
mod environment;
pub mod minatar;
mod space;

pub use chance::Chance;
pub use environment::{EnvError, Environment, Step};
pub use space::{Action, ActionSpace, EnvSpec};
