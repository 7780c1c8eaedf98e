//! From tensors to slices and back: contiguous CPU views that honour a tensor's offset, and dispatch by type.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use candle_core::{CpuStorage, DType, Error, Layout, Result, Storage, Tensor, WithDType};

/// Whether the operators' own CPU path serves this tensor; otherwise they are composed of candle's operators.
pub(super) fn is_native(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && matches!(tensor.dtype(), DType::F32 | DType::F64)
}

/// Whether a kernel of `super::cuda` serves this tensor.
#[cfg(feature = "cuda")]
pub(crate) fn has_kernel(tensor: &Tensor) -> bool {
    tensor.device().is_cuda() && matches!(tensor.dtype(), DType::F32 | DType::BF16)
}

/// Whether a kernel of `super::cuda` serves this tensor: there are none in this build.
#[cfg(not(feature = "cuda"))]
pub(crate) fn has_kernel(_: &Tensor) -> bool {
    false
}

/// Runs `$body` with the type alias `$T` set to the Rust type of a native dtype; an error for any other.
macro_rules! by_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            candle_core::DType::F32 => {
                type $T = f32;
                $body
            }
            candle_core::DType::F64 => {
                type $T = f64;
                $body
            }
            other => Err(candle_core::Error::Msg(format!(
                "operator got {other:?} values on the CPU: convert them to f32 or f64 first"
            ))),
        }
    };
}
pub(super) use by_type;

/// The type of the values in a CPU storage.
pub(super) fn dtype(storage: &CpuStorage) -> DType {
    candle_core::backend::BackendStorage::dtype(storage)
}

/// An error that names the operator and what was wrong with its inputs.
pub(super) fn refuse<R>(operator: &str, problem: impl std::fmt::Display) -> Result<R> {
    Err(Error::Msg(format!("{operator} refused its inputs: {problem}")))
}

pub(super) fn contiguous_range(layout: &Layout) -> Result<Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => Err(Error::Msg("operator got a strided tensor: make it contiguous first".into()).bt()),
    }
}

/// The values of a contiguous layout, wherever it starts in its storage.
pub(super) fn slice<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    Ok(&T::cpu_storage_as_slice(storage)?[contiguous_range(layout)?])
}

/// The values of a contiguous CPU tensor, read-locked while this lives.
pub(super) struct Values<Guard, T> {
    storage: Guard,
    range: Range<usize>,
    element: PhantomData<T>,
}

/// Locks a tensor's storage for reading.
pub(super) fn values<T: WithDType>(tensor: &Tensor) -> Result<Values<impl Deref<Target = Storage> + '_, T>> {
    let (storage, layout) = tensor.storage_and_layout();
    Ok(Values { storage, range: contiguous_range(layout)?, element: PhantomData })
}

impl<Guard: Deref<Target = Storage>, T: WithDType> Values<Guard, T> {
    /// The values, row-major.
    pub(super) fn slice(&self) -> Result<&[T]> {
        match &*self.storage {
            Storage::Cpu(storage) => Ok(&T::cpu_storage_as_slice(storage)?[self.range.clone()]),
            _ => Err(Error::Msg("operator got tensors of different devices: move them to one".into()).bt()),
        }
    }
}
