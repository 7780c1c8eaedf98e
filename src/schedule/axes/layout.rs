//! Whether generation and learning share their devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where generation and learning happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// On the same devices, taking turns.
    #[default]
    Colocated,
    /// Each on devices of its own, at once.
    Decoupled,
}
