//! Named tensors as safetensors bytes, readable by any tool that knows the format.
//!
//! The format sorts tensors and keeps its metadata in no order, so two things are added: the order given by the writer
//! is kept, and the same tensors always give the same bytes. Both live in one metadata entry, [`ENTRY`], as JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use candle_core::safetensors::Load as _;
use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::CodecError;

/// The only entry of the file's metadata.
const ENTRY: &str = "forebay";

/// Tensors in the writer's order, with what the writer said about them.
#[derive(Debug, Clone, Default)]
pub struct NamedTensors {
    /// Names are unique.
    pub tensors: Vec<(String, Tensor)>,
    /// Free text by key.
    pub metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Annotation<'a> {
    order: Vec<Cow<'a, str>>,
    metadata: Cow<'a, BTreeMap<String, String>>,
}

/// The bytes of a safetensors file with these tensors, whatever their strides and their device.
///
/// # Errors
/// When two tensors have the same name, a tensor's type is not among u8, u32, i16, i32, i64, bf16, f16, f32 and f64,
/// or it cannot be copied from its device.
pub fn tensors_to_bytes(
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, CodecError> {
    let mut names = HashSet::new();
    let mut views = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        if !names.insert(name) {
            return Err(failure(name, "there are two of that name"));
        }
        views.push((name, on_host(name, tensor)?));
    }
    let annotation = Annotation {
        order: tensors.iter().map(|(name, _)| Cow::Borrowed(name.as_str())).collect(),
        metadata: Cow::Borrowed(metadata),
    };
    let annotation =
        serde_json::to_string(&annotation).map_err(|error| CodecError::Tensors { why: error.to_string() })?;
    safetensors::serialize(views, Some(HashMap::from([(ENTRY.to_owned(), annotation)])))
        .map_err(|error| CodecError::Tensors { why: error.to_string() })
}

/// Reads a safetensors file onto a device. One that another program wrote has its tensors in order of their names, and
/// its own metadata.
///
/// # Errors
/// When the bytes are not a whole safetensors file, or hold a type that candle does not have.
pub fn tensors_from_bytes(bytes: &[u8], device: &Device) -> Result<NamedTensors, CodecError> {
    let malformed = |why: String| CodecError::Tensors { why: format!("not a valid safetensors file: {why}") };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| malformed(error.to_string()))?;
    let file = SafeTensors::deserialize(bytes).map_err(|error| malformed(error.to_string()))?;
    let foreign = header.metadata().clone().unwrap_or_default();
    let (order, metadata) = if let Some(text) = foreign.get(ENTRY) {
        let annotation: Annotation =
            serde_json::from_str(text).map_err(|error| malformed(format!("its metadata: {error}")))?;
        (annotation.order.into_iter().map(Cow::into_owned).collect(), annotation.metadata.into_owned())
    } else {
        let mut names: Vec<String> = file.names().into_iter().map(str::to_owned).collect();
        names.sort_unstable();
        (names, foreign.into_iter().collect())
    };
    if order.len() != file.len() {
        return Err(malformed(format!("{} tensors, but {} names", file.len(), order.len())));
    }
    let load = |name: String| {
        let view = file.tensor(&name).map_err(|error| failure(&name, error))?;
        let tensor = view.load(device).map_err(|error| failure(&name, error))?;
        Ok((name, tensor))
    };
    Ok(NamedTensors { tensors: order.into_iter().map(load).collect::<Result<_, CodecError>>()?, metadata })
}

fn failure(name: &str, why: impl std::fmt::Display) -> CodecError {
    CodecError::Tensors { why: format!("`{name}`: {why}") }
}

/// The tensor in main memory, if its type is one that candle can turn into bytes.
fn on_host(name: &str, tensor: &Tensor) -> Result<Tensor, CodecError> {
    use DType::{BF16, F16, F32, F64, I16, I32, I64, U8, U32};
    match tensor.dtype() {
        U8 | U32 | I16 | I32 | I64 | BF16 | F16 | F32 | F64 => {
            tensor.to_device(&Device::Cpu).map_err(|error| failure(name, error))
        }
        other => Err(failure(name, format!("tensors of type {} are not saved", other.as_str()))),
    }
}

#[cfg(test)]
mod tests {
    use safetensors::View as _;

    use super::*;

