//! The diagonal Gaussian squashed by tanh, for continuous actions in (-1, 1).
//!
//! A draw is `u = μ + σ ε`, the action `a = tanh u`. Kept and passed on is `u`, never `a`, so nothing is inverted:
//! `log p(a) = Σ_d [-z²/2 - log σ - log(2π)/2 - log(1 - tanh² u)]` with `z = (u - μ)/σ`, and
//! `log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u))`, which is finite for every finite u (Haarnoja et al., "Soft
//! actor-critic", 2018, appendix C gives the correction). The entropy is the Gaussian's own before squashing,
//! `Σ_d [log σ + log(2πe)/2]`; the squashed one has no closed form.
//!
//! Sums run over d in index order. [`squashed_gaussian`] on tensors and [`squashed_log_prob_and_entropy`] on slices
//! run the same code row by row, so they give the same bits.

use candle_core::{CpuStorage, CustomOp3, D, Device, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::lanes::{Element, Lanes, on_this_processor};
use super::storage::{self, by_type, refuse, values};
#[cfg(feature = "cuda")]
use {
    super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// `log(2π) / 2`.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_8;

/// Log-density of the squashed action (column 0) and entropy of the unsquashed Gaussian (column 1), in nats.
///
/// Shapes: mean, log_std and `before` (the value before squashing) `[N, D]` each, result `[N, 2]`. Differentiable in
/// all three. Errors when the shapes differ.
pub fn squashed_gaussian(mean: &Tensor, log_std: &Tensor, before: &Tensor) -> Result<Tensor> {
    if mean.rank() != 2 || mean.dims() != log_std.dims() || mean.dims() != before.dims() {
        return refuse(
            "squashed_gaussian",
            format!(
                "mean {:?}, log_std {:?} and value {:?} must be [N, D] alike",
                mean.dims(),
                log_std.dims(),
                before.dims()
            ),
        );
    }
    if storage::is_native(mean) || storage::has_kernel(mean) {
        mean.contiguous()?.apply_op3(&log_std.contiguous()?, &before.contiguous()?, SquashedGaussian)
    } else {
        composed(mean, log_std, before)
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(mean: &Tensor, log_std: &Tensor, before: &Tensor) -> Result<Tensor> {
    let z = ((before - mean)? * log_std.neg()?.exp()?)?;
    // softplus(-2u) = max(-2u, 0) + log(1 + exp(-2|u|))
    let softplus = ((before * -2.0)?.relu()? + ((before.abs()? * -2.0)?.exp()? + 1.0)?.log()?)?;
    let correction = ((((before + softplus)? * -1.0)? + std::f64::consts::LN_2)? * 2.0)?;
    let density = ((((z.sqr()? * -0.5)? - log_std)? - HALF_LN_TAU)? - correction)?;
    let entropy = (log_std + (HALF_LN_TAU + 0.5))?;
    let columns = [density.sum_keepdim(D::Minus1)?, entropy.sum_keepdim(D::Minus1)?];
    Tensor::cat(&columns, D::Minus1)
}

/// Log-density and entropy of one row; the bits that [`squashed_gaussian`] gives. Panics when the lengths differ.
#[must_use]
pub fn squashed_log_prob_and_entropy(mean: &[f32], log_std: &[f32], before: &[f32]) -> (f32, f32) {
    let mut output = [0.0; 2];
    let width = mean.len();
    on_this_processor(Forward { mean, log_std, before, width, output: &mut output });
    (output[0], output[1])
}

/// Fills `before` with `μ + σ ε` from standard normal values ε. Panics when the lengths differ.
pub fn sample_before_squashing(mean: &[f32], log_std: &[f32], normal: &[f32], before: &mut [f32]) {
    assert!(mean.len() == log_std.len() && mean.len() == normal.len() && mean.len() == before.len());
    on_this_processor(Sample { mean, log_std, normal, before });
}

/// `log(1 - tanh² u)`.
#[inline(always)]
fn ln_of_squash_slope<S: Simd, T: Element>(u: Lanes<S, T>) -> Lanes<S, T> {
    let (zero, two) = (u.constant(0.0), u.constant(2.0));
    let minus_two_u = zero - (u + u);
    let softplus =
        minus_two_u.where_less(zero, zero, minus_two_u) + (zero - two * u.absolute()).exp().ln_1p_of_unit();
    two * (u.constant(std::f64::consts::LN_2) - u - softplus)
}

struct Sample<'a> {
    mean: &'a [f32],
    log_std: &'a [f32],
    normal: &'a [f32],
    before: &'a mut [f32],
}

impl WithSimd for Sample<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, f32>::width();
        for (index, before) in self.before.chunks_mut(step).enumerate() {
            let start = index * step;
            let deviation = Lanes::load(simd, &self.log_std[start..]).exp();
            let normal = Lanes::load(simd, &self.normal[start..]);
            deviation.multiply_add(normal, Lanes::load(simd, &self.mean[start..])).store(before);
        }
    }
}

struct Forward<'a, T> {
    mean: &'a [T],
    log_std: &'a [T],
    before: &'a [T],
    /// D.
    width: usize,
    /// `[N, 2]`.
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let len = self.output.len() / 2 * self.width;
        assert!(self.mean.len() == len && self.log_std.len() == len && self.before.len() == len);
        let step = Lanes::<S, T>::width();
        let mut terms = vec![T::zero(); self.width];
        for (row, output) in self.output.chunks_exact_mut(2).enumerate() {
            let row = row * self.width..(row + 1) * self.width;
            for (index, terms) in terms.chunks_mut(step).enumerate() {
                let range = row.start + index * step..row.end;
                let mean = Lanes::load(simd, &self.mean[range.clone()]);
                let log_std = Lanes::load(simd, &self.log_std[range.clone()]);
                let before = Lanes::load(simd, &self.before[range]);
                let z = (before - mean) * (-log_std).exp();
                let density =
                    z.constant(-0.5) * z * z - log_std - z.constant(HALF_LN_TAU) - ln_of_squash_slope(before);
                density.store(terms);
            }
            let mut sums = [T::zero(); 2];
            for (&density, &log_std) in terms.iter().zip(&self.log_std[row]) {
                sums[0] += density;
                sums[1] += log_std + T::constant(HALF_LN_TAU + 0.5);
            }
            output.copy_from_slice(&sums);
        }
    }
}

