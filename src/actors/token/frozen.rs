//! The parameters of a run that are not trained, in `model/frozen.safetensors` of its directory.
//!
//! No update changes them, so they are written once, before the first checkpoint, and checkpoints hold the trained
//! parameters alone: a checkpoint of adapters is small however large the model. The file carries a checksum of its
//! values, since no checkpoint's manifest vouches for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use super::language_model::LanguageModel;
use crate::actors::train_error::TrainError;
use crate::codec::{tensors_from_bytes, tensors_to_bytes, write_atomically};

const FILE: &str = "frozen.safetensors";
/// Entry of the file's metadata: CRC-32C of all values in order, as bytes.
const CHECKSUM: &str = "crc32c";

fn path(run_dir: &Path) -> PathBuf {
    run_dir.join(LanguageModel::FOLDER).join(FILE)
}

/// CRC-32C of all values in order, in f32, as text.
pub(super) fn checksum(named: &[(String, Tensor)]) -> candle_core::Result<String> {
    let mut sum = 0;
    for (_, tensor) in named {
        let values: Vec<f32> = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        for part in values.chunks(1 << 14) {
            let bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            sum = crc32c::crc32c_append(sum, &bytes);
        }
    }
    Ok(format!("{sum:08x}"))
}

/// Writes the parameters that are not trained; without any there is no file, also not an earlier one.
///
/// # Errors
/// When the file cannot be written or removed.
pub(super) fn write(run_dir: &Path, named: &[(String, Tensor)]) -> Result<(), TrainError> {
    let path = path(run_dir);
    let refuse = |error: &dyn std::fmt::Display| {
        TrainError::Model(format!("cannot write {}: {error}", path.display()))
    };
    if named.is_empty() {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(refuse(&error)),
            _ => Ok(()),
        };
    }
    let sum = checksum(named).map_err(|error| refuse(&error))?;
    let metadata = BTreeMap::from([(CHECKSUM.to_owned(), sum)]);
    let bytes = tensors_to_bytes(named, &metadata).map_err(|error| refuse(&error))?;
    write_atomically(&path, &bytes).map_err(|error| refuse(&error))
}

/// Reads what [`write`] wrote; empty when all parameters of the run are trained.
///
/// # Errors
/// When the file cannot be read or is damaged.
pub(super) fn read(run_dir: &Path) -> Result<Vec<(String, Tensor)>, TrainError> {
    let path = path(run_dir);
    let refuse =
        |error: &dyn std::fmt::Display| TrainError::Model(format!("cannot read {}: {error}", path.display()));
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refuse(&error)),
    };
    let found = tensors_from_bytes(&bytes, &Device::Cpu).map_err(|error| refuse(&error))?;
    let sum = checksum(&found.tensors).map_err(|error| refuse(&error))?;
    if found.metadata.get(CHECKSUM) != Some(&sum) {
        return Err(refuse(&"its values are not those that were written: put the file back from a copy"));
    }
    Ok(found.tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back_and_a_damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(LanguageModel::FOLDER)).unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        let tensor = Tensor::arange(0f32, 6.0, &Device::Cpu).unwrap().reshape((2, 3)).unwrap();
        write(dir.path(), &[("w".into(), tensor.clone())]).unwrap();
        let found = read(dir.path()).unwrap();
        assert_eq!(found[0].0, "w");
        assert_eq!(found[0].1.to_vec2::<f32>().unwrap(), tensor.to_vec2::<f32>().unwrap());

        let path = path(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("frozen.safetensors"));
        write(dir.path(), &[]).unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
    }
}
