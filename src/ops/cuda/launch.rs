//! Launching a kernel: its name, its grid and its arguments, on the stream of the tensors' device.
//!
//! A device has one stream (candle's), and everything that touches its tensors goes through it, so launches run in the
//! order of their calls. candle's read and write events are kept nevertheless.

use candle_core::{DType, Device, Result};

use super::super::storage::refuse;
use super::view::{Array, View};

/// Threads in most blocks; `kernels/common.cuh` has the same as MAX_THREADS.
pub(super) const THREADS: usize = 256;

/// The file of a kernel: `kernels/<name>.cu`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Module {
    pub(super) name: &'static str,
    #[cfg(feature = "cuda")]
    pub(super) ptx: &'static str,
}

#[cfg(feature = "cuda")]
mod ptx {
    #![allow(missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// Declares the module of each file of kernels.
macro_rules! modules {
    ($($constant:ident $name:literal),* $(,)?) => {
        $(pub(super) const $constant: Module = Module {
            name: $name,
            #[cfg(feature = "cuda")]
            ptx: ptx::$constant,
        };)*
    };
}
modules! {
    ATTENTION "attention",
    ATTENTION_BACKWARD "attention_backward",
    CATEGORICAL "categorical",
    EMBEDDING "embedding",
    EXPERTS "experts",
    GAUSSIAN "gaussian",
    LOG_PROB "log_prob",
    LSTM "lstm",
    NORM "norm",
    OPTIMIZER "optimizer",
    ROTARY "rotary",
    SAMPLING "sampling",
    SCAN "scan",
    SWIGLU "swiglu",
}

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) blocks: [usize; 3],
    /// Shared memory whose size the launch decides, in floats.
    pub(super) shared: usize,
}

impl Grid {
    pub(super) fn blocks(x: usize, y: usize) -> Self {
        Self { blocks: [x, y, 1], shared: 0 }
    }

    /// At least `count` threads.
    pub(super) fn threads(count: usize) -> Self {
        Self::blocks(count.div_ceil(THREADS), 1)
    }

    /// At least `count` warps.
    pub(super) fn warps(count: usize) -> Self {
        Self::threads(count * 32)
    }
}

/// One argument of a kernel, in the order of its declaration.
pub(crate) enum Argument<'a> {
    /// Values that are read.
    Read(View<'a>),
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "memory of a device only"))]
    /// Values that are read and written where they are: memory of a device, which Rust's rules on references do not
    /// cover; the stream orders it.
    Update(View<'a>),
    /// A result.
    Write(&'a mut Array),
    /// A null pointer: left out.
    Nothing,
    /// `int`.
    Int(i32),
    /// `uint32_t`.
    Word(u32),
    /// `int64_t`.
    Long(i64),
    /// `float`.
    Float(f32),
}

impl<'a> From<&View<'a>> for Argument<'a> {
    fn from(view: &View<'a>) -> Self {
        Self::Read(view.clone())
    }
}

impl<'a> From<&'a mut Array> for Argument<'a> {
    fn from(array: &'a mut Array) -> Self {
        Self::Write(array)
    }
}

impl From<f32> for Argument<'_> {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

impl From<u32> for Argument<'_> {
    fn from(value: u32) -> Self {
        Self::Word(value)
    }
}

/// A count as the `int64_t` that kernels take.
pub(super) fn long(count: usize) -> Argument<'static> {
    Argument::Long(count as i64)
}

/// A size as the `int` that kernels take; refused when it does not fit.
pub(super) fn int(size: usize) -> Result<Argument<'static>> {
    match i32::try_from(size) {
        Ok(size) => Ok(Argument::Int(size)),
        Err(_) => refuse("a kernel", format!("size {size} is 2^31 or more")),
    }
}

/// A kernel's name for a type of values.
pub(super) fn typed(kernel: &str, dtype: DType) -> Result<String> {
    match dtype {
        DType::F32 => Ok(format!("{kernel}_f32")),
        DType::BF16 => Ok(format!("{kernel}_bf16")),
        other => refuse(kernel, format!("its kernel takes f32 and bf16, not {other:?}")),
    }
}

/// Puts a kernel on the device's stream (in emulation: runs it). A grid without blocks is nothing to do.
pub(super) fn launch(
    device: &Device,
    module: Module,
    kernel: &str,
    grid: Grid,
    arguments: &mut [Argument],
) -> Result<()> {
    if grid.blocks.contains(&0) {
        return Ok(());
    }
    if grid.blocks[1] > 65_535 || grid.blocks[2] > 65_535 || grid.blocks[0] > i32::MAX as usize {
        return refuse(kernel, format!("{:?} blocks are more than a device has", grid.blocks));
    }
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => on_device::launch(device, module, kernel, grid, arguments),
        #[cfg(feature = "kernel-emulation")]
        Device::Cpu => super::emulation::launch(kernel, grid, arguments),
        _ => refuse(kernel, format!("its kernel ({}) does not run on {device:?}", module.name)),
    }
}

