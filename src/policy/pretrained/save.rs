//! Writing a model as a Hugging Face folder.
//!
//! The folder is written under a temporary name, flushed to the disk and renamed, so it is whole or not there. A value
//! head, which no Hugging Face architecture has, gets a file of its own that other programs do not look at.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use serde_json::{Value, json};

use super::{PretrainedError, VALUE_HEAD, VALUE_HEAD_FILE, config, names};
use crate::policy::{Decoder, Parameters, Tokenizer, lora};

/// Writes a model as a folder that [`load`](super::load) and `transformers` read: weights in f32, with adapters put into
/// them, configuration, tokenizer and chat template.
///
/// # Errors
/// When `folder` exists and is not empty, no Hugging Face architecture has the decoder's switches, or the file system
/// refuses; nothing half-written stays under the final name.
pub fn save(
    folder: &Path,
    decoder: &Decoder,
    parameters: &Parameters,
    tokenizer: &Tokenizer,
) -> Result<(), PretrainedError> {
    let mut settings = config::write(decoder.config())?;
    let ids = special_ids(tokenizer);
    settings.extend(ids.clone());
    let generation: serde_json::Map<String, Value> = ids.into_iter().collect();
    let weights = match decoder.adapters() {
        Some(adapters) => lora::merged(parameters, adapters)?,
        None => parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.detach())).collect(),
    };
    write_folder(folder, |temporary| {
        write(&temporary.join("config.json"), &pretty(&settings))?;
        write(&temporary.join("generation_config.json"), &pretty(&generation))?;
        for (name, bytes) in tokenizer.to_files()? {
            write(&temporary.join(name), &bytes)?;
        }
        write_weights(temporary, &weights)
    })
}

/// Writes a model's adapters alone, as a folder that Hugging Face's peft puts on top of the model they were made for.
///
/// # Errors
/// When the decoder has no adapters; else as for [`save`].
pub fn save_adapters(
    folder: &Path,
    decoder: &Decoder,
    parameters: &Parameters,
    base: Option<&Path>,
) -> Result<(), PretrainedError> {
    let Some(adapters) = decoder.adapters() else {
        return Err(PretrainedError::NotPortable("it has no adapters to save alone".into()));
    };
    let settings = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": 0.0,
        "target_modules": adapters.targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "use_rslora": false,
        "modules_to_save": null,
    });
    let views = lora::to_peft(parameters)
        .into_iter()
        .map(|(name, tensor)| Ok((name, View(tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?))))
        .collect::<Result<Vec<_>, PretrainedError>>()?;
    write_folder(folder, |temporary| {
        let path = temporary.join("adapter_config.json");
        write(&path, format!("{settings:#}\n").as_bytes())?;
        write_tensors(&temporary.join("adapter_model.safetensors"), &path, views)
    })
}

/// Makes a folder that is whole or not there.
fn write_folder(
    folder: &Path,
    fill: impl FnOnce(&Path) -> Result<(), PretrainedError>,
) -> Result<(), PretrainedError> {
    let occupied = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(PretrainedError::file(folder, "exists already: choose another folder or remove it"));
    }
    let mut name = OsString::from(".partial-");
    name.push(folder.file_name().unwrap_or_default());
    let temporary = folder.with_file_name(name);
    if temporary.exists() {
        fs::remove_dir_all(&temporary).map_err(PretrainedError::io("remove", &temporary))?;
    }
    fs::create_dir_all(&temporary).map_err(PretrainedError::io("create", &temporary))?;
    let written = (|| {
        fill(&temporary)?;
        flush(&temporary)?;
        fs::rename(&temporary, folder).map_err(PretrainedError::io("rename to its final name", folder))?;
        match folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => flush(parent),
            None => flush(Path::new(".")),
        }
    })();
    if written.is_err() {
        // The failure to report is the first one; a leftover is removed by the next attempt.
        let _ = fs::remove_dir_all(&temporary);
    }
    written
}

/// Ids of special tokens, as both `config.json` and `generation_config.json` have them.
fn special_ids(tokenizer: &Tokenizer) -> Vec<(String, Value)> {
    let ends = match tokenizer.ends() {
        [one] => json!(one),
        several => json!(several),
    };
    let ids = [
        ("bos_token_id", tokenizer.begin().map(Value::from)),
        ("eos_token_id", Some(ends)),
        ("pad_token_id", tokenizer.padding().map(Value::from)),
    ];
    ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?))).collect()
}

fn pretty(object: &serde_json::Map<String, Value>) -> Vec<u8> {
    format!("{:#}\n", Value::Object(object.clone())).into_bytes()
}

/// A tensor of the file; its bytes are made when it is its turn.
struct View(Tensor);

impl safetensors::View for View {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.0.dims()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        // Types and places were settled when the view was made, so that this cannot fail.
        let values = self.0.flatten_all().and_then(|tensor| tensor.to_vec1::<f32>()).unwrap_or_default();
        Cow::Owned(values.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    fn data_len(&self) -> usize {
        self.0.elem_count() * size_of::<f32>()
    }
}

fn write_weights(folder: &Path, weights: &[(String, Tensor)]) -> Result<(), PretrainedError> {
    let (mut views, mut value) = (Vec::new(), Vec::new());
    for (name, tensor) in weights {
        let tensor = tensor.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        if name == VALUE_HEAD {
            value.push((name.to_owned(), View(tensor)));
        } else if names::is_stacked(name) {
            for (expert, name) in names::in_file(name, tensor.dims()).into_iter().enumerate() {
                views.push((name, View(tensor.get(expert)?)));
            }
        } else {
            views.push((name.to_owned(), View(tensor)));
        }
    }
    let beside = folder.join("config.json");
    write_tensors(&folder.join("model.safetensors"), &beside, views)?;
    if value.is_empty() { Ok(()) } else { write_tensors(&folder.join(VALUE_HEAD_FILE), &beside, value) }
}

/// Whoever may read the file `beside` may read this one.
fn write_tensors(path: &Path, beside: &Path, views: Vec<(String, View)>) -> Result<(), PretrainedError> {
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|error| PretrainedError::file(path, format!("cannot be written: {error}")))?;
    // The library makes a private file.
    let permissions = fs::metadata(beside).map(|metadata| metadata.permissions());
    permissions
        .and_then(|permissions| fs::set_permissions(path, permissions))
        .map_err(PretrainedError::io("set the permissions of", path))?;
    flush(path)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), PretrainedError> {
    fs::write(path, bytes).map_err(PretrainedError::io("write", path))?;
    flush(path)
}

/// Flushes a file, or a folder's names, to the disk. Only Unix can flush folders.
fn flush(path: &Path) -> Result<(), PretrainedError> {
    if cfg!(not(unix)) && path.is_dir() {
        return Ok(());
    }
    let file = File::open(path).map_err(PretrainedError::io("open", path))?;
    file.sync_all().map_err(PretrainedError::io("flush", path))
}
