//! The pointwise part of an LSTM step as an operator.

use candle_core::{CpuStorage, CustomOp2, D, Device, Layout, Result, Shape, Tensor};

use super::super::lanes::{Element, on_this_processor};
use super::super::storage::{self, by_type, refuse, values};
use super::kernels::{Backward, Forward};
#[cfg(feature = "cuda")]
use {
    super::super::cuda::{self, View, lock},
    candle_core::CudaStorage,
};

/// The pointwise part of a step: gates `[N, 4H]` before their squashing and state `[N, 2H]` to the next state.
///
/// Differentiable in both (of the state only the cells matter). Errors when the shapes do not fit.
pub fn lstm_cell(gates: &Tensor, state: &Tensor) -> Result<Tensor> {
    match (gates.dims(), state.dims()) {
        ([n, gates], [rows, state]) if n == rows && *gates == 2 * state && state % 2 == 0 && *state > 0 => {}
        (gates, state) => {
            return refuse(
                "lstm_cell",
                format!("gates {gates:?}, state {state:?}: must be [N, 4H], [N, 2H]"),
            );
        }
    }
    if storage::is_native(gates) || storage::has_kernel(gates) {
        gates.contiguous()?.apply_op2(&state.contiguous()?, Cell)
    } else {
        composed_cell(gates, state)
    }
}

/// The same function out of candle's own differentiable operators.
pub(super) fn composed_cell(gates: &Tensor, state: &Tensor) -> Result<Tensor> {
    let parts = gates.chunk(4, D::Minus1)?;
    // The logistic function, through an operator that has a gradient on every device.
    let sigmoid = |gate: &Tensor| ((gate * 0.5)?.tanh()? * 0.5)? + 0.5;
    let hidden = state.dim(1)? / 2;
    let cell = (sigmoid(&parts[1])? * state.narrow(1, hidden, hidden)?)?;
    let cell = (cell + (sigmoid(&parts[0])? * parts[2].tanh()?)?)?;
    Tensor::cat(&[&(sigmoid(&parts[3])? * cell.tanh()?)?, &cell], 1)
}

/// The pointwise operator.
struct Cell;

impl Cell {
    fn cells<T: Element>(state: &[T], hidden: usize) -> Vec<T> {
        state.chunks_exact(2 * hidden).flat_map(|row| &row[hidden..]).copied().collect()
    }

    /// The squashed gates and the next state.
    fn step<T: Element>(gates: &[T], state: &[T], hidden: usize) -> (Vec<T>, Vec<T>) {
        let (mut gates, mut next) = (gates.to_vec(), vec![T::zero(); state.len()]);
        let cell = Self::cells(state, hidden);
        on_this_processor(Forward { hidden, added: None, gates: &mut gates, cell: &cell, state: &mut next });
        (gates, next)
    }

    fn forward<T: Element>(
        gates: (&CpuStorage, &Layout),
        state: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, double) = state.1.shape().dims2()?;
        let (_, next) =
            Self::step::<T>(storage::slice(gates.0, gates.1)?, storage::slice(state.0, state.1)?, double / 2);
        Ok((T::to_cpu_storage_owned(next), Shape::from((rows, double))))
    }

    fn backward<T: Element>(
        gates: &Tensor,
        state: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (rows, double) = state.dims2()?;
        let hidden = double / 2;
        let (gates_values, state_values) = (values::<T>(gates)?, values::<T>(state)?);
        let (squashed, _) = Self::step(gates_values.slice()?, state_values.slice()?, hidden);
        let mut gates_gradient = vec![T::zero(); rows * 4 * hidden];
        let mut cell_gradient = vec![T::zero(); rows * hidden];
        on_this_processor(Backward::<T> {
            hidden,
            gates: &squashed,
            cell: &Self::cells(state_values.slice()?, hidden),
            state: values(result)?.slice()?,
            gradient: values(gradient)?.slice()?,
            gates_gradient: &mut gates_gradient,
            cell_gradient: &mut cell_gradient,
        });
        let cell_gradient = Tensor::from_vec(cell_gradient, (rows, hidden), &Device::Cpu)?;
        let state_gradient = Tensor::cat(&[&cell_gradient.zeros_like()?, &cell_gradient], 1)?;
        Ok((
            Some(Tensor::from_vec(gates_gradient, gates.shape(), &Device::Cpu)?),
            Some(state_gradient).filter(|_| state.track_op()),
        ))
    }
}

impl CustomOp2 for Cell {
    fn name(&self) -> &'static str {
        "lstm_cell"
    }

    fn cpu_fwd(
        &self,
        gates: &CpuStorage,
        gates_layout: &Layout,
        state: &CpuStorage,
        state_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(gates), T =>
            Self::forward::<T>((gates, gates_layout), (state, state_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        gates: &CudaStorage,
        gates_layout: &Layout,
        state: &CudaStorage,
        state_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda::lstm::cell_forward(&View::cuda(gates, gates_layout), &View::cuda(state, state_layout))?
            .into_cuda()
    }

    fn bwd(
        &self,
        gates: &Tensor,
        state: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if storage::has_kernel(gates) {
            let inputs = (lock(gates), lock(state), lock(result), lock(&gradient));
            let (of_gates, of_state) = cuda::lstm::cell_backward(
                &inputs.0.view()?,
                &inputs.1.view()?,
                &inputs.2.view()?,
                &inputs.3.view()?,
            )?;
            return Ok((Some(of_gates.into_tensor()), Some(of_state.into_tensor())));
        }
        by_type!(gates.dtype(), T => Self::backward::<T>(gates, state, result, &gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check_gradients, close, pseudo_random};
    use super::*;
    use candle_core::DType;

    #[test]
    fn the_cell_agrees_with_its_composed_form_and_with_finite_differences() {
        for [n, h] in [[1, 1], [3, 5], [1, 17], [6, 2]] {
            let gates = pseudo_random(&[n, 4 * h], 1, DType::F64);
            let state = pseudo_random(&[n, 2 * h], 2, DType::F64);
            close(&lstm_cell(&gates, &state).unwrap(), &composed_cell(&gates, &state).unwrap(), 1e-12);
            check_gradients(&[gates, state], |t| lstm_cell(&t[0], &t[1]));
        }
    }
}
