//! The decoder: one transformer for all the language models there are.
//!
//! Llama, Qwen2, Qwen3 and SmolLM2 differ in a few switches ([`DecoderConfig`]); a layer is norm, grouped attention
//! with rotary positions, norm, and a gated feed-forward network or a mixture of experts. The network is written once
//! and is the same for packed training and for generation against a KV cache: how queries meet keys is the caller's
//! part ([`Attend`]). Parameters carry the names that Hugging Face checkpoints use (experts stacked).
//!
//! Invariants: a token's row depends on its sequence only (the operators are row-invariant), so what generation
//! records and training recomputes are the same bits; every parameter gets a gradient.

mod backward;
mod block;
mod config;
#[cfg(test)]
mod fixtures;
mod gradients;
mod inject;
mod layer;
pub mod lora;
mod packed;
mod rope;
mod value_function;

use candle_core::{DType, Device, Result, Tensor};

pub use backward::{Checkpointing, ScoreGradients, Scores, TrainingPass};
pub use block::{BlockKind, BlockNorms};
pub use config::{DecoderConfig, ExpertsConfig, RopeScaling};
pub use gradients::Gradients;
pub use layer::{Attend, PackedAttention};
pub use lora::{LoraConfig, LoraTarget};
pub use packed::{Pack, PackError, Packing, Place};

use super::name_patterns::NamePatterns;
use super::parameters::{Initializer, Layout, ParameterId, Parameters};
use crate::ops::{
    Activation, CandidateSets, WeightRef, candidate_log_prob, embedding, linear, rms_norm,
    vocabulary_log_prob,
};
use layer::Layer;

/// Name of the value head.
pub(super) const VALUE_HEAD: &str = "value_head.weight";

/// Name of the token embedding.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// What the names of a layer's parameters begin with, before its index.
const LAYERS: &str = "model.layers.";

/// Standard deviation of initial embeddings.
const INITIAL: f32 = 0.02;

/// Tokens to run through the decoder: N rows, whatever sequences they belong to.
#[derive(Debug, Clone, Copy)]
pub struct DecoderInput<'a> {
    /// Token ids, `[N]`.
    pub tokens: &'a [u32],
    /// Position of each token in its sequence, `[N]`.
    pub positions: &'a [u32],
    /// Experts to use instead of the router's choice, `[N, layers, experts a token]`.
    pub experts: Option<&'a [u16]>,
}

/// What comes out for N rows.
#[derive(Debug)]
pub struct Hidden {
    /// After the last norm, `[N, width]`.
    pub states: Tensor,
    /// Experts that ran, `[N, layers, experts a token]`; empty for a dense model.
    pub experts: Vec<u16>,
}

/// An architecture; its parameters are an argument.
#[derive(Debug, Clone)]
pub struct Decoder {
    config: DecoderConfig,
    adapters: Option<LoraConfig>,
    layout: Layout,
    tokens: ParameterId,
    layers: Vec<Layer>,
    norm: ParameterId,
    head: Option<ParameterId>,
    value: Option<ParameterId>,
    /// Whether it is a value function, which says nothing of tokens.
    values_only: bool,
    cosine: Tensor,
    sine: Tensor,
}

impl Decoder {
    /// The architecture that a configuration describes, for use on `device`.
    ///
    /// # Errors
    /// When its sizes do not fit each other.
    pub fn new(config: DecoderConfig, device: &Device) -> Result<Self> {
        Self::with_adapters(config, None, device)
    }

