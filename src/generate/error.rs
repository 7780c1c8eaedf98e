//! What can go wrong while generating.

use thiserror::Error;

use crate::trajectory::TrajectoryId;

/// Why the engine refused something or a step failed. After any of them the engine can go on: nothing of what was
/// refused is kept, and a failed step has not advanced the sequences that it failed for.
#[derive(Debug, Error)]
pub enum GenerateError {
    /// A setting is out of its range.
    #[error("generation: `{field}` {why}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What it must be.
        why: String,
    },
    /// The KV cache cannot be made, or made again after its memory was given back.
    #[error(
        "generation: a KV cache of {tokens} positions cannot be made; where memory is short, lower `cache_tokens`, or \
         what the learner needs on the same device"
    )]
    Cache {
        /// Positions that it was to hold.
        tokens: usize,
        /// Why not.
        source: candle_core::Error,
    },
    /// A request that cannot be served.
    #[error("generation refused trajectory {id}: {why}")]
    Request {
        /// Which one.
        id: TrajectoryId,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A sequence that would not fit into the cache even alone.
    #[error(
        "generation refused trajectory {id}: it may grow to {tokens} tokens, which need {needed} pages of the KV \
         cache, and there are {pages}; raise `cache_tokens` or ask for fewer tokens"
    )]
    TooLarge {
        /// Which one.
        id: TrajectoryId,
        /// Tokens that it may have in the end.
        tokens: usize,
        /// Pages that it would need.
        needed: usize,
        /// Pages that there are.
        pages: usize,
    },
    /// A trajectory that the engine does not have in the state that was asked for.
    #[error("generation has no {state} trajectory {id}")]
    Unknown {
        /// Which one.
        id: TrajectoryId,
        /// The state.
        state: &'static str,
    },
    /// The next token of a trajectory could not be drawn.
    #[error("drawing token {position} of trajectory {id} under version {version} failed")]
    Draw {
        /// Which one.
        id: TrajectoryId,
        /// Position in the sequence.
        position: usize,
        /// Version of the weights.
        version: crate::trajectory::Version,
        /// What was wrong with the logits.
        source: candle_core::Error,
    },
    /// The forward pass failed.
    #[error("the forward pass of generation failed")]
    Forward(#[from] candle_core::Error),
}

impl GenerateError {
    pub(super) fn request(id: TrajectoryId, why: impl Into<String>) -> Self {
        Self::Request { id, why: why.into() }
    }
}