    fn sample() -> NamedTensors {
        let device = Device::Cpu;
        let matrix = Tensor::arange(0f32, 12.0, &device).unwrap().reshape((3, 4)).unwrap();
        let tensors = vec![
            ("z.weight".to_owned(), matrix.clone()),
            ("a.transposed".to_owned(), matrix.t().unwrap()),
            ("a.narrowed".to_owned(), matrix.narrow(1, 1, 2).unwrap()),
            ("step".to_owned(), Tensor::new(7i64, &device).unwrap()),
            ("double".to_owned(), Tensor::new(&[0.1f64, f64::NAN, f64::NEG_INFINITY], &device).unwrap()),
            ("index".to_owned(), Tensor::new(&[1u32, u32::MAX], &device).unwrap()),
            ("mask".to_owned(), Tensor::new(&[1u8, 0, 1], &device).unwrap()),
            ("half".to_owned(), matrix.to_dtype(DType::BF16).unwrap()),
            ("empty".to_owned(), Tensor::zeros((0, 3), DType::F32, &device).unwrap()),
        ];
        let metadata = (0..9).map(|n| (format!("key {n}"), format!("value {n}"))).collect();
        NamedTensors { tensors, metadata }
    }

    fn written(named: &NamedTensors) -> Vec<u8> {
        tensors_to_bytes(&named.tensors, &named.metadata).unwrap()
    }

    #[test]
    fn tensors_come_back_in_order_with_every_bit() {
        let named = sample();
        let read = tensors_from_bytes(&written(&named), &Device::Cpu).unwrap();
        assert_eq!(read.metadata, named.metadata);
        assert_eq!(read.tensors.len(), named.tensors.len());
        for ((name, tensor), (read_name, read)) in named.tensors.iter().zip(&read.tensors) {
            assert_eq!((name, tensor.dtype(), tensor.dims()), (read_name, read.dtype(), read.dims()));
            let bits = |tensor: &Tensor| tensor.data().into_owned();
            assert_eq!(bits(tensor), bits(read), "{name}");
        }
        let transposed = read.tensors[1].1.to_vec2::<f32>().unwrap();
        assert_eq!(transposed[1], [1.0, 5.0, 9.0]);
    }

    #[test]
    fn the_same_tensors_give_the_same_bytes() {
        let bytes = written(&sample());
        for _ in 0..8 {
            assert_eq!(written(&sample()), bytes);
        }
        assert_eq!(written(&tensors_from_bytes(&bytes, &Device::Cpu).unwrap()), bytes);
    }

    #[test]
    fn other_programs_read_and_write_these_files() {
        let read = candle_core::safetensors::load_buffer(&written(&sample()), &Device::Cpu).unwrap();
        assert_eq!(read["z.weight"].to_vec2::<f32>().unwrap()[2], [8.0, 9.0, 10.0, 11.0]);

        let value = Tensor::new(&[1f32], &Device::Cpu).unwrap();
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let foreign = safetensors::serialize([("b", &value), ("a", &value)], Some(metadata)).unwrap();
        let read = tensors_from_bytes(&foreign, &Device::Cpu).unwrap();
        assert_eq!(read.tensors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read.metadata["format"], "pt");
    }

    #[test]
    fn two_tensors_of_one_name_are_refused() {
        let tensor = Tensor::new(1f32, &Device::Cpu).unwrap();
        let twice = [("a".to_owned(), tensor.clone()), ("a".to_owned(), tensor)];
        let error = tensors_to_bytes(&twice, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "tensors: `a`: there are two of that name");
    }

    #[test]
    fn a_type_that_cannot_be_saved_is_refused() {
        let tensor = Tensor::zeros(4, DType::F8E4M3, &Device::Cpu).unwrap();
        let error = tensors_to_bytes(&[("a".to_owned(), tensor)], &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "tensors: `a`: tensors of type f8e4m3 are not saved");
    }

    #[test]
    fn a_damaged_file_is_refused_without_a_panic() {
        let bytes = written(&sample());
        for length in 0..bytes.len() {
            assert!(tensors_from_bytes(&bytes[..length], &Device::Cpu).is_err(), "{length} bytes");
        }
        assert!(tensors_from_bytes(b"not tensors at all, but text", &Device::Cpu).is_err());
    }
}
