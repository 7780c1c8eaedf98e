//! One layer of the decoder.

use candle_core::{Result, Tensor};

use super::LAYERS;
use super::config::DecoderConfig;
use super::lora::{Adapter, LoraConfig, LoraTarget};
use crate::ops::{
    Activation, Sequence, attention, linear, mixture, reshape, rms_norm, rotary, route, sum, swiglu,
};
use crate::policy::parameters::{Initializer, Layout, ParameterId, Parameters};

/// How the rows' queries meet keys and values: packed sequences, or pages of a KV cache.
pub trait Attend {
    /// One layer's attention: queries `[N, H, D]`, keys and values `[N, G, D]`, result `[N, H, D]`.
    ///
    /// # Errors
    /// When a shape does not fit.
    fn attend(&mut self, layer: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor>;
}

/// Attention inside a pack of sequences: differentiable.
#[derive(Debug, Clone, Copy)]
pub struct PackedAttention<'a> {
    /// Rows of each sequence and of the prefix it continues.
    pub sequences: &'a [Sequence],
    /// Factor of the scores.
    pub scale: f64,
}

impl Attend for PackedAttention<'_> {
    fn attend(&mut self, _: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        attention(queries, keys, values, self.sequences, self.scale)
    }
}

/// Rotary tables and the rows' positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns<'a> {
    pub(super) cosine: &'a Tensor,
    pub(super) sine: &'a Tensor,
    /// `u32`, `[N]`.
    pub(super) positions: &'a Tensor,
}

/// A linear map.
#[derive(Debug, Clone, Copy)]
struct Projection {
    weight: ParameterId,
    bias: Option<ParameterId>,
    adapter: Option<Adapter>,
}

impl Projection {
    /// `outputs × inputs`, named `name`.
    fn new(layout: &mut Layout, name: &str, [outputs, inputs]: [usize; 2], bias: bool) -> Self {
        let spread = Initializer::Normal((1.0 / inputs as f32).sqrt());
        Self {
            weight: layout.add(format!("{name}.weight"), &[outputs, inputs], spread),
            bias: bias.then(|| layout.add(format!("{name}.bias"), &[outputs], Initializer::Constant(0.0))),
            adapter: None,
        }
    }

