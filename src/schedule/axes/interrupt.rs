//! Whether generation can be stopped inside an answer, and what a stopped answer is worth.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where generation can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    /// Nowhere: what was begun is finished under the weights it was begun with.
    #[default]
    None,
    /// Between any two tokens.
    Token,
}

/// What becomes of an answer in flight when the weights change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUpdate {
    /// It goes on from where it is, in segments of several versions.
    #[default]
    Carry,
    /// It is begun anew with nothing kept. This favours short answers: a long one is hit more often.
    Discard,
}
