//! A scalar whose gradient is already known: how a gradient that was computed elsewhere enters automatic
//! differentiation.

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, MetalStorage, Result, Shape, Tensor, bail};

/// A scalar 0 of the type of `output`, whose gradient with respect to `output` is `gradient` (the same shape). It must
/// be the root of the backward pass, or a term of a sum that is.
pub(super) fn inject(output: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    if output.shape() != gradient.shape() {
        bail!("a gradient of shape {:?} for an output of shape {:?}", gradient.dims(), output.dims());
    }
    output.apply_op1(Inject { gradient: gradient.to_dtype(output.dtype())? })
}

struct Inject {
    gradient: Tensor,
}

/// The scalar 0 beside `storage`.
fn zero<S: BackendStorage>(storage: &S) -> Result<(S, Shape)>
where
    S::Device: BackendDevice<Storage = S>,
{
    Ok((storage.device().zeros_impl(&Shape::from(()), storage.dtype())?, Shape::from(())))
}

impl CustomOp1 for Inject {
    fn name(&self) -> &'static str {
        "inject"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        zero(storage)
    }

    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        zero(storage)
    }

    fn metal_fwd(&self, storage: &MetalStorage, _: &Layout) -> Result<(MetalStorage, Shape)> {
        zero(storage)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        // The outer gradient is 1, since this is a root: not read, for it may lie on a device.
        Ok(Some(self.gradient.clone()))
    }
}
