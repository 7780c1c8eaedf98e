//! A decoder and its parameters as one file: its shape, all values, and a checksum.
//!
//! Critics and the policies of corpora are kept so, since models from scratch need not have an architecture that other
//! programs know.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor};

use super::frozen::checksum;
use crate::codec::{tensors_from_bytes, tensors_to_bytes};
use crate::policy::{Decoder, DecoderConfig, Parameters, lora};

/// Entry of the metadata: the shape, as JSON.
const SHAPE: &str = "decoder";
/// Entry of the metadata: CRC-32C of all values in order.
const CHECKSUM: &str = "crc32c";

/// What a file holds.
pub(super) struct DecoderFile {
    /// The shape.
    pub(super) shape: DecoderConfig,
    /// All parameters by name.
    pub(super) parameters: Vec<(String, Tensor)>,
}

impl DecoderFile {
    /// A decoder's; adapters are put into the weights.
    ///
    /// # Errors
    /// When a tensor cannot be computed or copied.
    pub(super) fn new(decoder: &Decoder, parameters: &Parameters) -> candle_core::Result<Self> {
        let parameters = match decoder.adapters() {
            Some(adapters) => lora::merged(parameters, adapters)?,
            None => parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor.detach())).collect(),
        };
        Ok(Self { shape: decoder.config().clone(), parameters })
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// When a tensor cannot be copied.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let shape = serde_json::to_string(&self.shape).map_err(|error| error.to_string())?;
        let sum = checksum(&self.parameters).map_err(|error| error.to_string())?;
        let metadata = BTreeMap::from([(SHAPE.to_owned(), shape), (CHECKSUM.to_owned(), sum)]);
        tensors_to_bytes(&self.parameters, &metadata).map_err(|error| error.to_string())
    }

    /// Reads what [`Self::to_bytes`] gave.
    ///
    /// # Errors
    /// When the bytes are damaged or were written by something else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let found = tensors_from_bytes(bytes, &Device::Cpu).map_err(|error| error.to_string())?;
        let shape = found.metadata.get(SHAPE).ok_or("it does not say the shape of a decoder")?;
        let shape =
            serde_json::from_str(shape).map_err(|error| format!("the shape of its decoder: {error}"))?;
        let sum = checksum(&found.tensors).map_err(|error| error.to_string())?;
        if found.metadata.get(CHECKSUM) != Some(&sum) {
            return Err("its values are not those that were written: write it anew".into());
        }
        Ok(Self { shape, parameters: found.tensors })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`Self::from_bytes`]; names the file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let refuse = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let bytes = std::fs::read(path).map_err(|error| refuse(&error))?;
        Self::from_bytes(&bytes).map_err(|error| refuse(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_comes_back_and_a_damaged_file_is_refused() {
        let config =
            DecoderConfig { width: 8, layers: 1, heads: 1, kv_heads: 1, head_size: 4, ..Default::default() };
        let decoder = Decoder::new(config.clone(), &Device::Cpu).unwrap();
        let parameters = decoder.layout().initialize(1, &Device::Cpu).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("decoder.safetensors");
        let mut bytes = DecoderFile::new(&decoder, &parameters).unwrap().to_bytes().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let file = DecoderFile::read(&path).unwrap();
        assert_eq!(file.shape, config);
        let adopted = decoder.layout().adopt(file.parameters, &Device::Cpu).unwrap();
        let values = |parameters: &Parameters| -> Vec<Vec<f32>> {
            parameters.iter().map(|(_, tensor)| tensor.flatten_all().unwrap().to_vec1().unwrap()).collect()
        };
        assert_eq!(values(&adopted), values(&parameters));
        *bytes.last_mut().unwrap() ^= 1;
        for (bytes, words) in
            [(&bytes[..], "values"), (&bytes[..20], "decoder.safetensors"), (b"", "cannot read")]
        {
            std::fs::write(&path, bytes).unwrap();
            let error = DecoderFile::read(&path).err().unwrap();
            assert!(error.contains(words) && error.contains("decoder.safetensors"), "{error}");
        }
    }
}