struct Backward<'a, T> {
    mean: &'a [T],
    log_std: &'a [T],
    before: &'a [T],
    /// `[N, 2]`, of the log-densities and the entropies.
    gradient: &'a [T],
    /// D.
    width: usize,
}

impl<T: Element> WithSimd for Backward<'_, T> {
    /// The gradients of mean, log_std and value, `[N, D]` each.
    type Output = [Vec<T>; 3];
    /// `d log p / dμ = z/σ`, `d log p / d log σ = z² - 1`, `d log p / du = 2 tanh u - z/σ`, `dH / d log σ = 1`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let mut outputs = [(); 3].map(|()| vec![T::zero(); self.mean.len()]);
        let step = Lanes::<S, T>::width();
        for (row, gradient) in self.gradient.chunks_exact(2).enumerate() {
            let density = Lanes::splat(simd, gradient[0]);
            let entropy = Lanes::splat(simd, gradient[1]);
            let end = (row + 1) * self.width;
            for start in (row * self.width..end).step_by(step) {
                let range = start..end.min(start + step);
                let mean = Lanes::load(simd, &self.mean[range.clone()]);
                let log_std = Lanes::load(simd, &self.log_std[range.clone()]);
                let before = Lanes::load(simd, &self.before[range.clone()]);
                let precision = (-log_std).exp();
                let z = (before - mean) * precision;
                let pull = density * z * precision;
                pull.store(&mut outputs[0][range.clone()]);
                (density * (z * z - z.constant(1.0)) + entropy).store(&mut outputs[1][range.clone()]);
                (density * z.constant(2.0) * before.tanh() - pull).store(&mut outputs[2][range.clone()]);
            }
        }
        outputs
    }
}

struct SquashedGaussian;

impl SquashedGaussian {
    fn forward<T: Element>(inputs: [(&CpuStorage, &Layout); 3]) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = inputs[0].1.shape().dims2()?;
        let mut output = vec![T::zero(); rows * 2];
        on_this_processor(Forward::<T> {
            mean: storage::slice(inputs[0].0, inputs[0].1)?,
            log_std: storage::slice(inputs[1].0, inputs[1].1)?,
            before: storage::slice(inputs[2].0, inputs[2].1)?,
            width,
            output: &mut output,
        });
        Ok((T::to_cpu_storage_owned(output), Shape::from((rows, 2))))
    }

    fn backward<T: Element>(inputs: [&Tensor; 3], gradient: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let outputs = on_this_processor(Backward::<T> {
            mean: values(inputs[0])?.slice()?,
            log_std: values(inputs[1])?.slice()?,
            before: values(inputs[2])?.slice()?,
            gradient: values(gradient)?.slice()?,
            width: inputs[0].dim(1)?,
        });
        let mut gradients = [None, None, None];
        for ((gradient, output), input) in gradients.iter_mut().zip(outputs).zip(inputs) {
            if input.track_op() {
                *gradient = Some(Tensor::from_vec(output, input.shape(), &Device::Cpu)?);
            }
        }
        Ok(gradients)
    }
}

