//! Reward models: a decoder with a head of one number instead of one for the vocabulary.
//!
//! Hugging Face's `…ForSequenceClassification` keeps the head as `score.weight`, `[labels, width]` without a bias; a
//! reward model has one label. The head becomes the decoder's value head.

use std::path::Path;

use candle_core::{Device, Tensor};

use super::weights::Weights;
use super::{LoadOptions, Pretrained, PretrainedError, VALUE_HEAD, finish, read_config};
use crate::ops::Sequence;
use crate::policy::decoder::{DecoderConfig, DecoderInput, PackedAttention};
use crate::policy::{Decoder, Parameters, Tokenizer};
use crate::trajectory::Message;

/// The head's name in files.
const HEAD: &str = "score.weight";

/// A model that says how good a conversation is.
#[derive(Debug)]
pub struct RewardModel {
    decoder: Decoder,
    parameters: Parameters,
    tokenizer: Tokenizer,
}

impl RewardModel {
    /// Loads a folder as [`load`](super::load) does. `context`: positions to use it with, if fewer than it was made for.
    ///
    /// # Errors
    /// As for [`load`](super::load); when there is no head, it has more than one label, or there is no chat template.
    pub fn load(path: &Path, context: Option<usize>, device: &Device) -> Result<Self, PretrainedError> {
        let options = LoadOptions { context, value_head: true, seed: 0 };
        let config = options.apply(read_config(&path.join("config.json"))?, path)?;
        // Nothing is said with it, so there need be no head for the vocabulary.
        let config = DecoderConfig { tied: true, ..config };
        let tokenizer = Tokenizer::from_folder(path)?;
        if !tokenizer.has_template() {
            let why = "has no chat template, by which a reward model is shown prompt and answer: add \
                       `chat_template` to its tokenizer_config.json";
            return Err(PretrainedError::file(path, why));
        }
        let mut weights = Weights::open(path)?;
        let width = config.width;
        let model = finish(path, config, tokenizer, options, device, |decoder| {
            let head = weights.take(HEAD, &[1, width]).map_err(|error| no_reward_model(path, &error))?;
            let mut named = weights.load(decoder.layout(), true, &[VALUE_HEAD])?;
            named.push((VALUE_HEAD.to_owned(), head));
            Ok(named)
        })?;
        let Pretrained { decoder, parameters, tokenizer } = model;
        // It is never trained, so its weights are laid out once.
        let (_, parameters) = parameters.to_variables_where(|_| false)?;
        Ok(Self { decoder, parameters, tokenizer })
    }

    /// The head's output at the last token of a conversation, written out by the model's own chat template.
    ///
    /// # Errors
    /// When the conversation cannot be written out or encoded, or is longer than the model's context.
    pub fn score(&self, messages: &[Message]) -> Result<f64, PretrainedError> {
        let tokens = self.tokenizer.encode(&self.tokenizer.render(messages, false)?)?;
        let (length, context) = (tokens.len(), self.decoder.config().context);
        if length == 0 || length > context {
            return Err(PretrainedError::Length { length, context });
        }
        let positions: Vec<u32> = (0..length as u32).collect();
        let input = DecoderInput { tokens: &tokens, positions: &positions, experts: None };
        let (sequences, scale) = ([Sequence::alone(0..length)], self.decoder.config().attention_scale());
        let mut attention = PackedAttention { sequences: &sequences, scale };
        let states = self.decoder.hidden(&self.parameters, input, &mut attention)?.states;
        let last = states.narrow(0, length - 1, 1)?;
        let value = self.decoder.values(&self.parameters, &last)?.map(|value| scalar(&value)).transpose()?;
        Ok(value.unwrap_or(f64::NAN))
    }
}

fn scalar(value: &Tensor) -> candle_core::Result<f64> {
    Ok(f64::from(value.squeeze(0)?.to_scalar::<f32>()?))
}

fn no_reward_model(path: &Path, error: &PretrainedError) -> PretrainedError {
    let why = format!(
        "is no reward model, which is a …ForSequenceClassification with one label and has `{HEAD}` of one row ({error})"
    );
    PretrainedError::file(path, why)
}
