//! Published weights where generators compute.
//!
//! Generators on one device share a [`Place`]. Weights that the learner published on that device are used as they are;
//! on another one they are copied once for each version, by the generator that asks first, and what no update changes
//! once for all versions. A place keeps the version that it made ready last: whoever generates with an older one holds
//! it himself.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use candle_core::{DType, Result};

use crate::actors::parameter_bus::Published;
use crate::actors::run::NamedDevice;
use crate::generate::Weights;
use crate::policy::{Decoder, PlacedCopy};

/// One device and the generators on it.
pub struct Place {
    device: NamedDevice,
    decoder: Arc<Decoder>,
    /// Sample with weights rounded to bfloat16.
    rounds: bool,
    /// The version that was made ready last.
    latest: Mutex<Option<Latest>>,
}

/// What a place made of a version.
struct Latest {
    of: Weak<Published>,
    copy: PlacedCopy,
    weights: Weights,
}

impl Place {
    /// The places of generators on `devices`, in order. `decoder` is the learner's; `rounds` says that weights are
    /// rounded to bfloat16 before they sample. A CPU computes in f32, whatever the learner computes in.
    ///
    /// # Errors
    /// When a device fails.
    pub fn of_generators(
        devices: &[NamedDevice],
        decoder: &Arc<Decoder>,
        rounds: bool,
    ) -> Result<Vec<Arc<Self>>> {
        let mut places: Vec<Arc<Self>> = Vec::with_capacity(devices.len());
        for device in devices {
            let known = places.iter().find(|place| place.device.name == device.name).cloned();
            let place = match known {
                Some(place) => place,
                None => Arc::new(Self::new(device.clone(), decoder, rounds)?),
            };
            places.push(place);
        }
        Ok(places)
    }

