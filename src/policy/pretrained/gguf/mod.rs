//! GGUF files: one file with the weights, usually quantised, the architecture and the tokenizer.
//!
//! Weights are dequantised to f32 once, tensor by tensor; what is trained and generated with is f32 from there on.

mod metadata;
mod tensors;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use memmap2::Mmap;

use super::{LoadOptions, Pretrained, PretrainedError, VALUE_HEAD, finish};
use metadata::Metadata;
use tensors::{FREQUENCIES, Tensors};

/// Loads a GGUF file.
pub(super) fn load(
    path: &Path,
    options: LoadOptions,
    device: &Device,
) -> Result<Pretrained, PretrainedError> {
    let file = File::open(path).map_err(PretrainedError::io("open", path))?;
    // SAFETY: the mapping is read-only, and files of models are not changed while they are loaded.
    let bytes = unsafe { Mmap::map(&file) }.map_err(PretrainedError::io("map", path))?;
    let content = Content::read(&mut Cursor::new(&bytes[..])).map_err(|error| {
        let why = format!("not a whole GGUF file ({}): download it again", first_line(&error));
        PretrainedError::file(path, why)
    })?;
    let metadata = Metadata { path, content: &content };
    let interleaved = metadata.architecture()? == "llama";
    let tensors = Tensors { path, bytes: &bytes, content: &content, interleaved };
    let factors = match tensors.read(FREQUENCIES)? {
        Some(factors) => Some(factors.flatten_all()?.to_vec1::<f32>()?),
        None => None,
    };
    let config = options.apply(metadata.config(factors.as_deref())?, path)?;
    let tokenizer = vocabulary::tokenizer(metadata)?;
    finish(path, config, tokenizer, options, device, |decoder| {
        tensors.load(decoder.layout(), decoder.config(), &[VALUE_HEAD])
    })
}

/// What went wrong, without the stack that may follow.
fn first_line(error: &candle_core::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("gguf: ").to_owned()
}
