//! Low-rank adapters: `y = W x + (alpha / rank) B (A x)`, where the pretrained W is frozen and A `[rank, inputs]`
//! and B `[outputs, rank]` are trained (Hu et al., "LoRA: low-rank adaptation of large language models", 2021).
//!
//! Adapters are parameters of the layout, after all of the base model's: the base model's come in the same order,
//! with the same names and initial values, as without adapters. B starts at zero, so that training starts from the
//! base model. In forward passes they stay apart from the weights, in generation as in training, so that both
//! compute the same bits; [`merged`] puts them together for export. In files they have the names of Hugging Face's
//! peft.

use std::collections::BTreeMap;

use candle_core::{Device, Result, Tensor, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::DecoderConfig;
use crate::ops::{Activation, linear};
use crate::policy::parameters::{Initializer, Layout, ParameterId, Parameters};

/// What peft puts before a parameter's name.
const PEFT_PREFIX: &str = "base_model.model.";
const DOWN: &str = ".lora_A.weight";
const UP: &str = ".lora_B.weight";

/// A projection that may have an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoraTarget {
    /// Queries.
    #[serde(rename = "q_proj")]
    Query,
    /// Keys.
    #[serde(rename = "k_proj")]
    Key,
    /// Values.
    #[serde(rename = "v_proj")]
    Value,
    /// What attention gives.
    #[serde(rename = "o_proj")]
    Output,
    /// Gate of the feed-forward layer.
    #[serde(rename = "gate_proj")]
    Gate,
    /// What the gate lets through.
    #[serde(rename = "up_proj")]
    Up,
    /// Result of the feed-forward layer.
    #[serde(rename = "down_proj")]
    Down,
}

impl LoraTarget {
    /// Its path within a layer.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::Output => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    fn in_feed_forward(self) -> bool {
        matches!(self, Self::Gate | Self::Up | Self::Down)
    }
}

/// Settings of low-rank adapters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of what is added to each weight.
    pub rank: usize,
    /// What is added is multiplied by alpha / rank.
    pub alpha: f64,
    /// Projections that get an adapter, in every layer.
    pub targets: Vec<LoraTarget>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        use LoraTarget::{Down, Gate, Key, Output, Query, Up, Value};
        Self { rank: 16, alpha: 32.0, targets: vec![Query, Key, Value, Output, Gate, Up, Down] }
    }
}

impl LoraConfig {
    /// Checks the settings for a decoder.
    ///
    /// # Errors
    /// The first field that does not fit, and why.
    pub fn validate(&self, decoder: &DecoderConfig) -> std::result::Result<(), String> {
        self.check_numbers()?;
        if decoder.experts.is_some() && self.targets.iter().any(|target| target.in_feed_forward()) {
            return Err(
                "`targets` names projections of the feed-forward layer, which experts stand in for here"
                    .into(),
            );
        }
        Ok(())
    }

    /// Checks what can be told without the decoder.
    ///
    /// # Errors
    /// The first field that is out of range, and why.
    pub fn check_numbers(&self) -> std::result::Result<(), String> {
        if self.rank == 0 {
            return Err("`rank` must be at least 1".into());
        }
        if !self.alpha.is_finite() {
            return Err(format!("`alpha` ({}) must be a number", self.alpha));
        }
        if self.targets.is_empty() {
            return Err("`targets` must name at least one projection".into());
        }
        Ok(())
    }

    /// alpha / rank.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }
}

/// The adapter of one projection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Adapter {
    /// A.
    down: ParameterId,
    /// B.
    up: ParameterId,
    scale: f64,
}

impl Adapter {
    pub(super) fn new(
        layout: &mut Layout,
        name: &str,
        [outputs, inputs]: [usize; 2],
        config: &LoraConfig,
    ) -> Self {
        // The spread of a uniform distribution over ±1/√inputs, which is what peft draws from.
        let spread = Initializer::Normal((1.0 / (3.0 * inputs as f32)).sqrt());
        Self {
            down: layout.add(format!("{name}{DOWN}"), &[config.rank, inputs], spread),
            up: layout.add(format!("{name}{UP}"), &[outputs, config.rank], Initializer::Constant(0.0)),
            scale: config.scale(),
        }
    }

    /// What it adds to the projection of `x`.
    pub(super) fn apply(self, parameters: &Parameters, x: &Tensor) -> Result<Tensor> {
        let few = linear(x, parameters.weight(self.down), None, Activation::Identity)?;
        linear(&(few * self.scale)?, parameters.weight(self.up), None, Activation::Identity)
    }
}

/// Whether a parameter of this name belongs to an adapter.
#[must_use]
pub fn is_adapter(name: &str) -> bool {
    name.ends_with(DOWN) || name.ends_with(UP)
}

/// The base model's parameters, each weight with its adapter put in: `W + (alpha / rank) B A`.
///
/// # Errors
/// When half an adapter is missing, or a device fails.
pub fn merged(parameters: &Parameters, config: &LoraConfig) -> Result<Vec<(String, Tensor)>> {
    let all: BTreeMap<&str, &Tensor> = parameters.iter().collect();
    let base = parameters.iter().filter(|(name, _)| !is_adapter(name));
    base.map(|(name, weight)| {
        let weight = weight.detach();
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        let half = |suffix| all.get(format!("{stem}{suffix}").as_str());
        let weight = match (half(DOWN), half(UP)) {
            (Some(down), Some(up)) => (weight + (up.detach().matmul(&down.detach())? * config.scale())?)?,
            (None, None) => weight,
            _ => bail!("`{name}` has half an adapter: both lora_A and lora_B are needed"),
        };
        Ok((name.to_owned(), weight))
    })
    .collect()
}

/// The adapters alone, under the names that peft gives them.
#[must_use]
pub fn to_peft(parameters: &Parameters) -> Vec<(String, Tensor)> {
    let adapters = parameters.iter().filter(|(name, _)| is_adapter(name));
    adapters.map(|(name, tensor)| (format!("{PEFT_PREFIX}{name}"), tensor.detach())).collect()
}

/// The parameters of a decoder with adapters: the base model's from `base`, its adapters' from `adapters` (under
/// peft's names), or as they start where there are none.
///
/// # Errors
/// Names the first parameter that is missing, superfluous or of another shape.
pub fn adopt(
    layout: &Layout,
    base: Vec<(String, Tensor)>,
    adapters: Option<Vec<(String, Tensor)>>,
    seed: u64,
    device: &Device,
) -> Result<Parameters> {
    let adapters = match adapters {
        None => layout.draw(seed, device, is_adapter)?,
        Some(adapters) => adapters
            .into_iter()
            .map(|(name, tensor)| match name.strip_prefix(PEFT_PREFIX) {
                Some(own) if is_adapter(own) => Ok((own.to_owned(), tensor)),
                _ => bail!("`{name}` is no parameter of an adapter: names begin with `{PEFT_PREFIX}`"),
            })
            .collect::<Result<_>>()?,
    };
    layout.adopt(base.into_iter().chain(adapters).collect(), device)
}

#[cfg(test)]
#[path = "lora_tests.rs"]
mod tests;
