//! What kernels read and write: views of tensors' storages, and results that are not tensors yet.

use std::ops::Deref;

#[cfg(feature = "cuda")]
use candle_core::backend::BackendDevice;
use candle_core::backend::BackendStorage;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaStorage, DType, Device, Error, Layout, Result, Shape, Storage, Tensor, WithDType,
};

use super::super::storage::refuse;

#[cfg(feature = "cuda")]
thread_local! {
    static POISON: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// From now on this thread's results on devices start as NaN, so that a place which no kernel writes is seen. In
/// emulation they always do.
#[cfg(feature = "cuda")]
pub(crate) fn poison_results(yes: bool) {
    POISON.set(yes);
}

/// Where values lie.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Cpu(&'a CpuStorage),
    Cuda(&'a CudaStorage),
}

/// A contiguous part of a storage that a kernel reads.
#[derive(Clone)]
pub(crate) struct View<'a> {
    pub(super) source: Source<'a>,
    layout: Layout,
}

#[cfg(feature = "cuda")]
impl<'a> View<'a> {
    /// What a custom operator is given on a CUDA device.
    pub(crate) fn cuda(storage: &'a CudaStorage, layout: &Layout) -> Self {
        Self { source: Source::Cuda(storage), layout: layout.clone() }
    }
}

impl View<'_> {
    pub(crate) fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.shape().elem_count()
    }

    /// The last dimension, and how many rows of it there are.
    pub(super) fn rows_and_width(&self) -> Result<(usize, usize)> {
        match self.dims() {
            [rows @ .., width] => Ok((rows.iter().product(), *width)),
            [] => refuse("a kernel", "a scalar has no rows"),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self.source {
            Source::Cpu(storage) => storage.dtype(),
            Source::Cuda(storage) => storage.dtype(),
        }
    }

    pub(crate) fn device(&self) -> Device {
        match self.source {
            Source::Cpu(_) => Device::Cpu,
            Source::Cuda(storage) => Device::Cuda(storage.device().clone()),
        }
    }

    /// Entries from the beginning of the storage to the first one of the view, and past its last one.
    pub(super) fn range(&self) -> Result<(usize, usize)> {
        match self.layout.contiguous_offsets() {
            Some(range) => Ok(range),
            None => Err(Error::Msg("a kernel got a strided tensor: make it contiguous first".into()).bt()),
        }
    }

    /// `count` rows of the first dimension.
    pub(super) fn narrow(&self, first: usize, count: usize) -> Result<Self> {
        Ok(Self { source: self.source, layout: self.layout.narrow(0, first, count)? })
    }

    /// Matrix `index` of `[E, O, K]`.
    pub(super) fn matrix(&self, index: usize) -> Result<Self> {
        let (_, rows, columns) = self.shape().dims3()?;
        let start = self.range()?.0 + index * rows * columns;
        Ok(Self { source: self.source, layout: Layout::contiguous_with_offset((rows, columns), start) })
    }

    /// A copy.
    pub(super) fn copied(&self) -> Result<Array> {
        let storage = match self.source {
            Source::Cpu(values) => Storage::Cpu(values.to_dtype(&self.layout, self.dtype())?),
            Source::Cuda(values) => Storage::Cuda(values.to_dtype(&self.layout, self.dtype())?),
        };
        Ok(Array { storage, shape: self.shape().clone() })
    }

    pub(super) fn transposed(&self) -> Result<Self> {
        Ok(Self { source: self.source, layout: self.layout.transpose(0, 1)? })
    }

    /// The product of two matrices, by candle (cuBLAS on a device); either may be transposed.
    pub(super) fn product(&self, right: &View) -> Result<Array> {
        let ((rows, inner), (inner_too, columns)) = (self.shape().dims2()?, right.shape().dims2()?);
        if inner != inner_too {
            return refuse("a product", format!("{:?} times {:?}", self.dims(), right.dims()));
        }
        let sizes = (1, rows, columns, inner);
        let storage = match (self.source, right.source) {
            // In emulation. candle does not multiply in bf16 on the CPU; cuBLAS sums in f32 and rounds.
            (Source::Cpu(left), Source::Cpu(values)) if self.dtype() == DType::BF16 => {
                let widened = |storage: &CpuStorage, layout: &Layout| storage.to_dtype(layout, DType::F32);
                let [of_left, of_right] = [self, right].map(|view| Layout::contiguous(view.shape().clone()));
                let product = widened(left, &self.layout)?.matmul(
                    &widened(values, &right.layout)?,
                    sizes,
                    &of_left,
                    &of_right,
                )?;
                Storage::Cpu(product.to_dtype(&Layout::contiguous((rows, columns)), DType::BF16)?)
            }
            (Source::Cpu(left), Source::Cpu(values)) => {
                Storage::Cpu(left.matmul(values, sizes, &self.layout, &right.layout)?)
            }
            (Source::Cuda(left), Source::Cuda(values)) => {
                Storage::Cuda(left.matmul(values, sizes, &self.layout, &right.layout)?)
            }
            _ => return refuse("a product", "its tensors lie on different devices"),
        };
        Ok(Array { storage, shape: Shape::from((rows, columns)) })
    }
}

