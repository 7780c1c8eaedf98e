//! Root-mean-square normalisation (Zhang and Sennrich 2019): `y = x / sqrt(mean x² + ε) · w`.

use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::super::lanes::{Lanes, on_this_processor};
use super::super::parallel::over_rows;
use super::super::reduce::{Reduce, dot, dot_scaled};
use super::super::storage::{self, by_type, refuse, values};
use super::super::tape;
use super::{Block, COST, Wanted};
#[cfg(feature = "cuda")]
use {
    super::super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// `x / sqrt(mean(x²) + epsilon) · weight`, the mean over the last dimension.
///
/// Shapes: x `[.., D]`, weight `[D]`, result as x; D at least 1. Differentiable in both. Own kernels for `f32` and
/// `f64` on the CPU, else candle's operators. Errors when a shape does not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    match (x.dims(), weight.dims()) {
        ([.., width], [weights]) if width == weights && *width > 0 => {}
        (x, weight) => {
            return refuse("rms_norm", format!("x {x:?} and weight {weight:?} must be [.., D > 0] and [D]"));
        }
    }
    if x.dtype() != weight.dtype() {
        return refuse("rms_norm", format!("x is {:?}, weight {:?}", x.dtype(), weight.dtype()));
    }
    if storage::is_native(x) || storage::has_kernel(x) {
        tape::apply2(&x.contiguous()?, &weight.contiguous()?, RmsNorm { epsilon })
    } else {
        composed(x, weight, epsilon)
    }
}

/// The same function out of candle's own differentiable operators.
pub(super) fn composed(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
    x.broadcast_div(&size)?.broadcast_mul(weight)
}

/// `1 / sqrt(mean x² + ε)` of one row.
#[inline(always)]
fn inverse_size<S: Simd, T: Reduce>(simd: S, x: &[T], epsilon: f64) -> T {
    T::constant(1.0 / (dot(simd, x, x).to_f64() / x.len() as f64 + epsilon).sqrt())
}

struct Forward<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    epsilon: f64,
    output: &'a mut [T],
}

impl<T: Reduce> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (step, width) = (Lanes::<S, T>::width(), self.weight.len());
        for (x, output) in self.x.chunks_exact(width).zip(self.output.chunks_exact_mut(width)) {
            let inverse = Lanes::splat(simd, inverse_size(simd, x, self.epsilon));
            let given = x.chunks(step).zip(self.weight.chunks(step));
            for (output, (x, weight)) in output.chunks_mut(step).zip(given) {
                (Lanes::load(simd, x) * inverse * Lanes::load(simd, weight)).store(output);
            }
        }
    }
}

struct Backward<'a, T> {
    /// The block's inputs.
    x: &'a [T],
    weight: &'a [T],
    /// Of the block's results.
    gradient: &'a [T],
    epsilon: f64,
    block: Block<'a, T>,
}

impl<T: Reduce> WithSimd for Backward<'_, T> {
    type Output = ();

    /// With s = 1 / sqrt(mean x² + ε): `dx = s (g w - x s² mean(g w x))` and `dw = Σ g x s` over rows.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (step, width) = (Lanes::<S, T>::width(), self.weight.len());
        let rows = self.x.chunks_exact(width).zip(self.gradient.chunks_exact(width));
        for (row, (x, gradient)) in rows.enumerate() {
            let inverse = inverse_size(simd, x, self.epsilon);
            let scale = Lanes::splat(simd, inverse);
            let given = x.chunks(step).zip(gradient.chunks(step));
            for (sum, (x, gradient)) in self.block.parameters.chunks_mut(step).zip(given) {
                let normal = Lanes::load(simd, x) * scale;
                Lanes::load(simd, gradient).multiply_add(normal, Lanes::load(simd, sum)).store(sum);
            }
            if self.block.x.is_empty() {
                continue;
            }
            let mean = dot_scaled(simd, gradient, x, Some(self.weight)).to_f64() / width as f64;
            let pull = Lanes::splat(simd, T::constant(-mean * inverse.to_f64() * inverse.to_f64()));
            let given = x.chunks(step).zip(gradient.chunks(step)).zip(self.weight.chunks(step));
            let output = &mut self.block.x[row * width..][..width];
            for (output, ((x, gradient), weight)) in output.chunks_mut(step).zip(given) {
                let push = Lanes::load(simd, gradient) * Lanes::load(simd, weight);
                (Lanes::load(simd, x).multiply_add(pull, push) * scale).store(output);
            }
        }
    }
}

struct RmsNorm {
    epsilon: f64,
}

impl RmsNorm {
    fn forward<T: Reduce>(
        &self,
        (x, layout): (&CpuStorage, &Layout),
        weight: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight): (&[T], &[T]) = (storage::slice(x, layout)?, storage::slice(weight.0, weight.1)?);
        let mut output = vec![T::zero(); x.len()];
        over_rows(&mut output, weight.len(), COST * x.len(), |first, output| {
            let x = &x[first * weight.len()..][..output.len()];
            on_this_processor(Forward { x, weight, epsilon: self.epsilon, output });
        });
        Ok((T::to_cpu_storage_owned(output), layout.shape().clone()))
    }

    fn backward<T: Reduce>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 2]> {
        let width = weight.elem_count();
        let wanted = Wanted {
            rows: x.elem_count() / width,
            width,
            x: x.track_op(),
            parameters: usize::from(weight.track_op()),
        };
        let (x_values, gradient, weight_values) =
            (values::<T>(x)?, values::<T>(gradient)?, values::<T>(weight)?);
        let (x_values, gradient, weight_values) =
            (x_values.slice()?, gradient.slice()?, weight_values.slice()?);
        let (x_gradient, weight_gradient) = wanted.over_blocks(|block| {
            let range = block.first * width..(block.first + block.rows) * width;
            on_this_processor(Backward {
                x: &x_values[range.clone()],
                weight: weight_values,
                gradient: &gradient[range],
                epsilon: self.epsilon,
                block,
            });
        });
        Ok([
            wanted.x.then(|| Tensor::from_vec(x_gradient, x.shape(), x.device())).transpose()?,
            weight.track_op().then(|| Tensor::from_vec(weight_gradient, width, x.device())).transpose()?,
        ])
    }
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => self.forward::<T>((x, x_layout), (weight, weight_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (x, weight) = (View::cuda(x, x_layout), View::cuda(weight, weight_layout));
        cuda::norm::rms_norm_forward(&x, &weight, self.epsilon)?.into_cuda()
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(x) {
            let locked = (lock(x), lock(weight), lock(&gradient));
            let (of_x, parameters) = cuda::norm::rms_norm_backward(
                &locked.0.view()?,
                &locked.1.view()?,
                &locked.2.view()?,
                self.epsilon,
            )?;
            let of_weight = parameters.into_tensor().get(0)?;
            return Ok((x.track_op().then(|| of_x.into_tensor()), weight.track_op().then_some(of_weight)));
        }
        let [x, weight] = by_type!(x.dtype(), T => self.backward::<T>(x, weight, &gradient))?;
        Ok((x, weight))
    }
}
