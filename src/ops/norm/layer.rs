//! Layer normalisation (Ba, Kiros and Hinton 2016): `y = (x - mean x) / sqrt(var x + ε) · w + b`, the variance the
//! biased one.

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::super::lanes::{Lanes, on_this_processor};
use super::super::parallel::over_rows;
use super::super::reduce::{Reduce, dot, dot_scaled, sum};
use super::super::storage::{self, by_type, refuse, values};
use super::{Block, COST, Wanted};
#[cfg(feature = "cuda")]
use {
    super::super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// `(x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon) · weight + bias`, the means over the last dimension.
///
/// Shapes: x `[.., D]`, weight `[D]`, bias `[D]`, result as x; D at least 1. Differentiable in all three. Own kernels
/// for `f32` and `f64` on the CPU, else candle's operators. Errors when a shape does not fit.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    match (x.dims(), weight.dims(), bias.dims()) {
        ([.., width], [weights], [biases]) if width == weights && width == biases && *width > 0 => {}
        (x, weight, bias) => {
            return refuse(
                "layer_norm",
                format!("x {x:?}, weight {weight:?} and bias {bias:?} must be [.., D > 0], [D] and [D]"),
            );
        }
    }
    if x.dtype() != weight.dtype() || x.dtype() != bias.dtype() {
        let types = [x.dtype(), weight.dtype(), bias.dtype()];
        return refuse("layer_norm", format!("x, weight and bias have the types {types:?}"));
    }
    if storage::is_native(x) || storage::has_kernel(x) {
        x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, LayerNorm { epsilon })
    } else {
        composed(x, weight, bias, epsilon)
    }
}

/// The same function out of candle's own differentiable operators.
pub(super) fn composed(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let size = (centred.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
    centred.broadcast_div(&size)?.broadcast_mul(weight)?.broadcast_add(bias)
}

/// Writes `x - mean x` to `centred` and gives `1 / sqrt(var x + ε)`.
#[inline(always)]
fn centre<S: Simd, T: Reduce>(simd: S, x: &[T], epsilon: f64, centred: &mut [T]) -> T {
    let (step, count) = (Lanes::<S, T>::width(), x.len() as f64);
    let mean = Lanes::splat(simd, T::constant(sum(simd, x).to_f64() / count));
    for (centred, x) in centred.chunks_mut(step).zip(x.chunks(step)) {
        (Lanes::load(simd, x) - mean).store(centred);
    }
    T::constant(1.0 / (dot(simd, centred, centred).to_f64() / count + epsilon).sqrt())
}

struct Forward<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    bias: &'a [T],
    epsilon: f64,
    output: &'a mut [T],
}

impl<T: Reduce> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (step, width) = (Lanes::<S, T>::width(), self.weight.len());
        for (x, output) in self.x.chunks_exact(width).zip(self.output.chunks_exact_mut(width)) {
            let inverse = Lanes::splat(simd, centre(simd, x, self.epsilon, output));
            let given = self.weight.chunks(step).zip(self.bias.chunks(step));
            for (output, (weight, bias)) in output.chunks_mut(step).zip(given) {
                let normal = Lanes::load(simd, output) * inverse;
                normal.multiply_add(Lanes::load(simd, weight), Lanes::load(simd, bias)).store(output);
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

    /// With n the normalised row and s = 1 / sqrt(var x + ε): `dx = s (g w - mean(g w) - n mean(g w n))`,
    /// `dw = Σ g n` and `db = Σ g` over rows.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (step, width) = (Lanes::<S, T>::width(), self.weight.len());
        let mut centred = vec![T::zero(); width];
        let rows = self.x.chunks_exact(width).zip(self.gradient.chunks_exact(width));
        for (row, (x, gradient)) in rows.enumerate() {
            let inverse = centre(simd, x, self.epsilon, &mut centred);
            let scale = Lanes::splat(simd, inverse);
            if let Some((weight, bias)) = self.block.parameters.split_at_mut_checked(width) {
                let given = centred.chunks(step).zip(gradient.chunks(step));
                let sums = weight.chunks_mut(step).zip(bias.chunks_mut(step));
                for ((weight, bias), (centred, gradient)) in sums.zip(given) {
                    let (normal, gradient) =
                        (Lanes::load(simd, centred) * scale, Lanes::load(simd, gradient));
                    gradient.multiply_add(normal, Lanes::load(simd, weight)).store(weight);
                    (Lanes::load(simd, bias) + gradient).store(bias);
                }
            }
            if self.block.x.is_empty() {
                continue;
            }
            let mean = dot(simd, gradient, self.weight).to_f64() / width as f64;
            let mean = Lanes::splat(simd, T::constant(mean));
            let slant = dot_scaled(simd, gradient, &centred, Some(self.weight)).to_f64() / width as f64;
            let pull = Lanes::splat(simd, T::constant(-slant * inverse.to_f64() * inverse.to_f64()));
            let given = centred.chunks(step).zip(gradient.chunks(step)).zip(self.weight.chunks(step));
            let output = &mut self.block.x[row * width..][..width];
            for (output, ((centred, gradient), weight)) in output.chunks_mut(step).zip(given) {
                let push = Lanes::load(simd, gradient) * Lanes::load(simd, weight) - mean;
                (Lanes::load(simd, centred).multiply_add(pull, push) * scale).store(output);
            }
        }
    }
}

