//! A scalar whose gradient is already known: the bridge from objectives computed on the host to automatic
//! differentiation.

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, Layout, MetalStorage, Result, Shape, Tensor, WithDType,
};

use crate::learner::Real;

/// A scalar tensor of value `value`, on the device of `input`, whose gradient with respect to `input` is
/// `gradient` (as many entries as `input`, row-major).
pub(super) fn scalar_with_gradient<F: Real + WithDType>(
    input: &Tensor,
    value: f64,
    gradient: Vec<F>,
) -> Result<Tensor> {
    let gradient = Tensor::from_vec(gradient, input.shape(), input.device())?;
    input.apply_op1(KnownGradient { value: F::narrow(value), gradient })
}

struct KnownGradient<F> {
    value: F,
    gradient: Tensor,
}

impl<F: Real + WithDType> KnownGradient<F> {
    fn scalar(&self) -> CpuStorage {
        F::to_cpu_storage_owned(vec![self.value])
    }
}

impl<F: Real + WithDType> CustomOp1 for KnownGradient<F> {
    fn name(&self) -> &'static str {
        "known-gradient"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((self.scalar(), Shape::from(())))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((storage.device().storage_from_cpu_storage_owned(self.scalar())?, Shape::from(())))
    }

    fn metal_fwd(&self, storage: &MetalStorage, _: &Layout) -> Result<(MetalStorage, Shape)> {
        Ok((storage.device().storage_from_cpu_storage_owned(self.scalar())?, Shape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, outer: &Tensor) -> Result<Option<Tensor>> {
        // A loss that is not scaled further, the usual case, has the outer gradient 1.
        let outer = outer.to_scalar::<F>()?;
        let scaled = if outer == F::one() {
            self.gradient.clone()
        } else {
            self.gradient.affine(outer.widen(), 0.0)?
        };
        Ok(Some(scaled))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn value_and_gradient_come_out_as_given_and_scale_with_what_follows() {
        let input = Var::new(&[[1.0_f64, 2.0], [3.0, f64::NAN]], &Device::Cpu).unwrap();
        let known = scalar_with_gradient(&input, 7.0, vec![1.0, -2.0, 0.5, 0.0]).unwrap();
        assert_eq!(known.to_scalar::<f64>().unwrap(), 7.0);
        let tripled = (known * 3.0).unwrap();
        let gradients = tripled.backward().unwrap();
        let gradient = gradients.get(&input).unwrap().to_vec2::<f64>().unwrap();
        assert_eq!(gradient, [[3.0, -6.0], [1.5, 0.0]]);
    }
}
