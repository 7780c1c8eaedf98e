//! The categorical distribution over discrete choices, from logits.
//!
//! With `m = max l` and `S = Σ exp(l_i - m)`, summed in index order: `log p_a = l_a - m - ln S` and
//! `H = ln S - Σ p_i (l_i - m)`. A masked choice has the logit [`MASKED`]; its probability is exactly 0 and so is
//! its part in the entropy and in the gradient.
//!
//! An actor that samples from plain slices calls [`sample_categorical`] and [`log_prob_and_entropy`]; the learner
//! calls [`categorical`] on tensors. Both run the same code row by row, so they get the same bits.

use candle_core::{CpuStorage, CustomOp2, D, DType, Device, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::lanes::{Element, Lanes, on_this_processor};
use super::storage::{self, by_type, refuse, values};
#[cfg(feature = "cuda")]
use {
    super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// The logit of a choice that is not allowed: finite, so that no infinity meets a zero, and low enough for a
/// probability of exactly 0.
pub const MASKED: f32 = -1e9;

/// Logits `[N, A]` with [`MASKED`] where `mask` (`[N, A]`, `u8`) is 0. Masked entries get no gradient.
pub fn mask_logits(logits: &Tensor, mask: &Tensor) -> Result<Tensor> {
    if logits.dims() != mask.dims() {
        return refuse("mask_logits", format!("logits {:?}, mask {:?}", logits.dims(), mask.dims()));
    }
    #[cfg(feature = "cuda")]
    if storage::has_kernel(logits) && mask.dtype() == DType::U8 {
        return logits.contiguous()?.apply_op2(&mask.contiguous()?, MaskOnDevice);
    }
    let fill = Tensor::full(MASKED, logits.shape(), logits.device())?.to_dtype(logits.dtype())?;
    mask.where_cond(logits, &fill)
}

/// [`mask_logits`] by its kernel.
#[cfg(feature = "cuda")]
struct MaskOnDevice;

#[cfg(feature = "cuda")]
impl CustomOp2 for MaskOnDevice {
    fn name(&self) -> &'static str {
        "mask_logits"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        refuse("mask_logits", "its kernel runs on devices")
    }

    fn cuda_fwd(
        &self,
        logits: &CudaStorage,
        logits_layout: &Layout,
        mask: &CudaStorage,
        mask_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (logits, mask) = (View::cuda(logits, logits_layout), View::cuda(mask, mask_layout));
        cuda::categorical::mask(&logits, &mask, MASKED)?.into_cuda()
    }

    fn bwd(
        &self,
        _logits: &Tensor,
        mask: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (mask, gradient) = (lock(mask), lock(&gradient));
        let result = cuda::categorical::mask(&gradient.view()?, &mask.view()?, 0.0)?;
        Ok((Some(result.into_tensor()), None))
    }
}

/// Log-probability of the given choice (column 0) and entropy (column 1) of each row, in nats.
///
/// Shapes: logits `[N, A]`, actions `[N]` (`u32`), result `[N, 2]`. Differentiable in the logits. Errors when a
/// shape does not fit or an action is not below A.
pub fn categorical(logits: &Tensor, actions: &Tensor) -> Result<Tensor> {
    match (logits.dims(), actions.dims(), actions.dtype()) {
        ([rows, choices], [count], DType::U32) if rows == count && *choices > 0 => {}
        (logits, actions, dtype) => {
            return refuse(
                "categorical",
                format!(
                    "logits {logits:?} and {dtype:?} actions {actions:?} must be [N, A > 0] and [N] of u32"
                ),
            );
        }
    }
    if storage::is_native(logits) || storage::has_kernel(logits) {
        logits.contiguous()?.apply_op2(&actions.contiguous()?, Categorical)
    } else {
        composed(logits, actions)
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(logits: &Tensor, actions: &Tensor) -> Result<Tensor> {
    let shifted = logits.broadcast_sub(&logits.detach().max_keepdim(D::Minus1)?)?;
    let log_probs = shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(D::Minus1)?.log()?)?;
    let chosen = log_probs.gather(&actions.unsqueeze(1)?, 1)?;
    let entropy = (log_probs.exp()? * &log_probs)?.sum_keepdim(D::Minus1)?.neg()?;
    Tensor::cat(&[chosen, entropy], D::Minus1)
}

/// Log-probability of `action` and entropy of one row of logits, in nats; the bits that [`categorical`] gives.
/// Panics when `action` is not an index of the row.
#[must_use]
pub fn log_prob_and_entropy(logits: &[f32], action: usize) -> (f32, f32) {
    let mut weights = vec![0.0; logits.len()];
    let row = on_this_processor(OneRow { logits, weights: &mut weights });
    (row.log_prob(logits[action]), row.entropy)
}

/// Draws a choice from one row of logits: inverts the cumulative sum of `exp(l_i - max l)`, in index order, at
/// `uniform` (in [0, 1)). Never a choice of probability 0. Panics when the row is empty.
#[must_use]
pub fn sample_categorical(logits: &[f32], uniform: f32) -> usize {
    let mut weights = vec![0.0; logits.len()];
    let row = on_this_processor(OneRow { logits, weights: &mut weights });
    let target = uniform * row.sum;
    let mut cumulative = 0.0;
    for (index, &weight) in weights.iter().enumerate() {
        cumulative += weight;
        if target < cumulative {
            return index;
        }
    }
    // Only rounding leads here (uniform · sum rounded up to the sum), or a NaN.
    weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0)
}

/// Index of the largest value, the first on ties; 0 for an empty row.
#[must_use]
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = index;
        }
    }
    best
}

