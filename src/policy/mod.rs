//! Networks and action distributions.
//!
//! A [`Decoder`] is the language model of the token workload; the rest of this page is about the control workload,
//! but holds for it too.
//!
//! A [`Policy`] is an architecture: it owns no numbers. Its parameters are a [`Parameters`] value passed to every
//! call, so that the learner evaluates it with differentiable variables and the actors with immutable published
//! copies of any version, through the same code. Every row of a forward pass depends on that row alone (`ops`
//! keeps the arithmetic row-invariant), so the log-probability recorded while sampling equals, bit for bit, the
//! one that the learner computes for the same parameters on CPU.

mod config;
mod core;
mod decoder;
mod distribution;
mod name_patterns;
mod network;
mod normalizer;
mod parameters;
pub mod pretrained;
mod tokenizer;
mod torso;

pub use config::{ActivationKind, CoreConfig, PolicyConfig, TorsoConfig};
pub use decoder::{
    Attend, BlockKind, BlockNorms, Checkpointing, Decoder, DecoderConfig, DecoderInput, ExpertsConfig,
    Gradients, Hidden, LoraConfig, LoraTarget, Pack, PackError, PackedAttention, Packing, Place, RopeScaling,
    ScoreGradients, Scores, TrainingPass, lora,
};
pub use distribution::Distribution;
pub use name_patterns::{NamePatterns, UnknownPattern};
pub use network::{Policy, SequenceInput, SequenceOutput, StepInput, StepOutput};
pub use normalizer::{Moments, Normalizer};
pub use parameters::{Initializer, Layout, ParameterId, Parameters, PlacedCopy};
pub use pretrained::{LoadOptions, Pretrained, PretrainedError};
pub use tokenizer::{TextStream, Tokenizer, TokenizerError};

#[cfg(test)]
mod canary_tests;
