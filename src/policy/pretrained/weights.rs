//! Weights out of safetensors files: one file, or several with an index.
//!
//! Files are mapped, not read: a tensor is copied once, into the f32 tensor that the decoder uses.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata};
use serde_json::Value;

use super::{PretrainedError, names};
use crate::policy::{Decoder, Layout};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// One mapped file.
struct Shard {
    path: PathBuf,
    bytes: Mmap,
    metadata: Metadata,
    /// Where the tensors' bytes begin.
    data: usize,
}

/// The files of a model, and which holds which tensor.
pub(super) struct Weights {
    shards: Vec<Shard>,
    /// Index of the shard, by the tensor's name.
    places: BTreeMap<String, usize>,
    /// What names a tensor that no file has: the index, or the only file.
    listing: PathBuf,
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, PretrainedError> {
        let file = File::open(&path).map_err(PretrainedError::io("open", &path))?;
        // SAFETY: the mapping is read-only, and files of models are not changed while they are loaded; nothing but
        // numbers is taken from them without a check.
        let bytes = unsafe { Mmap::map(&file) }.map_err(PretrainedError::io("map", &path))?;
        let invalid = |error| {
            let why = format!("not a whole safetensors file ({error}): download or write it again");
            PretrainedError::file(&path, why)
        };
        let (header, metadata) = SafeTensors::read_metadata(&bytes).map_err(invalid)?;
        let data = size_of::<u64>() + header;
        Ok(Self { path, bytes, metadata, data })
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.metadata.tensors().into_keys()
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, PretrainedError> {
        let wrong = |why: String| PretrainedError::tensor(&self.path, name, why);
        let info = self.metadata.info(name).ok_or_else(|| wrong("is missing".into()))?;
        if info.shape != shape {
            return Err(wrong(format!("has shape {:?}, the configuration makes it {shape:?}", info.shape)));
        }
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(wrong(format!("is of type {other:?}, supported are F32, F16 and BF16"))),
        };
        let (start, end) = info.data_offsets;
        let bytes = self
            .bytes
            .get(self.data + start..self.data + end)
            .ok_or_else(|| wrong("reaches beyond the end of the file".into()))?;
        let tensor = Tensor::from_raw_buffer(bytes, dtype, shape, &Device::Cpu)?;
        Ok(tensor.to_dtype(DType::F32)?)
    }
}

impl Weights {
    /// Maps a model's files.
    pub(super) fn open(folder: &Path) -> Result<Self, PretrainedError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        if single.exists() || !index.exists() {
            let shard = Shard::open(single.clone())?;
            let places = shard.names().map(|name| (name, 0)).collect();
            return Ok(Self { shards: vec![shard], places, listing: single });
        }
        let bytes = std::fs::read(&index).map_err(PretrainedError::io("read", &index))?;
        let json: Value = serde_json::from_slice(&bytes)
            .map_err(|error| PretrainedError::file(&index, format!("not valid JSON: {error}")))?;
        let map = json["weight_map"]
            .as_object()
            .ok_or_else(|| PretrainedError::file(&index, "has no object `weight_map`"))?;
        let (mut shards, mut files, mut places) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (tensor, file) in map {
            // A name with a folder in it could lead anywhere.
            let plain = file.as_str().filter(|name| !name.contains(['/', '\\']) && *name != "..");
            let Some(name) = plain else {
                return Err(PretrainedError::field(
                    &index,
                    tensor,
                    file,
                    "must be the name of a file beside it",
                ));
            };
            let shard = if let Some(&shard) = files.get(name) {
                shard
            } else {
                shards.push(Shard::open(folder.join(name))?);
                files.insert(name, shards.len() - 1);
                shards.len() - 1
            };
            places.insert(tensor.clone(), shard);
        }
        Ok(Self { shards, places, listing: index })
    }

    /// All parameters of a layout but those in `absent`, as f32 on the CPU.
    pub(super) fn load(
        mut self,
        layout: &Layout,
        tied: bool,
        absent: &[&str],
    ) -> Result<Vec<(String, Tensor)>, PretrainedError> {
        let mut named = Vec::new();
        for (parameter, shape) in layout.entries().filter(|(name, _)| !absent.contains(name)) {
            let part = if names::is_stacked(parameter) { &shape[1..] } else { shape };
            let parts = names::in_file(parameter, shape)
                .iter()
                .map(|name| self.take(name, part))
                .collect::<Result<Vec<_>, _>>()?;
            let tensor = if names::is_stacked(parameter) {
                Tensor::stack(&parts, 0)?
            } else {
                parts
                    .into_iter()
                    .next()
                    .ok_or_else(|| PretrainedError::tensor(&self.listing, parameter, "is missing"))?
            };
            named.push((parameter.to_owned(), tensor));
        }
        match self.places.into_iter().find(|(name, _)| !names::is_redundant(name, tied)) {
            Some((name, shard)) => {
                let why = "is not a part of the architecture that config.json describes";
                Err(PretrainedError::tensor(&self.shards[shard].path, name, why))
            }
            None => Ok(named),
        }
    }

    /// One tensor, as f32 on the CPU; it is no longer among those that are left.
    pub(super) fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, PretrainedError> {
        match self.places.remove(name) {
            Some(shard) => self.shards[shard].tensor(name, shape),
            None => Err(PretrainedError::tensor(&self.listing, name, "is missing")),
        }
    }
}

/// One parameter out of a file that holds only it.
pub(super) fn single(path: &Path, name: &str, decoder: &Decoder) -> Result<Tensor, PretrainedError> {
    let shape = decoder.layout().entries().find(|(entry, _)| *entry == name).map(|(_, shape)| shape);
    let shape =
        shape.ok_or_else(|| PretrainedError::tensor(path, name, "is not a part of the architecture"))?;
    Shard::open(path.to_owned())?.tensor(name, shape)
}
