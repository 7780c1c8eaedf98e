//! What an interrupted answer keeps of the model's state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How an interrupted answer goes on, by `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Resume {
    /// Its KV cache is computed again, under the weights that are loaded then.
    #[default]
    Reprefill,
    /// Its KV cache is kept through the interruption and through updates: nothing is computed again.
    KeepKv,
    /// As [`Resume::KeepKv`], with the experts that were chosen for each token, for replay while learning.
    KeepKvAndRouting,
    /// KV lives in a pool in host memory: written back only when evicted, fetched before use.
    ExternalKv {
        /// Whether it stays valid when weights change; otherwise it is computed again then.
        #[serde(default)]
        kv_across_versions: bool,
    },
}

impl Resume {
    /// Whether the cache of an interrupted answer is used again, when its weights changed or not.
    #[must_use]
    pub fn keeps_kv(self, weights_changed: bool) -> bool {
        match self {
            Self::Reprefill => false,
            Self::KeepKv | Self::KeepKvAndRouting => true,
            Self::ExternalKv { kv_across_versions } => kv_across_versions || !weights_changed,
        }
    }

    /// Whether something of an interrupted answer is stored beside its tokens, to be freed when it ends.
    #[must_use]
    pub fn stores_state(self) -> bool {
        self != Self::Reprefill
    }
}
