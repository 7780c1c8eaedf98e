//! The language model of a run: tokenizer, architecture, and where its first parameters come from.
//!
//! What it takes to use a run's checkpoints later stands in the run directory, in `model/`: the files of the tokenizer,
//! the shape of the decoder and of its adapters, and the parameters that are not trained
//! ([`frozen`](super::frozen)), so that a run can be evaluated and talked to without the model it started from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use serde::de::DeserializeOwned;

use super::efforts;
use crate::actors::train_error::TrainError;
use crate::codec::write_atomically;
use crate::config::TokenConfig;
use crate::env::task::Task;
use crate::generate::{Detokenizer, Stops};
use crate::policy::pretrained::{self, LoadOptions};
use crate::policy::{Decoder, DecoderConfig, LoraConfig, Parameters, Tokenizer};

/// See the module's documentation.
pub struct LanguageModel {
    /// Texts to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The architecture, for the float type that a run computes in.
    pub decoder: Arc<Decoder>,
    /// Parameters that were read from files; none for a model from scratch.
    loaded: Option<Parameters>,
}

/// The tokens of a tokenizer as bytes, for stop strings.
struct Bytes(Arc<Tokenizer>);

impl Detokenizer for Bytes {
    fn append(&self, token: u32, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.0.bytes(token));
    }
}

impl LanguageModel {
    /// Folder of a run directory.
    pub const FOLDER: &'static str = "model";
    const SHAPE: &'static str = "decoder.json";
    const ADAPTERS: &'static str = "adapters.json";

    /// The model that a configuration names, or one from scratch for the characters of a task, on a device.
    ///
    /// # Errors
    /// When its files cannot be used, or a task does not say which characters it needs.
    pub fn open(config: &TokenConfig, task: &dyn Task, device: &Device) -> Result<Self, TrainError> {
        let (value_head, dtype) = (config.learner.has_shared_critic(), config.model.precision.dtype());
        let refuse = |error: &dyn std::fmt::Display| TrainError::Model(error.to_string());
        let Some(path) = &config.model.path else {
            let alphabet = task.alphabet().ok_or_else(|| {
                refuse(&format!(
                    "task `{}` does not say which characters it needs, so there is no model from scratch for it; set \
                     model.path",
                    config.task.name
                ))
            })?;
            let alphabet = alphabet + &efforts::alphabet(&config.learner.efforts);
            let tokenizer = Tokenizer::characters(&alphabet).map_err(|error| refuse(&error))?;
            let context = config.model.context.unwrap_or(config.model.decoder.context);
            let vocabulary = tokenizer.vocabulary_size();
            let shape = DecoderConfig { vocabulary, context, value_head, ..config.model.decoder.clone() };
            let decoder = Decoder::with_adapters(shape, config.model.adapters.as_ref(), device)
                .map_err(|error| refuse(&error))?;
            let decoder = decoder.to_dtype(dtype).map_err(|error| refuse(&error))?;
            return Ok(Self { tokenizer: Arc::new(tokenizer), decoder: Arc::new(decoder), loaded: None });
        };
        let path = expand("model.path", path).map_err(|why| refuse(&why))?;
        let options = LoadOptions { context: config.model.context, value_head, seed: config.seed };
        let pretrained = pretrained::load(&path, options, device).map_err(|error| refuse(&error))?;
        let pretrained = match &config.model.adapters {
            Some(adapters) => pretrained.adapted(adapters, config.seed).map_err(|error| refuse(&error))?,
            None => pretrained,
        };
        let pretrained::Pretrained { decoder, parameters, tokenizer } = pretrained;
        let decoder = decoder.to_dtype(dtype).map_err(|error| refuse(&error))?;
        Ok(Self { tokenizer: Arc::new(tokenizer), decoder: Arc::new(decoder), loaded: Some(parameters) })
    }

    /// The model that a run directory describes, on a device; its parameters are in the checkpoints.
    ///
    /// # Errors
    /// When the description is not there or damaged.
    pub fn of_run(run_dir: &Path, device: &Device) -> Result<Self, TrainError> {
        let folder = run_dir.join(Self::FOLDER);
        let refuse = |error: &dyn std::fmt::Display| TrainError::Model(error.to_string());
        let path = folder.join(Self::SHAPE);
        let shape: Option<DecoderConfig> = read_json(&path)?;
        let shape = shape.ok_or_else(|| {
            refuse(&format!("{} is not there; is this the directory of a token run?", path.display()))
        })?;
        let adapters = Self::adapters_of_run(run_dir)?;
        let tokenizer = Tokenizer::from_folder(&folder).map_err(|error| refuse(&error))?;
        let decoder =
            Decoder::with_adapters(shape, adapters.as_ref(), device).map_err(|error| refuse(&error))?;
        Ok(Self { tokenizer: Arc::new(tokenizer), decoder: Arc::new(decoder), loaded: None })
    }