    fn apply(self, parameters: &Parameters, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.map(|bias| &parameters[bias]);
        let y = linear(x, parameters.weight(self.weight), bias, Activation::Identity)?;
        match self.adapter {
            Some(adapter) => y + adapter.apply(parameters, x)?,
            None => Ok(y),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum FeedForward {
    Dense {
        gate: Projection,
        up: Projection,
        down: Projection,
    },
    /// Weights of all experts stacked: gate and up `[E, F, width]`, down `[E, width, F]`.
    Experts {
        router: Projection,
        gate: ParameterId,
        up: ParameterId,
        down: ParameterId,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    attention_norm: ParameterId,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    /// Of each head's queries and keys.
    head_norms: Option<[ParameterId; 2]>,
    inner_norm: ParameterId,
    inner: FeedForward,
}

impl Layer {
    pub(super) fn new(layout: &mut Layout, index: usize, config: &DecoderConfig) -> Self {
        let prefix = format!("{LAYERS}{index}");
        let (width, head) = (config.width, config.head_size);
        let (queries, keys) = (config.heads * head, config.kv_heads * head);
        let norm = |layout: &mut Layout, name: &str, size: usize| {
            layout.add(format!("{prefix}.{name}.weight"), &[size], Initializer::Constant(1.0))
        };
        let attention_norm = norm(layout, "input_layernorm", width);
        let projection = |layout: &mut Layout, name: &str, shape: [usize; 2], bias: bool| {
            Projection::new(layout, &format!("{prefix}.{name}"), shape, bias)
        };
        let bias = config.attention_bias;
        let query = projection(layout, "self_attn.q_proj", [queries, width], bias);
        let key = projection(layout, "self_attn.k_proj", [keys, width], bias);
        let value = projection(layout, "self_attn.v_proj", [keys, width], bias);
        let output = projection(layout, "self_attn.o_proj", [width, queries], false);
        let head_norms = config
            .query_key_norm
            .then(|| ["self_attn.q_norm", "self_attn.k_norm"].map(|name| norm(layout, name, head)));
        let inner_norm = norm(layout, "post_attention_layernorm", width);
        let inner = if let Some(experts) = &config.experts {
            let (count, inner) = (experts.count, experts.inner);
            let stack = |layout: &mut Layout, name: &str, shape: [usize; 2]| {
                let spread = Initializer::Normal((1.0 / shape[1] as f32).sqrt());
                layout.add(
                    format!("{prefix}.mlp.experts.{name}.weight"),
                    &[count, shape[0], shape[1]],
                    spread,
                )
            };
            FeedForward::Experts {
                router: projection(layout, "mlp.gate", [count, width], false),
                gate: stack(layout, "gate_proj", [inner, width]),
                up: stack(layout, "up_proj", [inner, width]),
                down: stack(layout, "down_proj", [width, inner]),
            }
        } else {
            FeedForward::Dense {
                gate: projection(layout, "mlp.gate_proj", [config.inner, width], false),
                up: projection(layout, "mlp.up_proj", [config.inner, width], false),
                down: projection(layout, "mlp.down_proj", [width, config.inner], false),
            }
        };
        Self { attention_norm, query, key, value, output, head_norms, inner_norm, inner }
    }

    /// Adds adapters to the projections that are to have one.
    pub(super) fn adapt(
        &mut self,
        layout: &mut Layout,
        index: usize,
        config: &DecoderConfig,
        lora: &LoraConfig,
    ) {
        let (width, inner) = (config.width, config.inner);
        let (queries, keys) = (config.heads * config.head_size, config.kv_heads * config.head_size);
        let mut projections = vec![
            (LoraTarget::Query, &mut self.query, [queries, width]),
            (LoraTarget::Key, &mut self.key, [keys, width]),
            (LoraTarget::Value, &mut self.value, [keys, width]),
            (LoraTarget::Output, &mut self.output, [width, queries]),
        ];
        if let FeedForward::Dense { gate, up, down } = &mut self.inner {
            projections.push((LoraTarget::Gate, gate, [inner, width]));
            projections.push((LoraTarget::Up, up, [inner, width]));
            projections.push((LoraTarget::Down, down, [width, inner]));
        }
        for (target, projection, shape) in projections {
            if lora.targets.contains(&target) {
                let name = format!("{LAYERS}{index}.{}", target.path());
                projection.adapter = Some(Adapter::new(layout, &name, shape, lora));
            }
        }
    }

    pub(super) fn forward(
        &self,
        parameters: &Parameters,
        config: &DecoderConfig,
        index: usize,
        x: &Tensor,
        turns: Turns,
        forced: Option<&Tensor>,
        attend: &mut dyn Attend,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let normed = rms_norm(x, &parameters[self.attention_norm], config.norm_epsilon)?;
        let heads = |projection: Projection, count: usize| {
            let y = projection.apply(parameters, &normed)?;
            reshape(&y, (y.dim(0)?, count, config.head_size))
        };
        let turned = |x: Tensor, norm: usize| {
            let x = match self.head_norms {
                Some(norms) => rms_norm(&x, &parameters[norms[norm]], config.norm_epsilon)?,
                None => x,
            };
            rotary(&x, turns.cosine, turns.sine, turns.positions)
        };
        let queries = turned(heads(self.query, config.heads)?, 0)?;
        let keys = turned(heads(self.key, config.kv_heads)?, 1)?;
        let values = heads(self.value, config.kv_heads)?;
        let mixed = attend.attend(index, &queries, &keys, &values)?;
        let mixed = reshape(&mixed, (mixed.dim(0)?, config.heads * config.head_size))?;
        let x = sum(x, &self.output.apply(parameters, &mixed)?)?;
        let normed = rms_norm(&x, &parameters[self.inner_norm], config.norm_epsilon)?;
        let (inner, ids) = self.feed_forward(parameters, config, &normed, forced)?;
        Ok((sum(&x, &inner)?, ids))
    }

    fn feed_forward(
        &self,
        parameters: &Parameters,
        config: &DecoderConfig,
        x: &Tensor,
        forced: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        match (self.inner, &config.experts) {
            (FeedForward::Experts { router, gate, up, down }, Some(experts)) => {
                let logits = router.apply(parameters, x)?;
                let (ids, weights) = route(&logits, experts.per_token, experts.normalise, forced)?;
                let [gate, up, down] = [gate, up, down].map(|id| &parameters[id]);
                Ok((mixture(x, &ids, &weights, gate, up, down)?, Some(ids)))
            }
            (FeedForward::Dense { gate, up, down }, _) => {
                let inner = swiglu(&gate.apply(parameters, x)?, &up.apply(parameters, x)?)?;
                Ok((down.apply(parameters, &inner)?, None))
            }
            (FeedForward::Experts { .. }, None) => {
                candle_core::bail!("a layer of experts without their settings")
            }
        }
    }
}
