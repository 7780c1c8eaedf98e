//! Rows to their experts and back: [`dispatch`] copies each row to the k places where its experts want it,
//! [`combine`] adds the k results up. Each is the other's backward pass but for the weights.
//!
//! Sums over a row's k pairs run in the order of expert ids, so they do not depend on the order in which the router
//! named them, and a row's sum depends on that row only.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};
use pulp::{Simd, WithSimd};

use super::super::columns::dot;
use super::super::lanes::{Element, Lanes, on_this_processor};
use super::super::parallel::over_rows;
use super::super::storage::{self, by_type, refuse, values};
use super::plan::{ExpertPlan, Pairs};
#[cfg(feature = "cuda")]
use {
    super::super::cuda::{self, View, lock},
    candle_core::{CudaStorage, Device, backend::BackendStorage},
};

/// The rows of x grouped by expert, those of one expert in the order of the batch.
///
/// Shapes: x `[N, D]`, result `[N·k, D]`. Differentiable in x. Errors when x has not the plan's rows.
pub fn dispatch(x: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    match x.dims() {
        [rows, _] if *rows == plan.rows() => {}
        shape => return refuse("dispatch", format!("x {shape:?} must be [{}, D]", plan.rows())),
    }
    if storage::is_native(x) || storage::has_kernel(x) {
        x.contiguous()?.apply_op1(Dispatch { pairs: plan.pairs.clone() })
    } else {
        composed_dispatch(x, plan)
    }
}

/// What the experts made of each row, added up by its weights: `Σ_j weights_nj · y_(n, j)`.
///
/// Shapes: y `[N·k, D]` in the order of [`dispatch`], weights `[N, k]` in the order of the ids, result `[N, D]`.
/// Differentiable in both. Errors when a shape is not the plan's.
pub fn combine(y: &Tensor, weights: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    let pairs = &plan.pairs;
    match (y.dims(), weights.dims()) {
        ([count, _], [rows, each]) if (*count, *rows, *each) == (pairs.len(), pairs.rows, pairs.each) => {}
        (y, weights) => {
            return refuse(
                "combine",
                format!(
                    "y {y:?} and weights {weights:?} must be [{}, D] and [{}, {}]",
                    pairs.len(),
                    pairs.rows,
                    pairs.each
                ),
            );
        }
    }
    if storage::is_native(y) || storage::has_kernel(y) {
        y.contiguous()?.apply_op2(&weights.contiguous()?, Combine { pairs: pairs.clone() })
    } else {
        composed_combine(y, weights, plan)
    }
}

/// The routes of a plan on a device: `places` and `slots` of `super::super::cuda::experts`.
#[cfg(feature = "cuda")]
fn routes_on(pairs: &Pairs, device: &Device) -> Result<[Tensor; 2]> {
    let (places, slots) = pairs.routes();
    let shape = (pairs.rows, pairs.each);
    Ok([Tensor::from_vec(places, shape, device)?, Tensor::from_vec(slots, shape, device)?])
}

/// [`dispatch`] out of candle's own differentiable operators.
pub(super) fn composed_dispatch(x: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    x.index_select(&Tensor::new(plan.pairs.row_indices(), x.device())?, 0)
}

/// [`combine`] out of candle's own differentiable operators.
pub(super) fn composed_combine(y: &Tensor, weights: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    let pairs = &plan.pairs;
    let of_places = y.index_select(&Tensor::new(pairs.position_of_places(), y.device())?, 0)?;
    let of_places = of_places.reshape((pairs.rows, pairs.each, y.dim(1)?))?;
    of_places.broadcast_mul(&weights.unsqueeze(2)?)?.sum(1)
}

