//! What the engine is doing, in numbers.

use serde::{Deserialize, Serialize};

/// The state of the cache and the queues, and totals since the engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Pages of the KV cache.
    pub pages: usize,
    /// Pages that are in use.
    pub used_pages: usize,
    /// Bytes of memory that the pages have now.
    pub bytes: usize,
    /// Positions that the cache holds.
    pub capacity_tokens: usize,
    /// Positions whose keys and values sequences refer to; shared ones count for each.
    pub cached_tokens: usize,
    /// Sequences that are worked on.
    pub running: usize,
    /// Sequences that wait for a place.
    pub waiting: usize,
    /// Sequences that ended an answer and keep their pages for an observation.
    pub held: usize,
    /// Steps that ran a forward pass.
    pub steps: u64,
    /// Tokens that were sampled.
    pub sampled_tokens: u64,
    /// Positions that went through the model beside the one that each sampled token needs: prompts, observations, and
    /// what was read anew.
    pub prefilled_tokens: u64,
    /// Positions of prompts that were taken over instead of computed.
    pub shared_tokens: u64,
    /// How often saved keys and values were brought back from host memory for a sequence that runs.
    pub loads: u64,
    /// How often a running sequence lost its pages to an older one.
    pub preempted: u64,
}
