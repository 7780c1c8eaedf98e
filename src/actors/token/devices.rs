//! Where a token run computes.

use std::sync::Arc;

use super::placement::Place;
use crate::actors::devices::{DeviceError, open_all};
use crate::actors::run::NamedDevice;
use crate::config::{TokenConfig, TokenDevicesConfig};
use crate::learner::LearnerError;
use crate::policy::Decoder;

/// The devices that a configuration names; equal names are one device.
pub(super) struct TokenDevices {
    /// The learner's.
    pub(super) learner: NamedDevice,
    /// One for each generator.
    pub(super) generation: Vec<NamedDevice>,
}

impl TokenDevices {
    /// Opens all of them.
    ///
    /// # Errors
    /// When a name is not one, or its device cannot be used.
    pub(super) fn open(config: &TokenDevicesConfig) -> Result<Self, DeviceError> {
        let learner = std::iter::once(&config.learner);
        let names = learner.chain(&config.generation).map(String::as_str);
        let mut opened = open_all(names)?;
        let generation = opened.split_off(1);
        Ok(Self { learner: opened.swap_remove(0), generation })
    }

    /// The places of the generators, in order. `decoder` is the learner's.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn places(
        &self,
        config: &TokenConfig,
        decoder: &Arc<Decoder>,
    ) -> Result<Vec<Arc<Place>>, LearnerError> {
        Ok(Place::of_generators(&self.generation, decoder, config.generate.bf16_weights)?)
    }
}
