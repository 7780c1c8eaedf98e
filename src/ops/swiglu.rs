//! The gate of a transformer's feed-forward layer (Shazeer 2020): `y = silu(gate) · up`, pointwise.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::lanes::{Element, Lanes, on_this_processor};
use super::parallel::over_rows;
use super::storage::{self, by_type, refuse, values};
use super::tape;
#[cfg(feature = "cuda")]
use {
    super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// `gate · sigmoid(gate) · up`.
///
/// Any shape, the same for both; one float type. Differentiable in both. Own kernels for `f32` and `f64` on the CPU,
/// else candle's operators. Errors when shapes or types differ.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.dims() != up.dims() || gate.dtype() != up.dtype() {
        let [gate, up] = [gate, up].map(|t| format!("{:?} {:?}", t.dtype(), t.dims()));
        return refuse("swiglu", format!("gate {gate} and up {up} must be alike"));
    }
    if storage::is_native(gate) || storage::has_kernel(gate) {
        tape::apply2(&gate.contiguous()?, &up.contiguous()?, Swiglu)
    } else {
        composed(gate, up)
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.silu()? * up
}

/// Values in a share of the backward pass.
const SHARE: usize = 1 << 12;

/// The work on a value in multiply-adds.
const COST: usize = 16;

struct Forward<'a, T> {
    gate: &'a [T],
    up: &'a [T],
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, T>::width();
        let given = self.gate.chunks(step).zip(self.up.chunks(step));
        for (output, (gate, up)) in self.output.chunks_mut(step).zip(given) {
            let gate = Lanes::load(simd, gate);
            (gate * gate.sigmoid() * Lanes::load(simd, up)).store(output);
        }
    }
}

/// A share of the backward pass; the result of an untracked input is empty.
struct Backward<'a, T> {
    gate: &'a [T],
    up: &'a [T],
    /// Of the result.
    gradient: &'a [T],
    gate_gradient: &'a mut [T],
    up_gradient: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    /// `d/dz z·s(z) = s + z·s·(1 - s)`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for start in (0..self.gradient.len()).step_by(Lanes::<S, T>::width()) {
            let gate = Lanes::load(simd, &self.gate[start..]);
            let gradient = Lanes::load(simd, &self.gradient[start..]);
            let sigmoid = gate.sigmoid();
            let silu = gate * sigmoid;
            if let Some(output) = self.up_gradient.get_mut(start..) {
                (gradient * silu).store(output);
            }
            if let Some(output) = self.gate_gradient.get_mut(start..) {
                let slope = silu.multiply_add(gate.constant(1.0) - sigmoid, sigmoid);
                (gradient * Lanes::load(simd, &self.up[start..]) * slope).store(output);
            }
        }
    }
}

struct Swiglu;

impl Swiglu {
    fn forward<T: Element>(
        (gate, layout): (&CpuStorage, &Layout),
        up: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (gate, up): (&[T], &[T]) = (storage::slice(gate, layout)?, storage::slice(up.0, up.1)?);
        let mut output = vec![T::zero(); gate.len()];
        over_rows(&mut output, 1, COST * gate.len(), |first, output| {
            let range = first..first + output.len();
            on_this_processor(Forward { gate: &gate[range.clone()], up: &up[range], output });
        });
        Ok((T::to_cpu_storage_owned(output), layout.shape().clone()))
    }

    fn backward<T: Element>(gate: &Tensor, up: &Tensor, gradient: &Tensor) -> Result<[Option<Tensor>; 2]> {
        let count = gate.elem_count();
        let (gate_values, up_values, gradient) =
            (values::<T>(gate)?, values::<T>(up)?, values::<T>(gradient)?);
        let (gate_values, up_values, gradient) =
            (gate_values.slice()?, up_values.slice()?, gradient.slice()?);
        let [mut gate_gradient, mut up_gradient] =
            [gate, up].map(|t| vec![T::zero(); if t.track_op() { count } else { 0 }]);
        let given = gate_values.chunks(SHARE).zip(up_values.chunks(SHARE)).zip(gradient.chunks(SHARE));
        let mut gate_shares = gate_gradient.chunks_mut(SHARE);
        let mut up_shares = up_gradient.chunks_mut(SHARE);
        let mut shares: Vec<Option<Backward<T>>> = given
            .map(|((gate, up), gradient)| {
                let gate_gradient = gate_shares.next().unwrap_or_default();
                let up_gradient = up_shares.next().unwrap_or_default();
                Some(Backward { gate, up, gradient, gate_gradient, up_gradient })
            })
            .collect();
        over_rows(&mut shares, 1, COST * count, |_, shares| {
            shares.iter_mut().filter_map(Option::take).for_each(on_this_processor);
        });
        let tensor = |input: &Tensor, output: Vec<T>| {
            input.track_op().then(|| Tensor::from_vec(output, input.shape(), input.device())).transpose()
        };
        Ok([tensor(gate, gate_gradient)?, tensor(up, up_gradient)?])
    }
}

