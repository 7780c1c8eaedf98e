//! Metadata of a GGUF file, and the decoder that it describes.

use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};

use super::super::PretrainedError;
use crate::policy::{DecoderConfig, ExpertsConfig, RopeScaling};

const ARCHITECTURE: &str = "general.architecture";
const SUPPORTED: &str = "supported are llama, qwen2, qwen3 and qwen3moe";

/// What Llama 3.1 and its successors were pretrained with; their GGUF files keep only the resulting frequencies.
const LLAMA3_CONTEXT: usize = 8192;

/// A file's metadata; every error names the file, the key and its value.
#[derive(Clone, Copy)]
pub(super) struct Metadata<'a> {
    pub(super) path: &'a Path,
    pub(super) content: &'a Content,
}

impl<'a> Metadata<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.content.metadata.get(key)
    }

    pub(super) fn wrong(self, key: &str, why: impl Into<String>) -> PretrainedError {
        let value = match self.get(key) {
            None => "missing".to_owned(),
            Some(Value::String(text)) => format!("\"{text}\""),
            Some(Value::Array(values)) => format!("a list of {}", values.len()),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(number) => whole(number).map_or_else(|| format!("{number:?}"), |number| number.to_string()),
        };
        PretrainedError::field(self.path, key, &value, why)
    }

    pub(super) fn text(self, key: &str) -> Result<Option<&'a str>, PretrainedError> {
        self.read(key, "must be a text", |value| value.to_string().ok().map(String::as_str))
    }

    pub(super) fn flag(self, key: &str) -> Result<Option<bool>, PretrainedError> {
        self.read(key, "must be true or false", |value| value.to_bool().ok())
    }

    pub(super) fn size(self, key: &str) -> Result<Option<usize>, PretrainedError> {
        self.read(key, "must be a whole number", |value| usize::try_from(whole(value)?).ok())
    }

    pub(super) fn number(self, key: &str) -> Result<Option<f64>, PretrainedError> {
        self.read(key, "must be a number", |value| match value {
            Value::F32(number) => Some(f64::from(*number)),
            Value::F64(number) => Some(*number),
            other => whole(other).map(|number| number as f64),
        })
    }

    pub(super) fn list(self, key: &str) -> Result<Option<&'a [Value]>, PretrainedError> {
        self.read(key, "must be a list", |value| value.to_vec().ok().map(Vec::as_slice))
    }

    /// A list of texts that must be there.
    pub(super) fn texts(self, key: &str) -> Result<Vec<&'a str>, PretrainedError> {
        let list = self.list(key)?.ok_or_else(|| self.wrong(key, "the tokenizer needs it"))?;
        let texts = list.iter().map(|value| value.to_string().ok().map(String::as_str));
        texts.collect::<Option<_>>().ok_or_else(|| self.wrong(key, "must hold texts"))
    }

    fn read<T>(
        self,
        key: &str,
        why: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, PretrainedError> {
        self.get(key).map(|value| convert(value).ok_or_else(|| self.wrong(key, why))).transpose()
    }

    /// The name of the architecture, if it is supported.
    pub(super) fn architecture(self) -> Result<&'a str, PretrainedError> {
        match self.text(ARCHITECTURE)? {
            Some(known @ ("llama" | "qwen2" | "qwen3" | "qwen3moe")) => Ok(known),
            _ => Err(self.wrong(ARCHITECTURE, SUPPORTED)),
        }
    }

    /// The decoder that the metadata describe. `frequency_factors` are the divisors of the rotary frequencies, where the
    /// file has them.
    pub(super) fn config(self, frequency_factors: Option<&[f32]>) -> Result<DecoderConfig, PretrainedError> {
        let architecture = self.architecture()?;
        let key = |name: &str| format!("{architecture}.{name}");
        let needed = |name: &str| {
            let key = key(name);
            self.size(&key)?.ok_or_else(|| self.wrong(&key, "this architecture needs it"))
        };
        let (width, heads) = (needed("embedding_length")?, needed("attention.head_count")?);
        let kv_heads = self.size(&key("attention.head_count_kv"))?.unwrap_or(heads);
        let head_size = self.size(&key("attention.key_length"))?.unwrap_or(width / heads.max(1));
        let rotated = key("rope.dimension_count");
        if self.size(&rotated)?.is_some_and(|size| size != head_size) {
            return Err(
                self.wrong(&rotated, format!("only whole heads, of size {head_size}, can be rotated"))
            );
        }
        let window = key("attention.sliding_window");
        let context = needed("context_length")?;
        if self.size(&window)?.is_some_and(|size| size > 0 && size < context) {
            return Err(self.wrong(&window, "attention over a sliding window is not supported"));
        }
        let tensor = |name: &str| self.content.tensor_infos.contains_key(name);
        let embeddings = self.content.tensor_infos.get("token_embd.weight");
        let vocabulary = match embeddings.map(|info| info.shape.dims()) {
            Some([rows, _]) => *rows,
            _ => return Err(PretrainedError::tensor(self.path, "token_embd.weight", "is missing")),
        };
        let experts = (architecture == "qwen3moe").then(|| {
            Ok::<_, PretrainedError>(ExpertsConfig {
                count: needed("expert_count")?,
                per_token: needed("expert_used_count")?,
                inner: needed("expert_feed_forward_length")?,
                normalise: true,
            })
        });
        let expert_count = key("expert_count");
        if experts.is_none() && self.size(&expert_count)?.is_some_and(|count| count > 0) {
            return Err(self.wrong(&expert_count, "experts are supported in qwen3moe only"));
        }
        let rope_theta = self.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
        let config = DecoderConfig {
            vocabulary,
            width,
            inner: needed("feed_forward_length")?,
            layers: needed("block_count")?,
            heads,
            kv_heads,
            head_size,
            context,
            norm_epsilon: self
                .number(&key("attention.layer_norm_rms_epsilon"))?
                .ok_or_else(|| self.wrong(&key("attention.layer_norm_rms_epsilon"), "it is needed"))?,
            rope_theta,
            rope_scaling: match frequency_factors {
                Some(factors) => Some(self.llama3(factors, head_size, rope_theta)?),
                None => self.scaling(architecture, context)?,
            },
            tied: !tensor("output.weight"),
            attention_bias: tensor("blk.0.attn_q.bias"),
            query_key_norm: architecture.starts_with("qwen3"),
            experts: experts.transpose()?,
            value_head: false,
        };
        config.validate().map_err(|why| PretrainedError::file(self.path, why))?;
        Ok(config)
    }

    fn scaling(self, architecture: &str, context: usize) -> Result<Option<RopeScaling>, PretrainedError> {
        let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
        let kind = key("type");
        let factor = || {
            let key = key("factor");
            self.number(&key)?.ok_or_else(|| self.wrong(&key, "it is needed"))
        };
        match self.text(&kind)? {
            None | Some("none") => Ok(None),
            Some("linear") => Ok(Some(RopeScaling::Linear { factor: factor()? })),
            Some("yarn") => Ok(Some(RopeScaling::Yarn {
                factor: factor()?,
                original_context: self.size(&key("original_context_length"))?.unwrap_or(context),
                beta_fast: self.number(&key("yarn_beta_fast"))?.unwrap_or(32.0),
                beta_slow: self.number(&key("yarn_beta_slow"))?.unwrap_or(1.0),
                attention_factor: None,
            })),
            Some(_) => Err(self.wrong(&kind, "supported are none, linear and yarn")),
        }
    }

    /// The scaling of Llama 3.1 that gives these divisors of the frequencies.
    fn llama3(self, divisors: &[f32], head_size: usize, theta: f64) -> Result<RopeScaling, PretrainedError> {
        let factor = f64::from(divisors.iter().copied().fold(1.0, f32::max)).round();
        let (low, high) = (1.0, 4.0);
        let fits = divisors.len() == head_size / 2
            && divisors.iter().enumerate().all(|(i, divisor)| {
                let frequency = theta.powf(-2.0 * i as f64 / head_size as f64);
                let turns = LLAMA3_CONTEXT as f64 * frequency / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                let expected = 1.0 / (kept + (1.0 - kept) / factor);
                (f64::from(*divisor) - expected).abs() < 1e-3 * expected
            });
        if !fits {
            let why =
                "holds factors that are not those of Llama 3.1 to 3.3: load the model from its safetensors";
            return Err(PretrainedError::tensor(self.path, super::tensors::FREQUENCIES, why));
        }
        Ok(RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context: LLAMA3_CONTEXT,
        })
    }
}

/// A whole number of any of the file's types.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::U8(number) => Some(u64::from(*number)),
        Value::U16(number) => Some(u64::from(*number)),
        Value::U32(number) => Some(u64::from(*number)),
        Value::U64(number) => Some(*number),
        Value::I8(number) => u64::try_from(*number).ok(),
        Value::I16(number) => u64::try_from(*number).ok(),
        Value::I32(number) => u64::try_from(*number).ok(),
        Value::I64(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