/// What one row of logits comes to.
struct Row<T> {
    max: T,
    /// `S`.
    sum: T,
    /// `ln S`.
    ln_sum: T,
    entropy: T,
}

impl<T: Element> Row<T> {
    fn log_prob(&self, logit: T) -> T {
        logit - self.max - self.ln_sum
    }
}

/// The forward pass of one row; leaves `exp(l_i - m)` in `weights`.
#[inline(always)]
fn row<S: Simd, T: Element>(simd: S, logits: &[T], weights: &mut [T]) -> Row<T> {
    let mut max = logits[0];
    for &logit in &logits[1..] {
        max = if logit > max { logit } else { max };
    }
    let width = Lanes::<S, T>::width();
    for (logits, weights) in logits.chunks(width).zip(weights.chunks_mut(width)) {
        (Lanes::load(simd, logits) - Lanes::splat(simd, max)).exp().store(weights);
    }
    let (mut sum, mut weighted) = (T::zero(), T::zero());
    for (&weight, &logit) in weights.iter().zip(logits) {
        sum += weight;
        weighted += weight * (logit - max);
    }
    let ln_sum = T::constant(sum.to_f64().ln());
    Row { max, sum, ln_sum, entropy: ln_sum - weighted / sum }
}

struct OneRow<'a> {
    logits: &'a [f32],
    weights: &'a mut [f32],
}

impl WithSimd for OneRow<'_> {
    type Output = Row<f32>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Row<f32> {
        row(simd, self.logits, self.weights)
    }
}

struct Forward<'a, T> {
    logits: &'a [T],
    actions: &'a [u32],
    choices: usize,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut weights = vec![T::zero(); self.choices];
        let rows = self.logits.chunks_exact(self.choices).zip(self.actions);
        for ((logits, &action), output) in rows.zip(self.output.chunks_exact_mut(2)) {
            let row = row(simd, logits, &mut weights);
            output[0] = row.log_prob(logits[action as usize]);
            output[1] = row.entropy;
        }
    }
}

struct Backward<'a, T> {
    logits: &'a [T],
    actions: &'a [u32],
    /// `[N, 2]`, of the log-probabilities and the entropies.
    gradient: &'a [T],
    choices: usize,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();
    /// `d log p_a / d l_i = [i = a] - p_i` and `d H / d l_i = -p_i (log p_i + H)`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.logits.chunks_exact(self.choices).zip(self.actions);
        let outputs = self.output.chunks_exact_mut(self.choices).zip(self.gradient.chunks_exact(2));
        for ((logits, &action), (output, gradient)) in rows.zip(outputs) {
            let row = row(simd, logits, output);
            for (value, &logit) in output.iter_mut().zip(logits) {
                let probability = *value / row.sum;
                let surprise = row.log_prob(logit) + row.entropy;
                *value = T::zero() - probability * (gradient[0] + gradient[1] * surprise);
            }
            output[action as usize] += gradient[0];
        }
    }
}

struct Categorical;

impl Categorical {
    fn forward<T: Element>(
        (logits, logits_layout): (&CpuStorage, &Layout),
        (actions, actions_layout): (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, choices) = logits_layout.shape().dims2()?;
        let actions: &[u32] = storage::slice(actions, actions_layout)?;
        if let Some(row) = actions.iter().position(|&action| action as usize >= choices) {
            return refuse(
                "categorical",
                format!("action {} of row {row} is not below {choices}", actions[row]),
            );
        }
        let logits: &[T] = storage::slice(logits, logits_layout)?;
        let mut output = vec![T::zero(); rows * 2];
        on_this_processor(Forward { logits, actions, choices, output: &mut output });
        Ok((T::to_cpu_storage_owned(output), Shape::from((rows, 2))))
    }

    fn backward<T: Element>(logits: &Tensor, actions: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let mut output = vec![T::zero(); logits.elem_count()];
        let (actions, gradient) = (values::<u32>(actions)?, values::<T>(gradient)?);
        on_this_processor(Backward {
            logits: values(logits)?.slice()?,
            actions: actions.slice()?,
            gradient: gradient.slice()?,
            choices: logits.dim(1)?,
            output: &mut output,
        });
        Tensor::from_vec(output, logits.shape(), &Device::Cpu)
    }
}