/// A tensor, read-locked while this lives.
pub(crate) struct Locked<'a, Guard> {
    storage: Guard,
    layout: &'a Layout,
}

/// Locks a tensor for a kernel to read.
pub(crate) fn lock(tensor: &Tensor) -> Locked<'_, impl Deref<Target = Storage> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    Locked { storage, layout }
}

impl<Guard: Deref<Target = Storage>> Locked<'_, Guard> {
    pub(crate) fn view(&self) -> Result<View<'_>> {
        let source = match &*self.storage {
            Storage::Cpu(storage) => Source::Cpu(storage),
            Storage::Cuda(storage) => Source::Cuda(storage),
            Storage::Metal(_) => return refuse("a kernel", "it runs on CUDA devices, not on Metal"),
        };
        Ok(View { source, layout: self.layout.clone() })
    }
}

/// A result that a kernel writes.
pub(crate) struct Array {
    pub(super) storage: Storage,
    shape: Shape,
}

impl Array {
    /// A result to be written entirely.
    pub(super) fn new(device: &Device, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let storage = match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => {
                // An allocation of nothing is an error.
                let size = Shape::from(shape.elem_count().max(1));
                if POISON.get() {
                    let values = poison(dtype, size.elem_count())?;
                    Storage::Cuda(device.storage_from_cpu_storage_owned(values)?)
                } else {
                    // SAFETY: kernels write every entry of their results before anything reads them.
                    Storage::Cuda(unsafe { device.alloc_uninit(&size, dtype)? })
                }
            }
            _ => Storage::Cpu(poison(dtype, shape.elem_count())?),
        };
        Ok(Self { storage, shape })
    }

    /// A copy of a tensor, to be updated.
    pub(crate) fn copy_of(tensor: &Tensor) -> Result<Self> {
        lock(tensor).view()?.copied()
    }

    /// A result like a view.
    pub(super) fn like(view: &View) -> Result<Self> {
        Self::new(&view.device(), view.dtype(), view.shape().clone())
    }

    /// A result of zeros, to be written in part.
    pub(super) fn zeros(device: &Device, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let size = Shape::from(shape.elem_count().max(1));
        let storage = match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Storage::Cuda(device.zeros_impl(&size, dtype)?),
            _ => {
                let zeros = f32::to_cpu_storage_owned(vec![0.0; size.elem_count()]);
                Storage::Cpu(zeros.to_dtype(&Layout::contiguous(size), dtype)?)
            }
        };
        Ok(Self { storage, shape })
    }

    /// Writes `part`, from entry `start` on.
    pub(super) fn write(&mut self, start: usize, part: &Self) -> Result<()> {
        let layout = Layout::contiguous(part.shape.clone());
        match (&mut self.storage, &part.storage) {
            (Storage::Cpu(whole), Storage::Cpu(part)) => part.copy_strided_src(whole, start, &layout),
            (Storage::Cuda(whole), Storage::Cuda(part)) => part.copy_strided_src(whole, start, &layout),
            _ => refuse("a kernel", "its results lie on different devices"),
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        let source = match &self.storage {
            Storage::Cuda(storage) => Source::Cuda(storage),
            Storage::Cpu(storage) => Source::Cpu(storage),
            Storage::Metal(_) => unreachable!("arrays are made on the CPU or on CUDA devices"),
        };
        View { source, layout: Layout::contiguous(self.shape.clone()) }
    }

    /// The result as a tensor without history.
    pub(crate) fn into_tensor(self) -> Tensor {
        Tensor::from_storage(self.storage, self.shape, BackpropOp::none(), false)
    }

    /// The result as a custom operator has to give it.
    #[cfg(feature = "cuda")]
    pub(crate) fn into_cuda(self) -> Result<(CudaStorage, Shape)> {
        match self.storage {
            Storage::Cuda(storage) => Ok((storage, self.shape)),
            _ => refuse("a kernel", "its result is not on a CUDA device"),
        }
    }
}

/// Values that are seen when they are left: NaN, or the largest integers.
fn poison(dtype: DType, count: usize) -> Result<CpuStorage> {
    match dtype {
        DType::U32 => Ok(u32::to_cpu_storage_owned(vec![u32::MAX; count])),
        DType::F64 => Ok(f64::to_cpu_storage_owned(vec![f64::NAN; count])),
        DType::F32 => Ok(f32::to_cpu_storage_owned(vec![f32::NAN; count])),
        _ => f32::to_cpu_storage_owned(vec![f32::NAN; count]).to_dtype(&Layout::contiguous(count), dtype),
    }
}
