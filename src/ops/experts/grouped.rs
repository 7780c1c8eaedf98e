//! One product for each expert: its rows with its own weight.
//!
//! All experts are one operator, forward and backward. (Out of views of the weight tensor, autograd would make a
//! gradient of the whole tensor for each expert: E times too much.) Row-invariant, as [`super::super::linear`] is.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::super::activation::Activation;
use super::super::lanes::Element;
use super::super::parallel;
use super::super::patches::Patches;
use super::super::product::{self, Matrix, Weight, multiply};
use super::super::storage::{self, by_type, refuse, values};
use super::plan::ExpertPlan;
#[cfg(feature = "cuda")]
use {
    super::super::cuda::{Array, View, experts as on_device, lock},
    candle_core::CudaStorage,
};

/// `x_r · weight_eᵀ` for each row r and the expert e that it was dispatched to.
///
/// Shapes: x `[N·k, K]` in the order of [`super::dispatch`], weight `[E, O, K]`, result `[N·k, O]`. Differentiable in
/// both; an expert without rows gets a gradient of zero. Errors when a shape does not fit the plan.
pub fn expert_linear(x: &Tensor, weight: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    match (x.dims(), weight.dims()) {
        (&[rows, inputs], &[experts, _, k])
            if (rows, experts, k) == (plan.pairs.len(), plan.counts().len(), inputs) => {}
        (x, weight) => {
            return refuse(
                "expert_linear",
                format!(
                    "x {x:?} and weight {weight:?} must be [{}, K] and [{}, O, K]",
                    plan.pairs.len(),
                    plan.counts().len()
                ),
            );
        }
    }
    if storage::is_native(x) || storage::has_kernel(x) {
        x.contiguous()?.apply_op2(&weight.contiguous()?, ExpertLinear { plan: plan.clone() })
    } else {
        composed(x, weight, plan)
    }
}

/// The same function out of candle's own differentiable operators.
pub(super) fn composed(x: &Tensor, weight: &Tensor, plan: &ExpertPlan) -> Result<Tensor> {
    let mut parts = Vec::new();
    for (expert, &count) in plan.counts().iter().enumerate() {
        if count > 0 {
            let x = x.narrow(0, plan.range(expert).start, count)?;
            parts.push(x.matmul(&weight.get(expert)?.t()?)?);
        }
    }
    if parts.is_empty() {
        return Tensor::zeros((0, weight.dim(1)?), x.dtype(), x.device());
    }
    Tensor::cat(&parts, 0)
}

/// Runs `work` for each expert that has rows, with the part of the output that is its own.
///
/// The experts are shared over the threads, or, when one has so many rows that the others would wait for it, taken
/// one by one with all threads at each.
fn over_experts<T: Send>(plan: &ExpertPlan, parts: Vec<&mut [T]>, work: impl Fn(usize, &mut [T]) + Sync) {
    let most = plan.counts().iter().max().copied().unwrap_or(0);
    let busy = parts.into_iter().enumerate().filter(|(expert, _)| plan.counts()[*expert] > 0);
    if parallel::threads() <= 1 || most * parallel::threads() > plan.pairs.len() {
        busy.for_each(|(expert, part)| work(expert, part));
        return;
    }
    rayon::scope(|scope| {
        for (expert, part) in busy {
            let work = &work;
            scope.spawn(move |_| work(expert, part));
        }
    });
}

/// Each expert's rows of a matrix with `width` columns.
fn by_rows<'a, T>(plan: &ExpertPlan, mut values: &'a mut [T], width: usize) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(plan.counts().len());
    for &count in plan.counts() {
        let (part, rest) = values.split_at_mut(count * width);
        parts.push(part);
        values = rest;
    }
    parts
}

struct ExpertLinear {
    plan: ExpertPlan,
}

/// `[N·k, K]` and `[E, O, K]` on slices.
struct Operands<'a, T> {
    plan: &'a ExpertPlan,
    x: &'a [T],
    weight: &'a [T],
    outputs: usize,
    inputs: usize,
}