struct LayerNorm {
    epsilon: f64,
}

impl LayerNorm {
    fn forward<T: Reduce>(
        &self,
        [x, weight, bias]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let shape = x.1.shape().clone();
        let x: &[T] = storage::slice(x.0, x.1)?;
        let (weight, bias) = (storage::slice(weight.0, weight.1)?, storage::slice(bias.0, bias.1)?);
        let mut output = vec![T::zero(); x.len()];
        over_rows(&mut output, weight.len(), COST * x.len(), |first, output| {
            let x = &x[first * weight.len()..][..output.len()];
            on_this_processor(Forward { x, weight, bias, epsilon: self.epsilon, output });
        });
        Ok((T::to_cpu_storage_owned(output), shape))
    }

    fn backward<T: Reduce>(&self, inputs: [&Tensor; 3], gradient: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let [x, weight, bias] = inputs;
        let width = weight.elem_count();
        let parameters = if weight.track_op() || bias.track_op() { 2 } else { 0 };
        let wanted = Wanted { rows: x.elem_count() / width, width, x: x.track_op(), parameters };
        let (x_values, gradient, weight_values) =
            (values::<T>(x)?, values::<T>(gradient)?, values::<T>(weight)?);
        let (x_values, gradient, weight_values) =
            (x_values.slice()?, gradient.slice()?, weight_values.slice()?);
        let (x_gradient, parameters) = wanted.over_blocks(|block| {
            let range = block.first * width..(block.first + block.rows) * width;
            on_this_processor(Backward {
                x: &x_values[range.clone()],
                weight: weight_values,
                gradient: &gradient[range],
                epsilon: self.epsilon,
                block,
            });
        });
        let part = |tracked: bool, index: usize| {
            tracked
                .then(|| Tensor::from_slice(&parameters[index * width..][..width], width, x.device()))
                .transpose()
        };
        Ok([
            wanted.x.then(|| Tensor::from_vec(x_gradient, x.shape(), x.device())).transpose()?,
            part(weight.track_op(), 0)?,
            part(bias.track_op(), 1)?,
        ])
    }
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(x, x_layout), (weight, weight_layout), (bias, bias_layout)];
        by_type!(storage::dtype(x), T => self.forward::<T>(inputs))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        x_layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
        bias: &CudaStorage,
        bias_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (x, weight) = (View::cuda(x, x_layout), View::cuda(weight, weight_layout));
        let bias = View::cuda(bias, bias_layout);
        cuda::norm::layer_norm_forward(&x, &weight, &bias, self.epsilon)?.into_cuda()
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(x) {
            let locked = (lock(x), lock(weight), lock(&gradient));
            let (of_x, parameters) = cuda::norm::layer_norm_backward(
                &locked.0.view()?,
                &locked.1.view()?,
                &locked.2.view()?,
                self.epsilon,
            )?;
            let parameters = parameters.into_tensor();
            let (of_weight, of_bias) = (parameters.get(0)?, parameters.get(1)?);
            return Ok((
                x.track_op().then(|| of_x.into_tensor()),
                weight.track_op().then_some(of_weight),
                bias.track_op().then_some(of_bias),
            ));
        }
        let [x, weight, bias] = by_type!(x.dtype(), T => self.backward::<T>([x, weight, bias], &gradient))?;
        Ok((x, weight, bias))
    }
}
