//! Settings of the engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GenerateError;
use crate::ops::KEY_TILE;

/// Settings of the generation engine. None of them changes what is generated, `log_prob_noise` and `force_experts`
/// excepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Positions that the KV cache holds, of all sequences together; rounded up to whole pages of 64.
    pub cache_tokens: usize,
    /// Sequences that are worked on at a time.
    pub max_running: usize,
    /// Positions of prompts (and of sequences that are read anew) that a step works on, beside a row for each sequence
    /// that decodes.
    pub prefill_tokens: usize,
    /// Record which experts ran for each token.
    pub record_experts: bool,
    /// When a sequence is read anew, let the recorded experts run instead of the router's choice.
    pub force_experts: bool,
    /// Standard deviation of a seeded normal error on the recorded log-probabilities (nats), to study a mismatch
    /// between generation and training; 0: none.
    pub log_prob_noise: f32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_tokens: 16_384,
            max_running: 64,
            prefill_tokens: 256,
            record_experts: false,
            force_experts: false,
            log_prob_noise: 0.0,
        }
    }
}

impl EngineConfig {
    /// Checks the ranges of the values.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn validate(&self) -> Result<(), GenerateError> {
        let refuse = |field, why: &str| Err(GenerateError::Config { field, why: why.into() });
        let counts = [
            ("cache_tokens", self.cache_tokens),
            ("max_running", self.max_running),
            ("prefill_tokens", self.prefill_tokens),
        ];
        if let Some((field, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return refuse(field, "must be at least 1");
        }
        if self.pages() > u32::MAX as usize {
            return refuse("cache_tokens", "is more than can be addressed");
        }
        if !(self.log_prob_noise >= 0.0 && self.log_prob_noise.is_finite()) {
            return refuse("log_prob_noise", "must be 0 or a positive number");
        }
        if self.force_experts && !self.record_experts {
            return refuse("force_experts", "needs `record_experts`, else there is nothing to force");
        }
        Ok(())
    }

    /// Positions that the cache really holds.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.pages() * KEY_TILE
    }

    /// Pages of the cache.
    pub(super) fn pages(&self) -> usize {
        self.cache_tokens.div_ceil(KEY_TILE)
    }
}
