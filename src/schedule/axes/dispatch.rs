//! What is dispatched at once, and what gives room for it.
//!
//! Three ways to fill a pool of C places from groups of G, as they differ in production: by *batch* the pool falls to
//! C − qG before q groups refill it; by *prompt* a group holds all of its places until its last member has ended; by
//! *sample* any G members that have ended, of whichever groups, make room for the next. The last keeps
//! C − G < live ≤ C (DeepSeek-V4.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixerConfig;

/// What is dispatched at once, by `unit`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "unit", rename_all = "snake_case", deny_unknown_fields)]
pub enum Dispatch {
    /// Unrolls of environments: groups of one, one for each actor that is free.
    Unroll,
    /// So many groups together, once there is room for all of them. 0: as many as a batch has.
    Batch {
        /// Groups at once.
        #[serde(default)]
        groups: u64,
    },
    /// A group once a whole group has ended and was graded.
    Prompt,
    /// A group once as many samples have ended, whichever groups they belong to.
    #[default]
    Sample,
    /// As by sample, and a mixer chooses the source so that every batch has its quota of each.
    Mixer(MixerConfig),
}

impl Dispatch {
    /// Groups that start together, with B groups a batch.
    #[must_use]
    pub fn quantum(&self, batch: u64) -> u64 {
        match self {
            Self::Batch { groups: 0 } => batch,
            Self::Batch { groups } => *groups,
            _ => 1,
        }
    }
}
