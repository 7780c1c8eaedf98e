//! Activations that `linear` and `conv2d` apply to their results while these are still in registers.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::lanes::{Element, Lanes, on_this_processor};
use super::storage::{self, values};

/// A pointwise function after a linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `z`.
    #[default]
    Identity,
    /// `max(z, 0)`; a NaN stays.
    Relu,
    /// `tanh z`.
    Tanh,
    /// `z · sigmoid(z)`.
    Silu,
}

impl Activation {
    /// The function.
    #[inline(always)]
    pub(super) fn apply<S: Simd, T: Element>(self, z: Lanes<S, T>) -> Lanes<S, T> {
        match self {
            Self::Identity => z,
            Self::Relu => z.where_less(z.constant(0.0), z.constant(0.0), z),
            Self::Tanh => z.tanh(),
            Self::Silu => z * z.sigmoid(),
        }
    }

    /// Whether the derivative follows from the result alone, so that the value before it need not be kept.
    pub(super) fn is_told_by_result(self) -> bool {
        self != Self::Silu
    }

    /// `gradient · dy/dz` from the result `y`, for the activations where [`Self::is_told_by_result`].
    #[inline(always)]
    fn backward_from_result<S: Simd, T: Element>(self, y: Lanes<S, T>, gradient: Lanes<S, T>) -> Lanes<S, T> {
        match self {
            Self::Relu => {
                // Not "y > 0 ? gradient : 0": a NaN must reach the gradient and be seen.
                let zero = y.constant(0.0);
                let at_most_zero = zero.where_less(y, gradient, zero);
                y.where_less(y.constant(f64::INFINITY), at_most_zero, gradient)
            }
            Self::Tanh => gradient * (y.constant(1.0) - y * y),
            Self::Identity | Self::Silu => gradient,
        }
    }

    /// The same function out of candle's own differentiable operators.
    pub(super) fn composed(self, z: &Tensor) -> Result<Tensor> {
        match self {
            Self::Identity => Ok(z.clone()),
            Self::Relu => z.relu(),
            Self::Tanh => z.tanh(),
            Self::Silu => z.silu(),
        }
    }
}

/// The gradient before the activation, `[rows, width]`, and its sum over rows (the bias gradient), `[width]`.
pub(super) fn backward<T: Element>(
    activation: Activation,
    result: &[T],
    gradient: &[T],
    width: usize,
) -> (Vec<T>, Vec<T>) {
    on_this_processor(Backward { activation, result, gradient, width })
}

struct Backward<'a, T> {
    activation: Activation,
    result: &'a [T],
    gradient: &'a [T],
    width: usize,
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = (Vec<T>, Vec<T>);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let mut before = vec![T::zero(); self.gradient.len()];
        let mut sums = vec![T::zero(); self.width];
        let step = Lanes::<S, T>::width();
        let rows = before.chunks_exact_mut(self.width);
        let given = self.result.chunks_exact(self.width).zip(self.gradient.chunks_exact(self.width));
        for (before, (result, gradient)) in rows.zip(given) {
            let outputs = before.chunks_mut(step).zip(sums.chunks_mut(step));
            for ((before, sum), (y, gradient)) in outputs.zip(result.chunks(step).zip(gradient.chunks(step)))
            {
                let value =
                    self.activation.backward_from_result(Lanes::load(simd, y), Lanes::load(simd, gradient));
                value.store(before);
                (Lanes::load(simd, sum) + value).store(sum);
            }
        }
        (before, sums)
    }
}

/// `z · sigmoid(z)` as an operator of its own: its derivative needs `z`, which autograd then keeps.
///
/// Any shape; `f32` and `f64` on the CPU, candle's operator elsewhere.
pub fn silu(z: &Tensor) -> Result<Tensor> {
    if storage::is_native(z) { z.contiguous()?.apply_op1(Silu) } else { z.silu() }
}

struct Silu;

impl Silu {
    fn forward<T: Element>(storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let z: &[T] = storage::slice(storage, layout)?;
        let mut y = vec![T::zero(); z.len()];
        on_this_processor(SiluKernel { z, gradient: None, output: &mut y });
        Ok((T::to_cpu_storage_owned(y), layout.shape().clone()))
    }

    fn backward<T: Element>(z: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let (z_values, gradient) = (values::<T>(z)?, values::<T>(gradient)?);
        let mut output = vec![T::zero(); z.elem_count()];
        let kernel =
            SiluKernel { z: z_values.slice()?, gradient: Some(gradient.slice()?), output: &mut output };
        on_this_processor(kernel);
        Tensor::from_vec(output, z.shape(), z.device())
    }
}

impl CustomOp1 for Silu {
    fn name(&self) -> &'static str {
        "silu"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        storage::by_type!(storage::dtype(storage), T => Self::forward::<T>(storage, layout))
    }

    fn bwd(&self, z: &Tensor, _result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        storage::by_type!(z.dtype(), T => Self::backward::<T>(z, &gradient)).map(Some)
    }
}

/// The function, or with a gradient its backward pass.
struct SiluKernel<'a, T> {
    z: &'a [T],
    gradient: Option<&'a [T]>,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for SiluKernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, T>::width();
        for (i, (z, output)) in self.z.chunks(step).zip(self.output.chunks_mut(step)).enumerate() {
            let z = Lanes::load(simd, z);
            match self.gradient {
                None => Activation::Silu.apply(z),
                Some(gradient) => {
                    // d/dz z·s(z) = s + z·s·(1 - s).
                    let s = z.sigmoid();
                    let slope = s.multiply_add(z * (z.constant(1.0) - s), s);
                    Lanes::load(simd, &gradient[i * step..]) * slope
                }
            }
            .store(output);
        }
    }
}
