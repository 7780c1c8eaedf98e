//! The sum of two tensors, as in a residual block.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, WithDType};

use super::parallel::over_rows;
use super::storage::{self, by_type, refuse};
use super::tape;

/// `x + y`, on the threads of this thread's policy.
///
/// Any shape, the same for both; one float type. Differentiable in both. Own kernels for `f32` and `f64` on the CPU,
/// else candle's operators.
///
/// # Errors
/// When shapes or types differ.
pub fn sum(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dims() != y.dims() || x.dtype() != y.dtype() {
        let [x, y] = [x, y].map(|t| format!("{:?} {:?}", t.dtype(), t.dims()));
        return refuse("sum", format!("{x} and {y} must be alike"));
    }
    if storage::is_native(x) { tape::apply2(&x.contiguous()?, &y.contiguous()?, Sum) } else { x + y }
}

struct Sum;

impl Sum {
    fn forward<T: WithDType>(
        (x, layout): (&CpuStorage, &Layout),
        y: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (x, y): (&[T], &[T]) = (storage::slice(x, layout)?, storage::slice(y.0, y.1)?);
        let mut output = vec![T::zero(); x.len()];
        // A value comes from memory, which is what it costs.
        over_rows(&mut output, 1, 16 * x.len(), |first, output| {
            let given = x[first..].iter().zip(&y[first..]);
            output.iter_mut().zip(given).for_each(|(output, (&x, &y))| *output = x + y);
        });
        Ok((T::to_cpu_storage_owned(output), layout.shape().clone()))
    }
}

impl CustomOp2 for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        y: &CpuStorage,
        y_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => Self::forward::<T>((x, x_layout), (y, y_layout)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        y: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((x.track_op().then(|| gradient.clone()), y.track_op().then(|| gradient.clone())))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::super::testing::{check_gradients, pseudo_random};
    use super::*;

    #[test]
    fn sums_and_their_gradients_are_right_and_other_shapes_are_refused() {
        let inputs = [1, 2].map(|seed| pseudo_random(&[3, 5], seed, DType::F64));
        check_gradients(&inputs, |t| sum(&t[0], &t[1]));
        let error = sum(&inputs[0], &inputs[1].t().unwrap()).unwrap_err().to_string();
        assert!(error.contains("sum") && error.contains("[5, 3]"), "{error}");
    }
}
