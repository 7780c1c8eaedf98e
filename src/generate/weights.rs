//! The weights that generate, and what becomes of keys and values when they change.

use std::sync::Arc;

use candle_core::{DType, Device, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{Decoder, Parameters};
use crate::trajectory::Version;

/// Parameters and the version they are.
#[derive(Debug, Clone)]
pub struct Weights {
    /// Published parameters ([`Parameters::deep_copy`]): only those are laid out once, for all steps.
    pub parameters: Arc<Parameters>,
    /// Stamped on every token that they sample.
    pub version: Version,
}

impl Weights {
    /// These parameters as this version.
    #[must_use]
    pub fn new(parameters: Arc<Parameters>, version: Version) -> Self {
        Self { parameters, version }
    }

    /// The same version with every value rounded to bfloat16 (and computed with in `f32`): a way to study what a less
    /// precise inference engine does to training.
    ///
    /// # Errors
    /// When the parameters are not the decoder's.
    pub fn rounded_to_bf16(&self, decoder: &Decoder) -> Result<Self> {
        let rounded = self.parameters.iter().map(|(name, tensor)| {
            Ok((name.to_owned(), tensor.detach().to_dtype(DType::BF16)?.to_dtype(DType::F32)?))
        });
        let device = self.parameters.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device().clone());
        let parameters = decoder.layout().adopt(rounded.collect::<Result<_>>()?, &device)?;
        Ok(Self::new(Arc::new(parameters.deep_copy(&device)?), self.version))
    }
}

/// What sequences in progress do about the keys and values of older weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeMode {
    /// They keep them and go on at once: what they sample then mixes versions. A sequence that has sampled nothing
    /// against its keys and values yet is read anew all the same, so that a trajectory of one version is exact.
    KeepKv,
    /// They are read anew, in chunks, under the new weights before they go on.
    Reprefill,
}
