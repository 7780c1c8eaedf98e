//! Where a critic with a trunk of its own comes from: a folder of `forebay pretrain-value`, a language model, or a
//! checkpoint; and the folder that pretraining writes.
//!
//! A folder holds `critic.safetensors`, the critic's shape and parameters, beside the files of the tokenizer whose tokens
//! it reads. That file is written last, so that a folder without it is not a whole one.

use std::path::Path;
use std::sync::Arc;

use candle_core::Device;

use super::decoder_file::DecoderFile;
use super::language_model::{LanguageModel, expand};
use crate::actors::train_error::TrainError;
use crate::codec::write_atomically;
use crate::config::TokenConfig;
use crate::learner::token::Critic;
use crate::policy::pretrained::{self, LoadOptions};
use crate::policy::{Decoder, Parameters, Tokenizer};

/// Name of the file, in folders and checkpoints.
pub(super) const FILE: &str = "critic.safetensors";

/// A critic's architecture and the parameters that it begins with or goes on from.
pub(super) struct ValueFunction {
    /// A value function ([`Decoder::value_function`]).
    pub(super) decoder: Arc<Decoder>,
    /// Its parameters.
    pub(super) parameters: Parameters,
}

impl ValueFunction {
    /// What `learner.critic.path` names; `None` where it names nothing, so that the critic begins as the policy.
    ///
    /// # Errors
    /// When it cannot be read, or does not fit the policy or the other settings of the critic.
    pub(super) fn open(config: &TokenConfig, model: &LanguageModel) -> Result<Option<Self>, TrainError> {
        let critic = &config.learner.critic;
        let Some(path) = critic.path.as_ref().filter(|_| config.learner.has_separate_critic()) else {
            return Ok(None);
        };
        let refuse = |why: String| TrainError::Model(format!("learner.critic.path: {why}"));
        let path = expand("learner.critic.path", path).map_err(TrainError::Model)?;
        let (context, device) = (model.decoder.config().context, model.decoder.device());
        let (opened, tokenizer) = if path.join(FILE).exists() {
            let file = DecoderFile::read(&path.join(FILE)).map_err(&refuse)?;
            // A checkpoint has no tokenizer of its own.
            let tokenizer = path.join("tokenizer.json").exists();
            let tokenizer = tokenizer.then(|| Tokenizer::from_folder(&path)).transpose();
            (
                Self::of_file(file, device).map_err(&refuse)?,
                tokenizer.map_err(|error| refuse(error.to_string()))?,
            )
        } else {
            let options = LoadOptions { context: Some(context), value_head: true, seed: config.seed };
            let loaded = pretrained::load(&path, options, device);
            let loaded = loaded.map_err(|error| refuse(error.to_string()))?;
            let opened = Self::of_trunk(&loaded.decoder, &loaded.parameters);
            (opened.map_err(|error| refuse(error.to_string()))?, Some(loaded.tokenizer))
        };
        let own = opened.decoder.config();
        if own.context < context {
            return Err(refuse(format!(
                "{} is made for {} positions, the policy uses {context}; set model.context",
                path.display(),
                own.context
            )));
        }
        // Models of one family may have more rows than tokens, and not the same number of them.
        if own.vocabulary < model.decoder.config().vocabulary
            || tokenizer.is_some_and(|tokenizer| !same_tokens(&tokenizer, &model.tokenizer))
        {
            return Err(refuse(format!("{} reads other tokens than the policy writes", path.display())));
        }
        config.check_critic(&opened.decoder)?;
        Ok(Some(opened))
    }

    /// A critic that a file holds, on a device.
    ///
    /// # Errors
    /// When it does not hold all of one.
    pub(super) fn of_file(file: DecoderFile, device: &Device) -> Result<Self, String> {
        let decoder = Decoder::value_function(&file.shape, device).map_err(|error| error.to_string())?;
        let parameters = decoder.layout().adopt(file.parameters, device);
        Ok(Self { decoder: Arc::new(decoder), parameters: parameters.map_err(|error| error.to_string())? })
    }

    /// A critic that begins with the layers of a language model. What nobody changes may share its storage.
    ///
    /// # Errors
    /// When the model has not all of them.
    pub(super) fn of_trunk(decoder: &Decoder, parameters: &Parameters) -> candle_core::Result<Self> {
        let own = Decoder::value_function(decoder.config(), decoder.device())?;
        let parameters = own.take_trunk(decoder, parameters)?;
        Ok(Self { decoder: Arc::new(own), parameters })
    }
}

/// The bytes of a critic's file.
///
/// # Errors
/// When a tensor cannot be copied.
pub(super) fn to_bytes(critic: &Critic) -> Result<Vec<u8>, String> {
    let file = DecoderFile::new(critic.decoder(), critic.parameters());
    file.map_err(|error| error.to_string())?.to_bytes()
}

/// Writes a critic as a folder that `learner.critic.path` may name; the folder is there already.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(folder: &Path, critic: &Critic, tokenizer: &Tokenizer) -> Result<(), TrainError> {
    let refuse = |error: &dyn std::fmt::Display| TrainError::Model(format!("{}: {error}", folder.display()));
    for (name, bytes) in tokenizer.to_files().map_err(|error| refuse(&error))? {
        write_atomically(&folder.join(name), &bytes)?;
    }
    let bytes = to_bytes(critic).map_err(|error| refuse(&error))?;
    Ok(write_atomically(&folder.join(FILE), &bytes)?)
}

/// Whether two tokenizers have the same tokens under the same ids.
pub(super) fn same_tokens(one: &Tokenizer, other: &Tokenizer) -> bool {
    let same = |id: u32| one.bytes(id) == other.bytes(id) && one.is_special(id) == other.is_special(id);
    let count = one.vocabulary_size();
    count == other.vocabulary_size() && (0..count as u32).all(same)
}
