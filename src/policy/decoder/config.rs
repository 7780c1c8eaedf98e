//! The shape of a decoder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Experts in place of a feed-forward layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExpertsConfig {
    /// Experts of each layer (E).
    pub count: usize,
    /// Experts that run for a token (k).
    pub per_token: usize,
    /// Width inside an expert.
    pub inner: usize,
    /// Whether the weights of a token's experts sum to 1.
    pub normalise: bool,
}

impl Default for ExpertsConfig {
    fn default() -> Self {
        Self { count: 8, per_token: 2, inner: 128, normalise: true }
    }
}

/// How rotary frequencies are stretched for contexts longer than the model was pretrained with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Positions divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Long wavelengths divided by a factor, short ones kept, those between blended (Llama 3.1).
    Llama3 {
        /// The factor.
        factor: f64,
        /// Wavelengths longer than the pretrained context over this are divided.
        low_frequency_factor: f64,
        /// Wavelengths shorter than the pretrained context over this are kept.
        high_frequency_factor: f64,
        /// Context the model was pretrained with.
        original_context: usize,
    },
    /// Blended by the number of turns in the pretrained context, with a larger softmax temperature (Peng et al.,
    /// "YaRN", 2023).
    Yarn {
        /// The factor.
        factor: f64,
        /// Context the model was pretrained with.
        original_context: usize,
        /// Frequencies that turn more often than this are kept.
        beta_fast: f64,
        /// Frequencies that turn less often than this are divided.
        beta_slow: f64,
        /// Factor on sines and cosines; absent: `0.1 ln(factor) + 1`.
        attention_factor: Option<f64>,
    },
}

/// The shape of a decoder: Llama, Qwen2, Qwen3, SmolLM2 and their like, dense or with experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecoderConfig {
    /// Token ids (V).
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Width inside a dense feed-forward layer.
    pub inner: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads (H).
    pub heads: usize,
    /// Heads of keys and values (G); H is a multiple of it.
    pub kv_heads: usize,
    /// Size of a head (D), even.
    pub head_size: usize,
    /// Positions it may be used with.
    pub context: usize,
    /// Epsilon of all norms.
    pub norm_epsilon: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// How rotary frequencies are stretched.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the head shares the token embedding.
    pub tied: bool,
    /// Biases on queries, keys and values.
    pub attention_bias: bool,
    /// A norm on each head's queries and keys.
    pub query_key_norm: bool,
    /// Experts in place of the feed-forward layers.
    pub experts: Option<ExpertsConfig>,
    /// A head that estimates values.
    pub value_head: bool,
}

impl Default for DecoderConfig {
    fn default() -> Self {
        Self {
            vocabulary: 64,
            width: 128,
            inner: 384,
            layers: 4,
            heads: 4,
            kv_heads: 4,
            head_size: 32,
            context: 256,
            norm_epsilon: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: None,
            tied: true,
            attention_bias: false,
            query_key_norm: false,
            experts: None,
            value_head: false,
        }
    }
}

impl DecoderConfig {
    /// Checks that the sizes fit each other.
    ///
    /// # Errors
    /// The first field that does not fit, and why.
    pub fn validate(&self) -> Result<(), String> {
        let positive = [
            ("vocabulary", self.vocabulary),
            ("width", self.width),
            ("inner", self.inner),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_size", self.head_size),
            ("context", self.context),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("`{name}` must be at least 1"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "`heads` ({}) must be a multiple of `kv_heads` ({})",
                self.heads, self.kv_heads
            ));
        }
        if !self.head_size.is_multiple_of(2) {
            return Err(format!("`head_size` ({}) must be even", self.head_size));
        }
        match &self.experts {
            Some(experts)
                if experts.per_token == 0 || experts.per_token > experts.count || experts.inner == 0 =>
            {
                Err("`experts` needs `per_token` from 1 to `count`, and `inner` at least 1".into())
            }
            _ => Ok(()),
        }
    }

    /// Factor of the attention scores.
    #[must_use]
    pub fn attention_scale(&self) -> f64 {
        1.0 / (self.head_size as f64).sqrt()
    }
}