    /// The same with adapters beside its projections, whose parameters come after all others.
    ///
    /// # Errors
    /// When its sizes, or the settings of its adapters, do not fit each other.
    pub fn with_adapters(
        config: DecoderConfig,
        adapters: Option<&LoraConfig>,
        device: &Device,
    ) -> Result<Self> {
        let refuse = |what: &str, why: String| candle_core::Error::Msg(format!("{what}: {why}"));
        config.validate().map_err(|why| refuse("decoder", why))?;
        adapters.map_or(Ok(()), |lora| lora.validate(&config)).map_err(|why| refuse("adapters", why))?;
        let mut layout = Layout::default();
        let (vocabulary, width) = (config.vocabulary, config.width);
        let tokens = layout.add(EMBEDDING, &[vocabulary, width], Initializer::Normal(INITIAL));
        let mut layers: Vec<Layer> =
            (0..config.layers).map(|index| Layer::new(&mut layout, index, &config)).collect();
        let norm = layout.add("model.norm.weight", &[width], Initializer::Constant(1.0));
        let head = (!config.tied)
            .then(|| layout.add("lm_head.weight", &[vocabulary, width], Initializer::Normal(INITIAL)));
        let value =
            config.value_head.then(|| layout.add(VALUE_HEAD, &[1, width], Initializer::Constant(0.0)));
        if let Some(lora) = adapters {
            for (index, layer) in layers.iter_mut().enumerate() {
                layer.adapt(&mut layout, index, &config, lora);
            }
        }
        let (cosine, sine) = rope::tables(&config, device)?;
        let adapters = adapters.cloned();
        Ok(Self {
            config,
            adapters,
            layout,
            tokens,
            layers,
            norm,
            head,
            value,
            values_only: false,
            cosine,
            sine,
        })
    }