#[cfg(feature = "cuda")]
mod on_device {
    use candle_core::cuda_backend::{CudaStorageSlice, WrapErr};
    use candle_core::{CudaDevice, CudaStorage, Result, Storage};
    use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg, SyncOnDrop};

    use super::super::super::storage::refuse;
    use super::super::view::Source;
    use super::{Argument, Grid, Module, THREADS, View};

    /// Shared memory that a launch may ask for without permission.
    const FREE_SHARED_BYTES: usize = 48 * 1024;

    /// An argument as the driver takes it.
    enum Value {
        Pointer(u64),
        Int(i32),
        Word(u32),
        Long(i64),
        Float(f32),
    }

    /// The pointer to a view, and the guard that records its use.
    fn pointer<'a>(view: &View<'a>, stream: &'a CudaStream) -> Result<(u64, SyncOnDrop<'a>)> {
        let Source::Cuda(storage) = view.source else {
            return refuse("a kernel", "an input is not on the device");
        };
        let storage: &'a CudaStorage = storage;
        let (pointer, guard) = match &storage.slice {
            CudaStorageSlice::F32(slice) => slice.device_ptr(stream),
            CudaStorageSlice::BF16(slice) => slice.device_ptr(stream),
            CudaStorageSlice::F64(slice) => slice.device_ptr(stream),
            CudaStorageSlice::U32(slice) => slice.device_ptr(stream),
            CudaStorageSlice::U8(slice) => slice.device_ptr(stream),
            _ => return refuse("a kernel", format!("no kernel takes {:?} values", view.dtype())),
        };
        let (start, _) = view.range()?;
        Ok((pointer + (start * view.dtype().size_in_bytes()) as u64, guard))
    }

    fn pointer_of_result<'a>(
        storage: &'a mut Storage,
        stream: &'a CudaStream,
    ) -> Result<(u64, SyncOnDrop<'a>)> {
        let Storage::Cuda(storage) = storage else {
            return refuse("a kernel", "a result is not on the device");
        };
        match &mut storage.slice {
            CudaStorageSlice::F32(slice) => Ok(slice.device_ptr_mut(stream)),
            CudaStorageSlice::BF16(slice) => Ok(slice.device_ptr_mut(stream)),
            CudaStorageSlice::F64(slice) => Ok(slice.device_ptr_mut(stream)),
            CudaStorageSlice::U32(slice) => Ok(slice.device_ptr_mut(stream)),
            CudaStorageSlice::U8(slice) => Ok(slice.device_ptr_mut(stream)),
            _ => refuse("a kernel", "no kernel writes values of this type"),
        }
    }

    pub(super) fn launch(
        device: &CudaDevice,
        module: Module,
        kernel: &str,
        grid: Grid,
        arguments: &mut [Argument],
    ) -> Result<()> {
        let function = device.get_or_load_custom_func(kernel, module.name, module.ptx)?;
        let shared_bytes = grid.shared * size_of::<f32>();
        if shared_bytes > FREE_SHARED_BYTES {
            function
                .set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes as i32)
                .w()?;
        }
        let stream = device.cuda_stream();
        let mut guards = Vec::with_capacity(arguments.len());
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(match argument {
                Argument::Read(view) | Argument::Update(view) => {
                    let (pointer, guard) = pointer(view, &stream)?;
                    guards.push(guard);
                    Value::Pointer(pointer)
                }
                Argument::Write(array) => {
                    let (pointer, guard) = pointer_of_result(&mut array.storage, &stream)?;
                    guards.push(guard);
                    Value::Pointer(pointer)
                }
                Argument::Nothing => Value::Pointer(0),
                Argument::Int(value) => Value::Int(*value),
                Argument::Word(value) => Value::Word(*value),
                Argument::Long(value) => Value::Long(*value),
                Argument::Float(value) => Value::Float(*value),
            });
        }
        let mut builder = function.builder();
        for value in &values {
            match value {
                Value::Pointer(value) => builder.arg(value),
                Value::Int(value) => builder.arg(value),
                Value::Word(value) => builder.arg(value),
                Value::Long(value) => builder.arg(value),
                Value::Float(value) => builder.arg(value),
            };
        }
        let [x, y, z] = grid.blocks.map(|blocks| blocks as u32);
        let configuration = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: shared_bytes as u32,
        };
        // SAFETY: the functions of this folder give each kernel the arguments of its declaration, with results and
        // views as large as the kernel takes them to be; `crate::kernel_check` runs each with guards around them.
        unsafe { builder.launch(configuration) }.w()?;
        Ok(())
    }
}