/// Fills `output` `[N·k, D]` with the rows of `x` `[N, D]`, each multiplied by its weight if there are any.
struct Spread<'a, T> {
    pairs: &'a Pairs,
    x: &'a [T],
    /// `[N, k]`.
    weights: Option<&'a [T]>,
    width: usize,
    /// Position of the first row of `output`.
    first: usize,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Spread<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (index, output) in self.output.chunks_exact_mut(self.width).enumerate() {
            let place = self.pairs.place(self.first + index);
            let x = &self.x[place / self.pairs.each * self.width..][..self.width];
            let Some(weights) = self.weights else {
                output.copy_from_slice(x);
                continue;
            };
            let weight = Lanes::splat(simd, weights[place]);
            let step = Lanes::<S, T>::width();
            for (x, output) in x.chunks(step).zip(output.chunks_mut(step)) {
                (weight * Lanes::load(simd, x)).store(output);
            }
        }
    }
}

/// Fills `output` `[N, D]` with the sums of each row's k rows of `y` `[N·k, D]`, by their weights if there are any.
struct Gather<'a, T> {
    pairs: &'a Pairs,
    y: &'a [T],
    /// `[N, k]`.
    weights: Option<&'a [T]>,
    width: usize,
    /// Index of the first row of `output`.
    first: usize,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let step = Lanes::<S, T>::width();
        for (index, output) in self.output.chunks_exact_mut(self.width).enumerate() {
            for position in self.pairs.positions(self.first + index) {
                let y = &self.y[position * self.width..][..self.width];
                let weight = self.weights.map_or(T::one(), |weights| weights[self.pairs.place(position)]);
                let weight = Lanes::splat(simd, weight);
                for (y, output) in y.chunks(step).zip(output.chunks_mut(step)) {
                    weight.multiply_add(Lanes::load(simd, y), Lanes::load(simd, output)).store(output);
                }
            }
        }
    }
}

/// Fills `output` `[N, k]` with the products of each row of `gradient` `[N, D]` and its rows of `y` `[N·k, D]`.
struct WeightGradient<'a, T> {
    pairs: &'a Pairs,
    y: &'a [T],
    gradient: &'a [T],
    width: usize,
    /// Index of the first row of `output`.
    first: usize,
    output: &'a mut [T],
}

impl<T: Element> WithSimd for WeightGradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let each = self.pairs.each;
        for (index, output) in self.output.chunks_exact_mut(each).enumerate() {
            let row = self.first + index;
            let gradient = &self.gradient[row * self.width..][..self.width];
            for position in self.pairs.positions(row) {
                let y = &self.y[position * self.width..][..self.width];
                output[self.pairs.place(position) - row * each] = dot(simd, y, gradient);
            }
        }
    }
}

/// `[N·k, D]` from `[N, D]`.
fn spread<T: Element>(pairs: &Pairs, x: &[T], weights: Option<&[T]>, width: usize) -> Vec<T> {
    let mut output = vec![T::zero(); pairs.len() * width];
    if !output.is_empty() {
        let cost = output.len();
        over_rows(&mut output, width, cost, |first, output| {
            on_this_processor(Spread { pairs, x, weights, width, first, output });
        });
    }
    output
}

/// `[N, D]` from `[N·k, D]`.
fn gather<T: Element>(pairs: &Pairs, y: &[T], weights: Option<&[T]>, width: usize) -> Vec<T> {
    let mut output = vec![T::zero(); pairs.rows * width];
    if !output.is_empty() {
        over_rows(&mut output, width, pairs.len() * width, |first, output| {
            on_this_processor(Gather { pairs, y, weights, width, first, output });
        });
    }
    output
}

struct Dispatch {
    pairs: Arc<Pairs>,
}

impl Dispatch {
    fn forward<T: Element>(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let width = layout.shape().dims2()?.1;
        let output = spread::<T>(&self.pairs, storage::slice(x, layout)?, None, width);
        Ok((T::to_cpu_storage_owned(output), Shape::from((self.pairs.len(), width))))
    }

    fn backward<T: Element>(&self, x: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let output = gather::<T>(&self.pairs, values(gradient)?.slice()?, None, x.dim(1)?);
        Tensor::from_vec(output, x.shape(), x.device())
    }
}

