//! Environments: the contract, the spaces, the registry, the wrappers and the built-in environments.

mod environment;
mod space;

pub use environment::{EnvError, Environment, Step};
pub use space::{Action, ActionSpace, EnvSpec};
