//! How `config.json` writes rotary positions.
//!
//! Up to version 4 of `transformers`: `rope_theta`, and `rope_scaling` with the kind in `type` or `rope_type`. From
//! version 5: `rope_parameters`, which holds all of it. Both are read; both are written.

use serde_json::{Map, Value, json};

use super::PretrainedError;
use super::fields::Fields;
use crate::policy::{DecoderConfig, RopeScaling};

/// Base of the wavelengths when a file has none.
const DEFAULT_THETA: f64 = 10_000.0;

/// The base of the wavelengths, and how they are stretched.
pub(super) fn read(config: Fields, context: usize) -> Result<(f64, Option<RopeScaling>), PretrainedError> {
    config.refuse_unless("partial_rotary_factor", &json!(1), "only whole heads can be rotated")?;
    let name = ["rope_parameters", "rope_scaling"].into_iter().find(|name| config.get(name).is_some());
    let Some(name) = name else {
        return Ok((config.number("rope_theta")?.unwrap_or(DEFAULT_THETA), None));
    };
    let object = config.get(name).and_then(Value::as_object);
    let prefix = format!("{name}.");
    let fields = Fields {
        path: config.path,
        prefix: &prefix,
        object: object.ok_or_else(|| config.wrong(name, "must be an object"))?,
    };
    fields.refuse_unless("partial_rotary_factor", &json!(1), "only whole heads can be rotated")?;
    let theta = match fields.number("rope_theta")? {
        Some(theta) => theta,
        None => config.number("rope_theta")?.unwrap_or(DEFAULT_THETA),
    };
    Ok((theta, scaling(fields, context)?))
}

fn scaling(fields: Fields, context: usize) -> Result<Option<RopeScaling>, PretrainedError> {
    let name = if fields.get("rope_type").is_some() { "rope_type" } else { "type" };
    match fields.text(name)?.unwrap_or("default") {
        "default" => Ok(None),
        "linear" => Ok(Some(RopeScaling::Linear { factor: fields.needed_number("factor")? })),
        "llama3" => Ok(Some(RopeScaling::Llama3 {
            factor: fields.needed_number("factor")?,
            low_frequency_factor: fields.needed_number("low_freq_factor")?,
            high_frequency_factor: fields.needed_number("high_freq_factor")?,
            original_context: fields.needed_size("original_max_position_embeddings")?,
        })),
        "yarn" => {
            fields.refuse_unless(
                "truncate",
                &json!(true),
                "only whole bounds of the correction are supported",
            )?;
            let original_context = fields.size("original_max_position_embeddings")?.unwrap_or(context);
            let factor = match fields.number("factor")? {
                Some(factor) => factor,
                None => context as f64 / original_context as f64,
            };
            Ok(Some(RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast: fields.number("beta_fast")?.unwrap_or(32.0),
                beta_slow: fields.number("beta_slow")?.unwrap_or(1.0),
                attention_factor: attention_factor(fields, factor)?,
            }))
        }
        _ => Err(fields.wrong(name, "supported are default, linear, llama3 and yarn")),
    }
}

/// YaRN's factor on sines and cosines where the file says something about it.
fn attention_factor(fields: Fields, factor: f64) -> Result<Option<f64>, PretrainedError> {
    if let Some(given) = fields.number("attention_factor")? {
        return Ok(Some(given));
    }
    let scale = |multiple: f64| if factor <= 1.0 { 1.0 } else { 0.1 * multiple * factor.ln() + 1.0 };
    match (fields.number("mscale")?, fields.number("mscale_all_dim")?) {
        (Some(one), Some(all)) if one != 0.0 && all != 0.0 => Ok(Some(scale(one) / scale(all))),
        // The formula of the decoder holds for factors above 1.
        _ => Ok((factor <= 1.0).then_some(1.0)),
    }
}

/// Writes the fields of both spellings.
pub(super) fn write(config: &DecoderConfig, into: &mut Map<String, Value>) {
    let (kind, mut scaling) = match &config.rope_scaling {
        None => ("default", json!({})),
        Some(RopeScaling::Linear { factor }) => ("linear", json!({ "factor": factor })),
        Some(RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        }) => (
            "llama3",
            json!({
                "factor": factor,
                "low_freq_factor": low_frequency_factor,
                "high_freq_factor": high_frequency_factor,
                "original_max_position_embeddings": original_context,
            }),
        ),
        Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor }) => {
            let mut fields = json!({
                "factor": factor,
                "original_max_position_embeddings": original_context,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
            });
            if let Some(attention_factor) = attention_factor {
                fields["attention_factor"] = json!(attention_factor);
            }
            ("yarn", fields)
        }
    };
    scaling["rope_type"] = json!(kind);
    into.insert("rope_theta".into(), json!(config.rope_theta));
    let old = if config.rope_scaling.is_some() { scaling.clone() } else { Value::Null };
    into.insert("rope_scaling".into(), old);
    scaling["rope_theta"] = json!(config.rope_theta);
    into.insert("rope_parameters".into(), scaling);
}
