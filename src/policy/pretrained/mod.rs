//! Language models as files: Hugging Face folders in and out, GGUF files in.
//!
//! [`load`] takes a folder with `config.json`, safetensors and `tokenizer.json`, or one GGUF file, and gives a decoder,
//! its parameters in f32 and its tokenizer. [`save`] writes a folder that `transformers` loads. Invariants:
//!
//! - A model loads completely or not at all: every tensor of the architecture is there in its shape, none is left over,
//!   and a setting that the decoder does not have is refused, naming the file, the field or tensor, and the value.
//! - Saving what was loaded and loading it again gives the same bits.
//! - Files are mapped; beside the parameters, the tensors of no more than one are held at a time.

mod config;
mod error;
mod fields;
mod gguf;
mod names;
mod reward;
mod rope;
mod save;
#[cfg(test)]
mod tests;
mod weights;

use std::path::Path;

use candle_core::{Device, Tensor};

pub use config::read_config;
pub use error::PretrainedError;
pub use reward::RewardModel;
pub use save::{save, save_adapters};

use super::decoder::VALUE_HEAD;
use super::{Decoder, DecoderConfig, LoraConfig, Parameters, Tokenizer, lora};
use weights::Weights;

/// Where a saved model keeps it.
const VALUE_HEAD_FILE: &str = "value_head.safetensors";

/// What to make of a model beside what its files say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Positions to use it with, if fewer than it was made for; saves memory for tables and caches.
    pub context: Option<usize>,
    /// Gives it a value head: the saved one, or else a new one.
    pub value_head: bool,
    /// Run seed, for what is initialised anew.
    pub seed: u64,
}

/// A model that was loaded.
#[derive(Debug)]
pub struct Pretrained {
    /// The architecture.
    pub decoder: Decoder,
    /// Its parameters, f32.
    pub parameters: Parameters,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
}

/// Loads a model from a Hugging Face folder or a GGUF file (by its name: `….gguf`) onto a device.
///
/// # Errors
/// When a file is missing, damaged or not of a supported architecture; the error names the file and what in it.
pub fn load(path: &Path, options: LoadOptions, device: &Device) -> Result<Pretrained, PretrainedError> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        return gguf::load(path, options, device);
    }
    if path.is_file() {
        return Err(PretrainedError::file(path, "is neither a folder with a model nor a .gguf file"));
    }
    let config = options.apply(read_config(&path.join("config.json"))?, path)?;
    let tokenizer = Tokenizer::from_folder(path)?;
    let weights = Weights::open(path)?;
    finish(path, config, tokenizer, options, device, |decoder| {
        let mut named = weights.load(decoder.layout(), decoder.config().tied, &[VALUE_HEAD])?;
        let value_file = path.join(VALUE_HEAD_FILE);
        if options.value_head && value_file.exists() {
            named.push((VALUE_HEAD.to_owned(), weights::single(&value_file, VALUE_HEAD, decoder)?));
        }
        Ok(named)
    })
}

impl Pretrained {
    /// The same model with new adapters beside its projections.
    ///
    /// # Errors
    /// When their settings do not fit the model.
    pub fn adapted(self, adapters: &LoraConfig, seed: u64) -> Result<Self, PretrainedError> {
        let Self { decoder, parameters, tokenizer } = self;
        let device = decoder.device().clone();
        let decoder = Decoder::with_adapters(decoder.config().clone(), Some(adapters), &device)?;
        let base = parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        let parameters = lora::adopt(decoder.layout(), base, None, seed, &device)?;
        Ok(Self { decoder, parameters, tokenizer })
    }
}

impl LoadOptions {
    fn apply(self, mut config: DecoderConfig, path: &Path) -> Result<DecoderConfig, PretrainedError> {
        config.value_head = self.value_head;
        if let Some(context) = self.context {
            if context == 0 || context > config.context {
                let why = format!("the model is made for at most {} positions", config.context);
                return Err(PretrainedError::field(path, "context", &context, why));
            }
            config.context = context;
        }
        Ok(config)
    }
}

/// Builds the decoder, has its tensors read, and initialises the value head if none was.
fn finish(
    path: &Path,
    config: DecoderConfig,
    tokenizer: Tokenizer,
    options: LoadOptions,
    device: &Device,
    read: impl FnOnce(&Decoder) -> Result<Vec<(String, Tensor)>, PretrainedError>,
) -> Result<Pretrained, PretrainedError> {
    if tokenizer.vocabulary_size() > config.vocabulary {
        let why = format!(
            "the tokenizer has {} tokens, the model has embeddings for {}",
            tokenizer.vocabulary_size(),
            config.vocabulary
        );
        return Err(PretrainedError::file(path, why));
    }
    let decoder = Decoder::new(config, device)?;
    let mut named = read(&decoder)?;
    if options.value_head && named.iter().all(|(name, _)| name != VALUE_HEAD) {
        named.extend(decoder.layout().initial(VALUE_HEAD, options.seed)?.map(|t| (VALUE_HEAD.to_owned(), t)));
    }
    let parameters = decoder.layout().adopt(named, device)?;
    Ok(Pretrained { decoder, parameters, tokenizer })
}
