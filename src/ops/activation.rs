//! Activations that `linear` and `conv2d` apply to their results while these are still in registers.

use std::borrow::Cow;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::lanes::{Element, Lanes, on_this_processor};
use super::parallel;
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
    /// `z · (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2`, the form of GPT-2 (Hendrycks and Gimpel 2016).
    Gelu,
}

/// √(2/π).
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
/// The factor of the cube.
const GELU_CUBE: f64 = 0.044_715;

impl Activation {
    /// The function.
    #[inline(always)]
    pub(super) fn apply<S: Simd, T: Element>(self, z: Lanes<S, T>) -> Lanes<S, T> {
        match self {
            Self::Identity => z,
            Self::Relu => z.where_less(z.constant(0.0), z.constant(0.0), z),
            Self::Tanh => z.tanh(),
            Self::Silu => z * z.sigmoid(),
            Self::Gelu => {
                let half = z * z.constant(0.5);
                half.multiply_add(gelu_inner(z).tanh(), half)
            }
        }
    }

    /// Whether the derivative follows from the result alone, so that the value before it need not be kept.
    pub(super) fn is_told_by_result(self) -> bool {
        !matches!(self, Self::Silu | Self::Gelu)
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
            Self::Identity | Self::Silu | Self::Gelu => gradient,
        }
    }

    /// `dy/dz` from `z`, for the others.
    #[inline(always)]
    fn slope<S: Simd, T: Element>(self, z: Lanes<S, T>) -> Lanes<S, T> {
        let one = z.constant(1.0);
        if self == Self::Gelu {
            // With t = tanh(u(z)): (1 + t) / 2 + z (1 - t²) u'(z) / 2.
            let t = gelu_inner(z).tanh();
            let steep =
                (z * z).multiply_add(z.constant(3.0 * GELU_SCALE * GELU_CUBE), z.constant(GELU_SCALE));
            (z * (one - t * t)).multiply_add(steep, one + t) * z.constant(0.5)
        } else {
            // d/dz z·s(z) = s + z·s·(1 - s).
            let s = z.sigmoid();
            s.multiply_add(z * (one - s), s)
        }
    }

    /// The same function out of candle's own differentiable operators.
    pub(super) fn composed(self, z: &Tensor) -> Result<Tensor> {
        match self {
            Self::Identity => Ok(z.clone()),
            Self::Relu => z.relu(),
            Self::Tanh => z.tanh(),
            Self::Silu => z.silu(),
            Self::Gelu => z.gelu(),
        }
    }
}

/// What the Gelu takes the tanh of.
#[inline(always)]
fn gelu_inner<S: Simd, T: Element>(z: Lanes<S, T>) -> Lanes<S, T> {
    z * (z * z).multiply_add(z.constant(GELU_SCALE * GELU_CUBE), z.constant(GELU_SCALE))
}

/// The gradient before the activation, `[rows, width]`.
pub(super) fn backward<'a, T: Element>(
    activation: Activation,
    result: &[T],
    gradient: &'a [T],
) -> Cow<'a, [T]> {
    if activation == Activation::Identity {
        return Cow::Borrowed(gradient);
    }
    let mut before = vec![T::zero(); gradient.len()];
    parallel::over_rows(&mut before, 1, gradient.len(), |first, before| {
        let part = first..first + before.len();
        let (result, gradient) = (&result[part.clone()], &gradient[part]);
        on_this_processor(Backward { activation, result, gradient, before });
    });
    Cow::Owned(before)
}

struct Backward<'a, T> {
    activation: Activation,
    result: &'a [T],
    gradient: &'a [T],
    before: &'a mut [T],
}

impl<T: Element> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, T>::width();
        let given = self.result.chunks(step).zip(self.gradient.chunks(step));
        for (before, (y, gradient)) in self.before.chunks_mut(step).zip(given) {
            let (y, gradient) = (Lanes::load(simd, y), Lanes::load(simd, gradient));
            self.activation.backward_from_result(y, gradient).store(before);
        }
    }
}

