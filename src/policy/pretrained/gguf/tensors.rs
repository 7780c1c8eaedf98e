//! Tensors of a GGUF file: their names, their order of rows, and dequantisation to f32.
//!
//! Files of the architecture `llama` hold the rows of queries and keys in another order: rotary positions turn pairs of
//! neighbouring coordinates there, and coordinates half a head apart in the decoder. Row `2 i + s` of a head there is
//! row `i + s · head_size / 2` here.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device, Tensor};

use super::super::PretrainedError;
use crate::policy::{DecoderConfig, Layout};

/// Divisors of the rotary frequencies.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

/// An open file.
pub(super) struct Tensors<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: &'a [u8],
    pub(super) content: &'a Content,
    /// Whether queries and keys have their rows interleaved.
    pub(super) interleaved: bool,
}

impl Tensors<'_> {
    /// One tensor as f32 on the CPU; `None` when there is none of that name.
    pub(super) fn read(&self, name: &str) -> Result<Option<Tensor>, PretrainedError> {
        let Some(info) = self.content.tensor_infos.get(name) else { return Ok(None) };
        let wrong = |error: candle_core::Error| {
            PretrainedError::tensor(self.path, name, format!("cannot be read: {}", super::first_line(&error)))
        };
        let mut reader = Cursor::new(self.bytes);
        let quantised =
            info.read(&mut reader, self.content.tensor_data_offset, &Device::Cpu).map_err(wrong)?;
        let tensor = quantised.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_dtype(DType::F32));
        tensor.map(Some).map_err(wrong)
    }

    /// All parameters of a layout but those in `absent`.
    pub(super) fn load(
        &self,
        layout: &Layout,
        config: &DecoderConfig,
        absent: &[&str],
    ) -> Result<Vec<(String, Tensor)>, PretrainedError> {
        let mut left: BTreeSet<&str> = self.content.tensor_infos.keys().map(String::as_str).collect();
        left.remove(FREQUENCIES);
        let mut named = Vec::new();
        for (parameter, shape) in layout.entries().filter(|(name, _)| !absent.contains(name)) {
            let name = file_name(parameter);
            left.remove(name.as_str());
            let wrong = |why: String| PretrainedError::tensor(self.path, &name, why);
            // The shape is checked before anything of that size is allocated.
            match self.content.tensor_infos.get(&name).map(|info| info.shape.dims()) {
                None => return Err(wrong("is missing".into())),
                Some(found) if found != shape => {
                    return Err(wrong(format!("has shape {found:?}, the metadata make it {shape:?}")));
                }
                Some(_) => {}
            }
            let tensor = self.read(&name)?.ok_or_else(|| wrong("is missing".into()))?;
            let rotated = [".q_proj.", ".k_proj."].iter().any(|part| parameter.contains(part));
            let tensor =
                if rotated && self.interleaved { halves(&tensor, config.head_size)? } else { tensor };
            named.push((parameter.to_owned(), tensor));
        }
        match left.first() {
            Some(name) => {
                let why = "is not a part of the architecture that the metadata describe";
                Err(PretrainedError::tensor(self.path, *name, why))
            }
            None => Ok(named),
        }
    }
}

/// Rows of interleaved pairs, `[heads · head_size, …]`, as rows of two halves.
fn halves(tensor: &Tensor, head_size: usize) -> candle_core::Result<Tensor> {
    let shape = tensor.dims().to_vec();
    let columns = tensor.elem_count() / shape[0];
    tensor.reshape(((), head_size / 2, 2, columns))?.transpose(1, 2)?.contiguous()?.reshape(shape)
}

/// A parameter's name in GGUF files.
fn file_name(parameter: &str) -> String {
    let whole = match parameter {
        "model.embed_tokens.weight" => Some("token_embd.weight"),
        "model.norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" => Some("output.weight"),
        _ => None,
    };
    if let Some(name) = whole {
        return name.to_owned();
    }
    let layer = parameter.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let Some((index, part)) = layer else { return parameter.to_owned() };
    let (part, kind) = part.rsplit_once('.').unwrap_or((part, "weight"));
    let part = match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" => "ffn_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        "mlp.gate" => "ffn_gate_inp",
        "mlp.experts.gate_proj" => "ffn_gate_exps",
        "mlp.experts.up_proj" => "ffn_up_exps",
        "mlp.experts.down_proj" => "ffn_down_exps",
        other => other,
    };
    format!("blk.{index}.{part}.{kind}")
}