impl<'a, T: Element> Operands<'a, T> {
    fn rows(&self, expert: usize) -> Matrix<'a, T> {
        let range = self.plan.range(expert);
        let x = &self.x[range.start * self.inputs..range.end * self.inputs];
        Matrix::new(x, range.len(), self.inputs)
    }

    fn weight(&self, expert: usize) -> &'a [T] {
        let size = self.outputs * self.inputs;
        &self.weight[expert * size..][..size]
    }

    fn forward(&self) -> Vec<T> {
        let mut output = vec![T::zero(); self.plan.pairs.len() * self.outputs];
        over_experts(self.plan, by_rows(self.plan, &mut output, self.outputs), |expert, output| {
            let start = self.plan.range(expert).start * self.inputs;
            let weight = Weight::plain(self.weight(expert), self.outputs, self.inputs);
            let x = Patches::matrix(&self.x[start..], self.inputs);
            product::rows(weight, &x, None, Activation::Identity, output);
        });
        output
    }

    /// From the gradient of the result `[N·k, O]`.
    fn x_gradient(&self, gradient: &[T]) -> Vec<T> {
        let mut output = vec![T::zero(); self.x.len()];
        over_experts(self.plan, by_rows(self.plan, &mut output, self.inputs), |expert, output| {
            let weight = Matrix::new(self.weight(expert), self.outputs, self.inputs);
            multiply(output, self.of_expert(expert, gradient), weight, false);
        });
        output
    }

    /// From the gradient of the result `[N·k, O]`.
    fn weight_gradient(&self, gradient: &[T]) -> Vec<T> {
        let mut output = vec![T::zero(); self.weight.len()];
        if !output.is_empty() {
            let parts = output.chunks_exact_mut(self.outputs * self.inputs).collect();
            over_experts(self.plan, parts, |expert, output| {
                multiply(output, self.of_expert(expert, gradient).transposed(), self.rows(expert), false);
            });
        }
        output
    }

    fn of_expert<'b>(&self, expert: usize, gradient: &'b [T]) -> Matrix<'b, T> {
        let range = self.plan.range(expert);
        let gradient = &gradient[range.start * self.outputs..range.end * self.outputs];
        Matrix::new(gradient, range.len(), self.outputs)
    }
}

impl ExpertLinear {
    fn forward<T: Element>(
        &self,
        x: (&CpuStorage, &Layout),
        weight: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (_, outputs, inputs) = weight.1.shape().dims3()?;
        let (x, weight) = (storage::slice::<T>(x.0, x.1)?, storage::slice(weight.0, weight.1)?);
        let operands = Operands { plan: &self.plan, x, weight, outputs, inputs };
        let output = operands.forward();
        Ok((T::to_cpu_storage_owned(output), Shape::from((self.plan.pairs.len(), outputs))))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 2]> {
        let (_, outputs, inputs) = weight.dims3()?;
        let [mut x_gradient, mut weight_gradient] = [None, None];
        {
            let (x_values, weight_values, gradient) =
                (values::<T>(x)?, values::<T>(weight)?, values::<T>(gradient)?);
            let (x_values, weight_values) = (x_values.slice()?, weight_values.slice()?);
            let operands = Operands { plan: &self.plan, x: x_values, weight: weight_values, outputs, inputs };
            let gradient = gradient.slice()?;
            if x.track_op() {
                x_gradient = Some(Tensor::from_vec(operands.x_gradient(gradient), x.shape(), x.device())?);
            }
            if weight.track_op() {
                let output = operands.weight_gradient(gradient);
                weight_gradient = Some(Tensor::from_vec(output, weight.shape(), weight.device())?);
            }
        }
        Ok([x_gradient, weight_gradient])
    }
}

impl CustomOp2 for ExpertLinear {
    fn name(&self) -> &'static str {
        "expert_linear"
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
        on_device::linear(&x, &weight, &self.plan.ranges())?.into_cuda()
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
            let views = (locked.0.view()?, locked.1.view()?, locked.2.view()?);
            let ranges = self.plan.ranges();
            let of_x = x
                .track_op()
                .then(|| on_device::linear_backward_x(&views.0, &views.1, &views.2, &ranges))
                .transpose()?;
            let of_weight = weight
                .track_op()
                .then(|| on_device::linear_backward_weight(&views.0, &views.1, &views.2, &ranges))
                .transpose()?;
            return Ok((of_x.map(Array::into_tensor), of_weight.map(Array::into_tensor)));
        }
        let [x, weight] = by_type!(x.dtype(), T => self.backward::<T>(x, weight, &gradient))?;
        Ok((x, weight))
    }
}