    /// The same architecture for parameters of another float type.
    ///
    /// # Errors
    /// When a device fails.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        let (cosine, sine) = (self.cosine.to_dtype(dtype)?, self.sine.to_dtype(dtype)?);
        Ok(Self { cosine, sine, ..self.clone() })
    }

    /// The same architecture for use on another device, with parameters of a float type.
    ///
    /// # Errors
    /// When a device fails.
    pub fn placed(&self, device: &Device, dtype: DType) -> Result<Self> {
        // Made anew, so that tables in f32 are not those that were rounded for a shorter type.
        let (cosine, sine) = rope::tables(&self.config, device)?;
        let (cosine, sine) = (cosine.to_dtype(dtype)?, sine.to_dtype(dtype)?);
        Ok(Self { cosine, sine, ..self.clone() })
    }

    /// The float type that it computes in.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.cosine.dtype()
    }

    /// Its shape.
    #[must_use]
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Settings of its adapters.
    #[must_use]
    pub fn adapters(&self) -> Option<&LoraConfig> {
        self.adapters.as_ref()
    }

    /// Whether the parameter of this name is trained: where there are adapters, they and the value head alone; and
    /// none that is frozen.
    #[must_use]
    pub fn is_trained(&self, name: &str, frozen: &NamePatterns) -> bool {
        let open = self.adapters.is_none() || lora::is_adapter(name) || name == VALUE_HEAD;
        open && !frozen.matches(name)
    }

    /// The lowest layer with a variable among its parameters: 0 when the embedding is one, and the number of layers when
    /// nothing but what comes after them is.
    fn lowest_trained(&self, parameters: &Parameters) -> usize {
        let layer = |name: &str| match name.strip_prefix(LAYERS).and_then(|rest| rest.split_once('.')) {
            Some((index, _)) => index.parse().unwrap_or(0),
            None if name == EMBEDDING => 0,
            None => self.layers.len(),
        };
        let variables = parameters.iter().filter(|(_, tensor)| tensor.is_variable());
        variables.map(|(name, _)| layer(name)).min().unwrap_or(self.layers.len())
    }

    /// Where it runs.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.cosine.device()
    }

    /// Its parameters.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Experts recorded for a token: layers times experts a token; 0 for a dense model.
    #[must_use]
    pub fn experts_per_row(&self) -> usize {
        self.config.experts.as_ref().map_or(0, |experts| experts.per_token * self.config.layers)
    }

    /// Experts that run for a token in a layer; 0 for a dense model.
    #[must_use]
    pub fn experts_per_layer(&self) -> usize {
        self.config.experts.as_ref().map_or(0, |experts| experts.per_token)
    }

    /// Runs tokens through all layers.
    ///
    /// # Errors
    /// When a token or position is out of range, or a shape does not fit.
    pub fn hidden(
        &self,
        parameters: &Parameters,
        input: DecoderInput,
        attend: &mut dyn Attend,
    ) -> Result<Hidden> {
        let device = self.cosine.device();
        let positions = Tensor::from_slice(input.positions, input.positions.len(), device)?;
        let mut x = self.embed(parameters, input.tokens)?;
        let rows = input.tokens.len();
        let mut experts = vec![0; rows * self.experts_per_row()];
        for index in 0..self.layers.len() {
            let forced = self.forced(input.experts, index)?;
            let (y, ids) = self.layer(parameters, index, &x, &positions, forced.as_ref(), attend)?;
            if let Some(ids) = ids {
                self.record(&ids, index, &mut experts)?;
            }
            x = y;
        }
        Ok(Hidden { states: self.normed(parameters, &x)?, experts })
    }

    /// The first residual stream, `[N, width]`.
    pub fn embed(&self, parameters: &Parameters, tokens: &[u32]) -> Result<Tensor> {
        let ids = Tensor::from_slice(tokens, tokens.len(), self.cosine.device())?;
        embedding(parameters.table(self.tokens), &ids)
    }

    /// One layer: the next residual stream and the experts that ran (`u32`, `[N, experts a token]`).
    pub fn layer(
        &self,
        parameters: &Parameters,
        index: usize,
        x: &Tensor,
        positions: &Tensor,
        forced: Option<&Tensor>,
        attend: &mut dyn Attend,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let turns = layer::Turns { cosine: &self.cosine, sine: &self.sine, positions };
        self.layers[index].forward(parameters, &self.config, index, x, turns, forced, attend)
    }

    /// The last norm.
    pub fn normed(&self, parameters: &Parameters, x: &Tensor) -> Result<Tensor> {
        rms_norm(x, &parameters[self.norm], self.config.norm_epsilon)
    }

    /// Logits of hidden states, `[N, vocabulary]`.
    pub fn logits(&self, parameters: &Parameters, states: &Tensor) -> Result<Tensor> {
        linear(states, self.head(parameters), None, Activation::Identity)
    }

    /// Log-probability of a target and entropy for each row, `[N, 2]`, at a sampling temperature.
    pub fn log_probs(
        &self,
        parameters: &Parameters,
        states: &Tensor,
        targets: &[u32],
        temperature: f64,
    ) -> Result<Tensor> {
        let targets = Tensor::from_slice(targets, targets.len(), states.device())?;
        vocabulary_log_prob(states, parameters.table(self.head.unwrap_or(self.tokens)), &targets, temperature)
    }

    /// [`Decoder::log_probs`] within the candidates that each target was sampled among; an empty set means all tokens.
    ///
    /// # Errors
    /// When a shape does not fit, or a target is not among its candidates.
    pub fn candidate_log_probs(
        &self,
        parameters: &Parameters,
        states: &Tensor,
        targets: &[u32],
        sets: &CandidateSets,
        temperature: f64,
    ) -> Result<Tensor> {
        let targets = Tensor::from_slice(targets, targets.len(), states.device())?;
        let head = parameters.table(self.head.unwrap_or(self.tokens));
        candidate_log_prob(states, head, &targets, sets.filled(self.config.vocabulary), temperature)
    }

    /// Values of hidden states, `[N]`; `None` without a value head.
    pub fn values(&self, parameters: &Parameters, states: &Tensor) -> Result<Option<Tensor>> {
        let Some(value) = self.value else { return Ok(None) };
        linear(states, parameters.weight(value), None, Activation::Identity)?.squeeze(1).map(Some)
    }

    fn head<'a>(&self, parameters: &'a Parameters) -> WeightRef<'a> {
        parameters.weight(self.head.unwrap_or(self.tokens))
    }

    /// One layer's part of forced experts.
    fn forced(&self, experts: Option<&[u16]>, layer: usize) -> Result<Option<Tensor>> {
        let (Some(all), Some(config)) = (experts, &self.config.experts) else { return Ok(None) };
        let (k, width) = (config.per_token, self.experts_per_row());
        let own: Vec<u32> = all
            .chunks_exact(width)
            .flat_map(|row| row[layer * k..(layer + 1) * k].iter().map(|&id| u32::from(id)))
            .collect();
        Tensor::from_vec(own, (all.len() / width, k), self.cosine.device()).map(Some)
    }

    /// Writes one layer's experts into the rows of all layers' experts.
    fn record(&self, ids: &Tensor, layer: usize, all: &mut [u16]) -> Result<()> {
        let (k, width) = (ids.dim(1)?, self.experts_per_row());
        let ids: Vec<u32> = ids.flatten_all()?.to_vec1()?;
        for (row, ids) in all.chunks_exact_mut(width).zip(ids.chunks_exact(k)) {
            for (place, id) in row[layer * k..].iter_mut().zip(ids) {
                *place = *id as u16;
            }
        }
        Ok(())
    }
}
