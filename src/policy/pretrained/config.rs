//! `config.json`: which of the decoder's switches a Hugging Face architecture has set.
//!
//! | `model_type` | biases on q, k, v | norm on each head's q, k | experts |
//! |---|---|---|---|
//! | `llama`, `mistral` | no | no | no |
//! | `qwen2` | yes | no | no |
//! | `qwen3` | no | yes | no |
//! | `qwen3_moe` | no | yes | yes |
//!
//! Whatever a file switches on that the decoder does not have is refused, since the model would load and be wrong.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::{PretrainedError, rope};
use crate::policy::{DecoderConfig, ExpertsConfig};

const SUPPORTED: &str = "supported are llama, mistral, qwen2, qwen3 and qwen3_moe";

/// Reads a model's `config.json`.
///
/// # Errors
/// When the file cannot be read, or describes a model that the decoder cannot be; file, field and value are named.
pub fn read_config(path: &Path) -> Result<DecoderConfig, PretrainedError> {
    let bytes = std::fs::read(path).map_err(PretrainedError::io("read", path))?;
    let config: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| PretrainedError::file(path, format!("not a JSON object: {error}")))?;
    parse(path, &config)
}

pub(super) fn parse(path: &Path, config: &Map<String, Value>) -> Result<DecoderConfig, PretrainedError> {
    let config = Fields { path, prefix: "", object: config };
    let Some(model_type @ ("llama" | "mistral" | "qwen2" | "qwen3" | "qwen3_moe")) =
        config.text("model_type")?
    else {
        return Err(config.wrong("model_type", SUPPORTED));
    };
    refuse_unsupported(config, model_type)?;
    let (width, heads) = (config.needed_size("hidden_size")?, config.needed_size("num_attention_heads")?);
    let kv_heads = match (config.size("num_key_value_heads")?, model_type) {
        (Some(kv_heads), _) => kv_heads,
        (None, "llama") => heads,
        (None, _) => config.needed_size("num_key_value_heads")?,
    };
    let head_size = match (config.size("head_dim")?, model_type) {
        (Some(size), _) => size,
        (None, "qwen3") => 128,
        (None, _) => width / heads.max(1),
    };
    let context = config.needed_size("max_position_embeddings")?;
    let (rope_theta, rope_scaling) = rope::read(config, context)?;
    let experts = if model_type == "qwen3_moe" { Some(experts(config)?) } else { None };
    let decoder = DecoderConfig {
        vocabulary: config.needed_size("vocab_size")?,
        width,
        inner: config.needed_size("intermediate_size")?,
        layers: config.needed_size("num_hidden_layers")?,
        heads,
        kv_heads,
        head_size,
        context,
        norm_epsilon: config.number("rms_norm_eps")?.unwrap_or(1e-6),
        rope_theta,
        rope_scaling,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(false),
        attention_bias: model_type == "qwen2",
        query_key_norm: model_type.starts_with("qwen3"),
        experts,
        value_head: false,
    };
    decoder.validate().map_err(|why| PretrainedError::file(path, why))?;
    Ok(decoder)
}

fn refuse_unsupported(config: Fields, model_type: &str) -> Result<(), PretrainedError> {
    for name in ["hidden_act", "hidden_activation"] {
        config.refuse_unless(name, &json!("silu"), "only silu is supported")?;
    }
    if model_type != "qwen2" {
        config.refuse_unless(
            "attention_bias",
            &json!(false),
            "a bias on the output projection is not supported",
        )?;
    }
    config.refuse_unless("mlp_bias", &json!(false), "biases in feed-forward layers are not supported")?;
    if config.get("quantization_config").is_some() {
        return Err(config.wrong("quantization_config", "quantised weights are only read from GGUF files"));
    }
    // Qwen has a window that is only used when another field says so; Mistral uses the one it names.
    if model_type == "mistral" {
        let window = config.size("sliding_window")?;
        if window.is_some_and(|window| Some(window) < config.size("max_position_embeddings").ok().flatten()) {
            return Err(config.wrong("sliding_window", "attention over a sliding window is not supported"));
        }
    } else {
        config.refuse_unless(
            "use_sliding_window",
            &json!(false),
            "attention over a sliding window is not supported",
        )?;
    }
    let full = |kind: &Value| kind == "full_attention";
    if let Some(kinds) = config.get("layer_types").and_then(Value::as_array)
        && let Some(kind) = kinds.iter().find(|kind| !full(kind))
    {
        let why = "only layers of full_attention are supported";
        return Err(PretrainedError::field(config.path, "layer_types", kind, why));
    }
    Ok(())
}

fn experts(config: Fields) -> Result<ExpertsConfig, PretrainedError> {
    config.refuse_unless(
        "decoder_sparse_step",
        &json!(1),
        "experts are supported in all layers or in none",
    )?;
    config.refuse_unless("mlp_only_layers", &json!([]), "experts are supported in all layers or in none")?;
    // Version 5 of `transformers` writes the second name.
    let count = match config.size("num_experts")? {
        Some(count) => count,
        None => config.needed_size("num_local_experts")?,
    };
    Ok(ExpertsConfig {
        count,
        per_token: config.needed_size("num_experts_per_tok")?,
        inner: config.needed_size("moe_intermediate_size")?,
        normalise: config.flag("norm_topk_prob")?.unwrap_or(false),
    })
}

/// The `config.json` of a decoder, without the ids of special tokens.
pub(super) fn write(decoder: &DecoderConfig) -> Result<Map<String, Value>, PretrainedError> {
    let refuse = |why: &str| Err(PretrainedError::NotPortable(why.to_owned()));
    let (model_type, architecture) = match (decoder.query_key_norm, decoder.attention_bias, &decoder.experts)
    {
        (true, false, Some(_)) => ("qwen3_moe", "Qwen3MoeForCausalLM"),
        (true, false, None) => ("qwen3", "Qwen3ForCausalLM"),
        (false, true, None) => ("qwen2", "Qwen2ForCausalLM"),
        (false, false, None) => ("llama", "LlamaForCausalLM"),
        (true, true, _) => return refuse("none has both `attention_bias` and `query_key_norm`"),
        (false, _, Some(_)) => return refuse("none has `experts` without `query_key_norm`"),
    };
    let fields = json!({
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "float32",
        "vocab_size": decoder.vocabulary,
        "hidden_size": decoder.width,
        "intermediate_size": decoder.inner,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "head_dim": decoder.head_size,
        "max_position_embeddings": decoder.context,
        "rms_norm_eps": decoder.norm_epsilon,
        "tie_word_embeddings": decoder.tied,
        "hidden_act": "silu",
        "attention_bias": decoder.attention_bias,
        "attention_dropout": 0.0,
        "use_cache": true,
    });
    let Value::Object(mut fields) = fields else { return Ok(Map::new()) };
    rope::write(decoder, &mut fields);
    match model_type {
        "llama" => {
            fields.insert("mlp_bias".into(), json!(false));
        }
        _ => {
            fields.insert("use_sliding_window".into(), json!(false));
        }
    }
    if let Some(experts) = &decoder.experts {
        fields.insert("num_experts".into(), json!(experts.count));
        fields.insert("num_experts_per_tok".into(), json!(experts.per_token));
        fields.insert("moe_intermediate_size".into(), json!(experts.inner));
        fields.insert("norm_topk_prob".into(), json!(experts.normalise));
        fields.insert("decoder_sparse_step".into(), json!(1));
        fields.insert("mlp_only_layers".into(), json!([]));
    }
    Ok(fields)
}