    /// The adapters of the model that a run directory describes.
    ///
    /// # Errors
    /// When their description is damaged.
    pub fn adapters_of_run(run_dir: &Path) -> Result<Option<LoraConfig>, TrainError> {
        let adapters: Option<Option<LoraConfig>> =
            read_json(&run_dir.join(Self::FOLDER).join(Self::ADAPTERS))?;
        Ok(adapters.flatten())
    }

    /// Parameters of version 0, in f32.
    ///
    /// # Errors
    /// When memory is short.
    pub fn initial_parameters(&mut self, seed: u64) -> candle_core::Result<Parameters> {
        match self.loaded.take() {
            Some(loaded) => Ok(loaded),
            None => self.decoder.layout().initialize(seed, self.decoder.device()),
        }
    }

    /// What ends an answer: the model's own end tokens, and strings.
    #[must_use]
    pub fn stops(&self, strings: &[String]) -> Arc<Stops> {
        let detokenizer: Arc<dyn Detokenizer> = Arc::new(Bytes(Arc::clone(&self.tokenizer)));
        Arc::new(Stops {
            tokens: self.tokenizer.ends().to_vec(),
            strings: strings.to_vec(),
            detokenizer: Some(detokenizer),
        })
    }

    /// Writes what [`Self::of_run`] reads.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save_description(&self, run_dir: &Path) -> Result<(), TrainError> {
        let folder = run_dir.join(Self::FOLDER);
        let refuse =
            |error: &dyn std::fmt::Display| TrainError::Model(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(|error| refuse(&error))?;
        let shape = serde_json::to_string_pretty(self.decoder.config()).map_err(|error| refuse(&error))?;
        write_atomically(&folder.join(Self::SHAPE), shape.as_bytes()).map_err(|error| refuse(&error))?;
        // Also when there are none: the directory may hold an earlier run's.
        let adapters =
            serde_json::to_string_pretty(&self.decoder.adapters()).map_err(|error| refuse(&error))?;
        write_atomically(&folder.join(Self::ADAPTERS), adapters.as_bytes())
            .map_err(|error| refuse(&error))?;
        for (name, bytes) in self.tokenizer.to_files().map_err(|error| refuse(&error))? {
            write_atomically(&folder.join(name), &bytes).map_err(|error| refuse(&error))?;
        }
        Ok(())
    }
}

/// What a JSON file holds; `None` when there is none.
///
/// # Errors
/// When it cannot be read, or holds something else.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TrainError> {
    let refuse = |error: &dyn std::fmt::Display| TrainError::Model(format!("{}: {error}", path.display()));
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| refuse(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refuse(&error)),
    }
}

/// Fills in `~` and `${NAME}` at the beginning of a path, the value of a setting.
pub(super) fn expand(setting: &str, path: &Path) -> Result<PathBuf, String> {
    let Some(text) = path.to_str() else { return Ok(path.to_owned()) };
    let variable = |name: &str| {
        std::env::var(name)
            .map_err(|_| format!("{setting} = \"{text}\": the environment has no variable {name}"))
    };
    if let Some(rest) = text.strip_prefix("~/") {
        return Ok(Path::new(&variable("HOME")?).join(rest));
    }
    if let Some((name, rest)) = text.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
        return Ok(PathBuf::from(variable(name)? + rest));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_begin_with_the_home_directory_or_a_variable() {
        let home = std::env::var("HOME").unwrap();
        assert_eq!(expand("model.path", Path::new("~/models/a")).unwrap(), Path::new(&home).join("models/a"));
        assert_eq!(expand("model.path", Path::new("${HOME}/a")).unwrap(), PathBuf::from(format!("{home}/a")));
        assert_eq!(expand("model.path", Path::new("plain/~/a")).unwrap(), Path::new("plain/~/a"));
        assert!(
            expand("model.path", Path::new("${NO_SUCH_VARIABLE_HERE}/a"))
                .unwrap_err()
                .contains("NO_SUCH_VARIABLE_HERE")
        );
    }
}