    fn new(device: NamedDevice, decoder: &Arc<Decoder>, rounds: bool) -> Result<Self> {
        let dtype = if device.device.is_cpu() { DType::F32 } else { decoder.dtype() };
        let is_there = device.device.same_device(decoder.device()) && dtype == decoder.dtype();
        let decoder =
            if is_there { Arc::clone(decoder) } else { Arc::new(decoder.placed(&device.device, dtype)?) };
        Ok(Self { device, decoder, rounds, latest: Mutex::default() })
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// The architecture, for use there.
    #[must_use]
    pub fn decoder(&self) -> &Arc<Decoder> {
        &self.decoder
    }

    /// A published version as generators sample with it there.
    ///
    /// # Errors
    /// When a device has no memory for it.
    pub fn weights(&self, published: &Arc<Published>) -> Result<Weights> {
        // Held while weights are copied, so that another generator of this place waits for them.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // The weak reference keeps the address from being used again.
        if let Some(Latest { of, weights, .. }) = &*latest
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(published))
        {
            return Ok(weights.clone());
        }
        let before = latest.as_ref().map(|latest| &latest.copy);
        let (device, dtype) = (self.decoder.device(), self.decoder.dtype());
        let copy = published.parameters.placed(device, dtype, before)?;
        let mut weights = Weights::new(Arc::new(copy.parameters.clone()), published.version);
        if self.rounds {
            weights = weights.rounded_to_bf16(&self.decoder)?;
        }
        *latest = Some(Latest { of: Arc::downgrade(published), copy, weights: weights.clone() });
        Ok(weights)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::policy::{DecoderConfig, Parameters};
    use crate::trajectory::Version;

    fn decoder() -> Arc<Decoder> {
        let config =
            DecoderConfig { width: 8, layers: 1, heads: 1, kv_heads: 1, head_size: 4, ..Default::default() };
        Arc::new(Decoder::new(config, &Device::Cpu).unwrap())
    }

    fn published(parameters: &Parameters, version: u64) -> Arc<Published> {
        let parameters = parameters.deep_copy(&Device::Cpu).unwrap();
        Arc::new(Published { version: Version(version), parameters, normalizer: None })
    }

    fn values(parameters: &Parameters) -> Vec<f32> {
        let flat = |(_, tensor): (_, &candle_core::Tensor)| tensor.flatten_all().unwrap().to_vec1().unwrap();
        parameters.iter().flat_map(flat).collect()
    }

    fn places(count: usize, decoder: &Arc<Decoder>, rounds: bool) -> Vec<Arc<Place>> {
        let devices = vec![NamedDevice { name: "cpu".into(), device: Device::Cpu }; count];
        Place::of_generators(&devices, decoder, rounds).unwrap()
    }

    #[test]
    fn generators_on_one_device_share_its_weights_and_the_learners_are_not_copied() {
        let decoder = decoder();
        let places = places(2, &decoder, false);
        assert!(Arc::ptr_eq(&places[0], &places[1]) && Arc::ptr_eq(places[0].decoder(), &decoder));
        let published = published(&decoder.layout().initialize(1, &Device::Cpu).unwrap(), 3);
        let [one, other] = [0, 1].map(|place: usize| places[place].weights(&published).unwrap());
        assert!(Arc::ptr_eq(&one.parameters, &other.parameters) && one.version == Version(3));
        for ((_, own), (_, learners)) in one.parameters.iter().zip(published.parameters.iter()) {
            let (own, learners) = (own.storage_and_layout().0, learners.storage_and_layout().0);
            assert!(std::ptr::eq(&raw const *own, &raw const *learners));
        }
    }

    #[test]
    fn what_is_published_anew_under_the_same_version_is_taken_up() {
        let decoder = decoder();
        let place = places(1, &decoder, true).remove(0);
        for seed in [1, 2] {
            let parameters = decoder.layout().initialize(seed, &Device::Cpu).unwrap();
            let weights = place.weights(&published(&parameters, 0)).unwrap();
            let rounded = parameters.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            assert_eq!(values(&weights.parameters), values(&rounded));
        }
    }

    #[test]
    fn what_no_update_changes_is_copied_once_for_all_versions() {
        let decoder = decoder();
        let learners = Arc::new(decoder.to_dtype(DType::BF16).unwrap());
        let place = places(1, &learners, false).remove(0);
        let drawn = decoder.layout().initialize(1, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
        let trained = |name: &str| name.contains("norm");
        let (variables, parameters) = drawn.to_variables_where(trained).unwrap();
        let weights = [1, 2].map(|version| {
            let doubled = (variables[0].1.as_detached_tensor() * 2.0).unwrap();
            variables[0].1.set(&doubled).unwrap();
            let parameters = parameters.snapshot().unwrap();
            let version = Version(version);
            place.weights(&Arc::new(Published { version, parameters, normalizer: None })).unwrap()
        });
        let [one, other] = weights.map(|weights| weights.parameters);
        for ((name, one), (_, other)) in one.iter().zip(other.iter()) {
            assert_eq!(one.id() == other.id(), !trained(name), "{name}");
        }
        let first = |parameters: &Parameters| {
            let found = parameters.iter().find(|(name, _)| *name == variables[0].0).unwrap().1.clone();
            found.to_vec1::<f32>().unwrap()[0]
        };
        assert_eq!((first(&one), first(&other)), (2.0, 4.0));
    }

    #[test]
    fn a_generator_on_the_cpu_computes_in_f32_with_the_values_of_a_learner_in_bf16() {
        let decoder = decoder();
        let learners = Arc::new(decoder.to_dtype(DType::BF16).unwrap());
        let place = places(1, &learners, false).remove(0);
        assert_eq!((place.decoder().dtype(), place.name()), (DType::F32, "cpu"));
        let parameters = decoder.layout().initialize(1, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
        let expected = values(&parameters.to_dtype(DType::F32).unwrap());
        let weights = place.weights(&published(&parameters, 1)).unwrap();
        assert_eq!(values(&weights.parameters), expected);
    }
}