impl CustomOp1 for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => self.forward::<T>(x, layout))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let rows = Tensor::new(self.pairs.row_indices(), &Device::Cuda(x.device().clone()))?;
        cuda::embedding::gather(&View::cuda(x, layout), &lock(&rows).view()?)?.into_cuda()
    }

    fn bwd(&self, x: &Tensor, _result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(x) {
            let [places, slots] = routes_on(&self.pairs, x.device())?;
            let (gradient, places, slots) = (lock(&gradient), lock(&places), lock(&slots));
            let result = cuda::experts::combine(&gradient.view()?, None, &places.view()?, &slots.view()?)?;
            return Ok(Some(result.into_tensor()));
        }
        by_type!(x.dtype(), T => self.backward::<T>(x, &gradient)).map(Some)
    }
}

struct Combine {
    pairs: Arc<Pairs>,
}

impl Combine {
    fn forward<T: Element>(
        &self,
        y: (&CpuStorage, &Layout),
        weights: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let width = y.1.shape().dims2()?.1;
        let weights = storage::slice(weights.0, weights.1)?;
        let output = gather::<T>(&self.pairs, storage::slice(y.0, y.1)?, Some(weights), width);
        Ok((T::to_cpu_storage_owned(output), Shape::from((self.pairs.rows, width))))
    }

    fn backward<T: Element>(
        &self,
        y: &Tensor,
        weights: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 2]> {
        let (pairs, width) = (&*self.pairs, y.dim(1)?);
        let gradient = values::<T>(gradient)?;
        let gradient = gradient.slice()?;
        let y_gradient = if y.track_op() {
            let output = spread(pairs, gradient, Some(values(weights)?.slice()?), width);
            Some(Tensor::from_vec(output, y.shape(), y.device())?)
        } else {
            None
        };
        let weight_gradient = if weights.track_op() {
            let mut output = vec![T::zero(); pairs.len()];
            let y = values(y)?;
            let y = y.slice()?;
            over_rows(&mut output, pairs.each, y.len(), |first, output| {
                on_this_processor(WeightGradient { pairs, y, gradient, width, first, output });
            });
            Some(Tensor::from_vec(output, weights.shape(), weights.device())?)
        } else {
            None
        };
        Ok([y_gradient, weight_gradient])
    }
}

impl CustomOp2 for Combine {
    fn name(&self) -> &'static str {
        "combine"
    }

    fn cpu_fwd(
        &self,
        y: &CpuStorage,
        y_layout: &Layout,
        weights: &CpuStorage,
        weights_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(y), T => self.forward::<T>((y, y_layout), (weights, weights_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        y: &CudaStorage,
        y_layout: &Layout,
        weights: &CudaStorage,
        weights_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let [places, slots] = routes_on(&self.pairs, &Device::Cuda(y.device().clone()))?;
        let (places, slots) = (lock(&places), lock(&slots));
        let (y, weights) = (View::cuda(y, y_layout), View::cuda(weights, weights_layout));
        cuda::experts::combine(&y, Some(&weights), &places.view()?, &slots.view()?)?.into_cuda()
    }

    fn bwd(
        &self,
        y: &Tensor,
        weights: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(y) {
            let [places, slots] = routes_on(&self.pairs, y.device())?;
            let locked = (lock(y), lock(weights), lock(&places), lock(&slots), lock(&gradient));
            let (of_y, of_weights) = cuda::experts::combine_backward(
                &locked.0.view()?,
                &locked.1.view()?,
                &locked.2.view()?,
                &locked.3.view()?,
                &locked.4.view()?,
            )?;
            return Ok((
                y.track_op().then(|| of_y.into_tensor()),
                weights.track_op().then(|| of_weights.into_tensor()),
            ));
        }
        let [y, weights] = by_type!(y.dtype(), T => self.backward::<T>(y, weights, &gradient))?;
        Ok((y, weights))
    }
}