/// The sum of the rows of `[rows, width]`, in their order: the gradient of a bias.
pub(super) fn column_sums<T: Element>(values: &[T], width: usize) -> Vec<T> {
    let mut sums = vec![T::zero(); width];
    on_this_processor(ColumnSums { values, sums: &mut sums });
    sums
}

struct ColumnSums<'a, T> {
    values: &'a [T],
    sums: &'a mut [T],
}

impl<T: Element> WithSimd for ColumnSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Registers of columns that are summed in one walk over the rows.
        const REGISTERS: usize = 4;
        let (step, width) = (Lanes::<S, T>::width(), self.sums.len());
        for (index, sums) in self.sums.chunks_mut(REGISTERS * step).enumerate() {
            let columns = index * REGISTERS * step..index * REGISTERS * step + sums.len();
            if sums.len() == REGISTERS * step {
                let mut totals = [Lanes::splat(simd, T::zero()); REGISTERS];
                for row in self.values.chunks_exact(width) {
                    for (total, value) in totals.iter_mut().zip(row[columns.clone()].chunks_exact(step)) {
                        *total = *total + Lanes::load(simd, value);
                    }
                }
                for (total, sum) in totals.into_iter().zip(sums.chunks_exact_mut(step)) {
                    total.store(sum);
                }
            } else {
                for (j, sum) in sums.chunks_mut(step).enumerate() {
                    let mut total = Lanes::splat(simd, T::zero());
                    for row in self.values.chunks_exact(width) {
                        total = total + Lanes::load(simd, &row[columns.start + j * step..][..sum.len()]);
                    }
                    total.store(sum);
                }
            }
        }
    }
}

/// An activation as an operator of its own.
///
/// Any shape; `f32` and `f64` on the CPU, candle's operators elsewhere.
pub fn activate(z: &Tensor, activation: Activation) -> Result<Tensor> {
    if activation != Activation::Identity && storage::is_native(z) {
        z.contiguous()?.apply_op1(Pointwise { activation })
    } else {
        activation.composed(z)
    }
}

struct Pointwise {
    activation: Activation,
}

impl Pointwise {
    fn forward<T: Element>(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let z: &[T] = storage::slice(storage, layout)?;
        let mut output = vec![T::zero(); z.len()];
        self.run(z, None, &mut output);
        Ok((T::to_cpu_storage_owned(output), layout.shape().clone()))
    }

    fn backward<T: Element>(&self, z: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let gradient = values::<T>(gradient)?;
        let output = if self.activation.is_told_by_result() {
            backward(self.activation, values(result)?.slice()?, gradient.slice()?).into_owned()
        } else {
            let mut output = vec![T::zero(); z.elem_count()];
            self.run(values(z)?.slice()?, Some(gradient.slice()?), &mut output);
            output
        };
        Tensor::from_vec(output, z.shape(), z.device())
    }

    fn run<T: Element>(&self, z: &[T], gradient: Option<&[T]>, output: &mut [T]) {
        // An exponential costs about as much as sixteen multiply-adds.
        parallel::over_rows(output, 1, z.len() * 16, |first, output| {
            let part = first..first + output.len();
            let (z, gradient) = (&z[part.clone()], gradient.map(|gradient| &gradient[part]));
            on_this_processor(PointwiseKernel { activation: self.activation, z, gradient, output });
        });
    }
}

impl CustomOp1 for Pointwise {
    fn name(&self) -> &'static str {
        "activate"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        storage::by_type!(storage::dtype(storage), T => self.forward::<T>(storage, layout))
    }

    fn bwd(&self, z: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        storage::by_type!(z.dtype(), T => self.backward::<T>(z, result, &gradient)).map(Some)
    }
}

/// The function, or with a gradient its backward pass.
struct PointwiseKernel<'a, T> {
    activation: Activation,
    z: &'a [T],
    gradient: Option<&'a [T]>,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for PointwiseKernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, T>::width();
        for (i, (z, output)) in self.z.chunks(step).zip(self.output.chunks_mut(step)).enumerate() {
            let z = Lanes::load(simd, z);
            match self.gradient {
                None => self.activation.apply(z),
                Some(gradient) => Lanes::load(simd, &gradient[i * step..]) * self.activation.slope(z),
            }
            .store(output);
        }
    }
}
