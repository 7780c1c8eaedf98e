//! The operators' twins on CUDA devices: one function a kernel (or a few), over tensors, without gradients.
//!
//! The kernels are `kernels/*.cu`. A function here checks what its kernel relies on, makes the results and launches on
//! the device's own stream; an operator calls it from its forward and backward pass. Values are f32 or bf16, arithmetic
//! is f32. Invariants:
//!
//! - inputs are contiguous views at any offset;
//! - a result's order of summation depends on shapes alone: the same bits in every run, and for a row the same bits
//!   whatever the rows around it;
//! - an index that a CPU operator would refuse (a token outside the vocabulary) gives NaN, since asking the device
//!   would stop the stream.
//!
//! With the feature `kernel-emulation` the same functions also take CPU tensors and run the same kernels, compiled as
//! plain C++, with the same grids: `crate::kernel_check` holds both against references.

pub(crate) mod attention;
pub(crate) mod categorical;
pub(crate) mod embedding;
pub(crate) mod experts;
pub(crate) mod gaussian;
mod launch;
pub(crate) mod log_prob;
pub(crate) mod lstm;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod pages;
pub(crate) mod rotary;
pub(crate) mod sampling;
pub(crate) mod scan;
pub(crate) mod swiglu;
mod view;

#[cfg(feature = "kernel-emulation")]
mod emulation;

#[cfg(feature = "cuda")]
pub(crate) use super::storage::has_kernel;
#[cfg(feature = "kernel-emulation")]
pub(crate) use emulation::run_threads_backwards;
pub(crate) use launch::Argument;
pub(crate) use view::{Array, Locked, lock};
#[cfg(feature = "cuda")]
pub(crate) use view::{View, poison_results};