impl CustomOp2 for Categorical {
    fn name(&self) -> &'static str {
        "categorical"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        logits_layout: &Layout,
        actions: &CpuStorage,
        actions_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(logits), T =>
            Self::forward::<T>((logits, logits_layout), (actions, actions_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        logits: &CudaStorage,
        logits_layout: &Layout,
        actions: &CudaStorage,
        actions_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::categorical::forward(&View::cuda(logits, logits_layout), &View::cuda(actions, actions_layout))?
            .into_cuda()
    }

    fn bwd(
        &self,
        logits: &Tensor,
        actions: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(logits) {
            let (logits, actions, gradient) = (lock(logits), lock(actions), lock(&gradient));
            let result = cuda::categorical::backward(&logits.view()?, &actions.view()?, &gradient.view()?)?;
            return Ok((Some(result.into_tensor()), None));
        }
        let logits_gradient = by_type!(logits.dtype(), T => Self::backward::<T>(logits, actions, &gradient))?;
        Ok((Some(logits_gradient), None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::Var;

    fn actions(rows: usize, choices: usize) -> Tensor {
        let values: Vec<u32> = (0..rows).map(|row| (row * 7 % choices) as u32).collect();
        offset(&Tensor::from_vec(values, rows, &Device::Cpu).unwrap())
    }

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for (rows, choices) in [(1, 1), (5, 2), (9, 18), (3, 100)] {
            let logits = offset(&(pseudo_random(&[rows, choices], 1, DType::F32) * 3.0).unwrap());
            let actions = actions(rows, choices);
            close(&categorical(&logits, &actions).unwrap(), &composed(&logits, &actions).unwrap(), 1e-5);
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (rows, choices) in [(1, 1), (1, 6), (4, 2), (3, 19)] {
            let actions = actions(rows, choices);
            let logits = pseudo_random(&[rows, choices], 1, DType::F64);
            check_gradients(std::slice::from_ref(&logits), |t| categorical(&t[0], &actions));
            let taken = actions.to_vec1::<u32>().unwrap();
            let mask: Vec<u8> = (0..rows * choices)
                .map(|i| u8::from(i % 3 != 1 || taken[i / choices] as usize == i % choices))
                .collect();
            let mask = Tensor::from_vec(mask, (rows, choices), &Device::Cpu).unwrap();
            check_gradients(&[logits], |t| categorical(&mask_logits(&t[0], &mask)?, &actions));
        }
    }

    #[test]
    fn masked_choices_count_for_exactly_nothing() {
        let masked = [0.3, MASKED, -0.8, MASKED, 1.9];
        let (log_prob, entropy) = log_prob_and_entropy(&masked, 2);
        assert_eq!((log_prob, entropy), log_prob_and_entropy(&[0.3, -0.8, 1.9], 1));
        assert_eq!(log_prob_and_entropy(&[MASKED, 0.7, MASKED], 1), (0.0, 0.0));
        let logits = Var::from_tensor(&Tensor::new(&[masked], &Device::Cpu).unwrap()).unwrap();
        let action = Tensor::new(&[2_u32], &Device::Cpu).unwrap();
        let result = categorical(&logits, &action).unwrap();
        let gradients = result.sum_all().unwrap().backward().unwrap();
        let gradient = gradients.get(&logits).unwrap().to_vec2::<f32>().unwrap();
        assert!(gradient[0][1] == 0.0 && gradient[0][3] == 0.0 && gradient[0][2] != 0.0);
    }

    #[test]
    fn a_row_on_a_slice_and_in_any_batch_gives_the_same_bits() {
        for choices in [1, 2, 6, 17, 40] {
            let logits = (pseudo_random(&[50, choices], 1, DType::F32) * 4.0).unwrap();
            let actions = actions(50, choices);
            let batch = categorical(&logits, &actions).unwrap().to_vec2::<f32>().unwrap();
            let indices = actions.to_vec1::<u32>().unwrap();
            for (row, logits) in logits.to_vec2::<f32>().unwrap().iter().enumerate() {
                let (log_prob, entropy) = log_prob_and_entropy(logits, indices[row] as usize);
                assert_eq!(vec![log_prob, entropy], batch[row]);
            }
        }
    }

    #[test]
    fn sampling_follows_the_probabilities_and_never_takes_a_masked_choice() {
        let logits = [0.0, MASKED, 1.0_f32.ln(), 2.0_f32.ln(), MASKED];
        let mut counts = [0; 5];
        for i in 0..4000 {
            counts[sample_categorical(&logits, i as f32 / 4000.0)] += 1;
        }
        assert_eq!(counts, [1000, 0, 1000, 2000, 0]);
        assert_eq!(sample_categorical(&logits, 1.0 - f32::EPSILON / 2.0), 3);
        assert_eq!(sample_categorical(&[MASKED, 0.0], 0.0), 1);
        assert_eq!(sample_categorical(&[f32::NAN, 0.0], 0.5), 0);
    }

    #[test]
    fn argmax_takes_the_first_of_equals() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[]), 0);
    }

    #[test]
    fn an_action_out_of_range_is_refused() {
        let logits = pseudo_random(&[2, 3], 1, DType::F32);
        let error = categorical(&logits, &Tensor::new(&[0_u32, 3], &Device::Cpu).unwrap()).unwrap_err();
        assert!(error.to_string().contains("action 3 of row 1"));
    }
}