impl CustomOp3 for SquashedGaussian {
    fn name(&self) -> &'static str {
        "squashed_gaussian"
    }

    fn cpu_fwd(
        &self,
        mean: &CpuStorage,
        mean_layout: &Layout,
        log_std: &CpuStorage,
        log_std_layout: &Layout,
        before: &CpuStorage,
        before_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(mean, mean_layout), (log_std, log_std_layout), (before, before_layout)];
        by_type!(storage::dtype(mean), T => Self::forward::<T>(inputs))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        mean: &CudaStorage,
        mean_layout: &Layout,
        log_std: &CudaStorage,
        log_std_layout: &Layout,
        before: &CudaStorage,
        before_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (mean, log_std) = (View::cuda(mean, mean_layout), View::cuda(log_std, log_std_layout));
        cuda::gaussian::forward(&mean, &log_std, &View::cuda(before, before_layout))?.into_cuda()
    }

    fn bwd(
        &self,
        mean: &Tensor,
        log_std: &Tensor,
        before: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(mean) {
            let inputs = (lock(mean), lock(log_std), lock(before), lock(&gradient));
            let gradients = cuda::gaussian::backward(
                &inputs.0.view()?,
                &inputs.1.view()?,
                &inputs.2.view()?,
                &inputs.3.view()?,
            )?;
            let [mean, log_std, before] = gradients.map(|gradient| Some(gradient.into_tensor()));
            return Ok((mean, log_std, before));
        }
        let [mean, log_std, before] =
            by_type!(mean.dtype(), T => Self::backward::<T>([mean, log_std, before], &gradient))?;
        Ok((mean, log_std, before))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::DType;

    const SHAPES: [[usize; 2]; 4] = [[1, 1], [3, 2], [5, 17], [2, 33]];

    fn inputs(shape: [usize; 2], dtype: DType) -> [Tensor; 3] {
        [
            pseudo_random(&shape, 1, dtype),
            (pseudo_random(&shape, 2, dtype) * 0.4).unwrap(),
            (pseudo_random(&shape, 3, dtype) * 2.0).unwrap(),
        ]
    }

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for shape in SHAPES {
            let [mean, log_std, before] = inputs(shape, DType::F32).map(|t| offset(&t));
            close(
                &squashed_gaussian(&mean, &log_std, &before).unwrap(),
                &composed(&mean, &log_std, &before).unwrap(),
                1e-5,
            );
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for shape in SHAPES {
            check_gradients(&inputs(shape, DType::F64), |t| squashed_gaussian(&t[0], &t[1], &t[2]));
        }
    }

    #[test]
    fn the_density_integrates_to_one() {
        // Over u: p(a) da = p(a) (1 - tanh² u) du.
        let step = 1e-3;
        let total: f64 = (-8000..8000)
            .map(|i| {
                let u = f64::from(i) * step;
                let (log_prob, _) = squashed_log_prob_and_entropy(&[0.4], &[-0.3], &[u as f32]);
                f64::from(log_prob).exp() * (1.0 - u.tanh().powi(2)) * step
            })
            .sum();
        assert!((total - 1.0).abs() < 1e-4, "{total}");
    }

    #[test]
    fn far_values_stay_finite() {
        for before in [-60.0, 60.0] {
            let (log_prob, entropy) = squashed_log_prob_and_entropy(&[before], &[0.0], &[before]);
            let expected = -HALF_LN_TAU as f32 + 2.0 * (60.0 - std::f32::consts::LN_2);
            assert!((log_prob - expected).abs() < 1e-4 && entropy.is_finite(), "{log_prob} {expected}");
        }
    }

    #[test]
    fn a_row_on_a_slice_and_in_any_batch_gives_the_same_bits() {
        let [mean, log_std, before] = inputs([23, 17], DType::F32);
        let batch = squashed_gaussian(&mean, &log_std, &before).unwrap().to_vec2::<f32>().unwrap();
        let [mean, log_std, before] = [mean, log_std, before].map(|tensor| tensor.to_vec2::<f32>().unwrap());
        for row in 0..23 {
            let (log_prob, entropy) = squashed_log_prob_and_entropy(&mean[row], &log_std[row], &before[row]);
            assert_eq!(vec![log_prob, entropy], batch[row]);
        }
    }

    #[test]
    fn a_sample_has_the_mean_and_the_scale() {
        let mut before = [0.0; 2];
        sample_before_squashing(&[1.0, -2.0], &[0.0, 2.0_f32.ln()], &[0.5, -1.0], &mut before);
        assert!((before[0] - 1.5).abs() < 1e-6 && (before[1] + 4.0).abs() < 1e-5);
    }
}