impl CustomOp2 for Swiglu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(gate), T => Self::forward::<T>((gate, gate_layout), (up, up_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        gate: &CudaStorage,
        gate_layout: &Layout,
        up: &CudaStorage,
        up_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::swiglu::forward(&View::cuda(gate, gate_layout), &View::cuda(up, up_layout))?.into_cuda()
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(gate) {
            let locked = (lock(gate), lock(up), lock(&gradient));
            let (of_gate, of_up) =
                cuda::swiglu::backward(&locked.0.view()?, &locked.1.view()?, &locked.2.view()?)?;
            return Ok((
                gate.track_op().then(|| of_gate.into_tensor()),
                up.track_op().then(|| of_up.into_tensor()),
            ));
        }
        let [gate, up] = by_type!(gate.dtype(), T => Self::backward::<T>(gate, up, &gradient))?;
        Ok((gate, up))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{DType, Device, Var};

    fn bits(tensor: &Tensor) -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn agrees_with_the_composed_form_at_offsets_and_on_strided_inputs() {
        for shape in [&[1][..], &[3, 5], &[2, 3, 33]] {
            let [gate, up] = [1, 2].map(|seed| offset(&pseudo_random(shape, seed, DType::F32)));
            close(&swiglu(&gate, &up).unwrap(), &composed(&gate, &up).unwrap(), 1e-6);
        }
        let [gate, up] = [1, 2].map(|seed| pseudo_random(&[5, 8], seed, DType::F32));
        let strided = gate.t().unwrap().contiguous().unwrap().t().unwrap();
        assert_eq!(bits(&swiglu(&strided, &up).unwrap()), bits(&swiglu(&gate, &up).unwrap()));
    }

    #[test]
    fn gradients_match_finite_differences() {
        for shape in [&[1][..], &[3, 7]] {
            let inputs = [1, 2].map(|seed| pseudo_random(shape, seed, DType::F64));
            check_gradients(&inputs, |t| swiglu(&t[0], &t[1]));
        }
    }

    #[test]
    fn a_value_gives_the_same_bits_in_any_batch_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let rows = 25 * SHARE / 1001;
        let [gate, up] =
            [1, 2].map(|seed| Var::from_tensor(&pseudo_random(&[rows, 1001], seed, DType::F32)).unwrap());
        let all = || {
            let y = swiglu(&gate, &up).unwrap();
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            [&y, gradients.get(&gate).unwrap(), gradients.get(&up).unwrap()].map(bits)
        };
        let alone = all();
        assert_eq!(with_threads(&pool, all), alone);
        let row = swiglu(&gate.get(3).unwrap(), &up.get(3).unwrap()).unwrap();
        assert_eq!(bits(&row), alone[0][3 * 1001..4 * 1001]);
    }

    #[test]
    fn an_untracked_input_gets_no_gradient_and_the_other_the_same_one() {
        let [gate, up] =
            [1, 2].map(|seed| Var::from_tensor(&pseudo_random(&[4, 9], seed, DType::F32)).unwrap());
        let ones = gate.ones_like().unwrap();
        let [g, u] = [gate.as_detached_tensor(), up.as_detached_tensor()];
        let both = Swiglu.bwd(&gate, &up, &ones, &ones).unwrap();
        let (only_gate, none) = Swiglu.bwd(&gate, &u, &ones, &ones).unwrap();
        assert!(none.is_none() && only_gate.map(|t| bits(&t)) == both.0.map(|t| bits(&t)));
        let (none, only_up) = Swiglu.bwd(&g, &up, &ones, &ones).unwrap();
        assert!(none.is_none() && only_up.map(|t| bits(&t)) == both.1.map(|t| bits(&t)));
    }

    #[test]
    fn nothing_gives_nothing_and_a_nan_stays() {
        let empty = Var::zeros((0, 3), DType::F32, &Device::Cpu).unwrap();
        let y = swiglu(&empty, &empty).unwrap();
        assert_eq!(y.dims(), [0, 3]);
        assert_eq!(y.sum_all().unwrap().backward().unwrap().get(&empty).unwrap().dims(), [0, 3]);
        let [nan, one] = [f32::NAN, 1.0].map(|value| Tensor::new(&[value, 1.0], &Device::Cpu).unwrap());
        for y in [swiglu(&nan, &one).unwrap(), swiglu(&one, &nan).unwrap()] {
            let y = y.to_vec1::<f32>().unwrap();
            assert!(y[0].is_nan() && y[1].is_finite());
        }
    }

    #[test]
    fn shapes_that_differ_are_refused_by_name() {
        let [gate, up] = [2, 3].map(|size| Tensor::zeros(size, DType::F32, &Device::Cpu).unwrap());
        let error = swiglu(&gate, &up).unwrap_err().to_string();
        assert!(error.contains("swiglu") && error.contains("[3]"));
    }
}
