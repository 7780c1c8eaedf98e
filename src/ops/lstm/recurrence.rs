//! The walk of an LSTM through time as one operator.

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::super::activation::Activation;
use super::super::lanes::{Element, on_this_processor};
use super::super::patches::Patches;
use super::super::product::{Matrix, PackedWeight, multiply};
use super::super::storage::{self, by_type, values};
use super::cell::{composed_cell, lstm_cell};
use super::kernels::{Backward, Forward, GateInputs};

/// The recurrence out of candle's own differentiable operators.
pub(super) fn composed_recurrence(
    projected: &Tensor,
    state: &Tensor,
    starts: &Tensor,
    hidden_weight: &Tensor,
) -> Result<Tensor> {
    let hidden = hidden_weight.dim(1)?;
    let mut state = state.clone();
    let mut states = Vec::new();
    for step in 0..projected.dim(0)? {
        let start = starts.get(step)?.unsqueeze(1)?.broadcast_as(state.shape())?.contiguous()?;
        state = start.where_cond(&state.zeros_like()?, &state.contiguous()?)?;
        let recurrent = state.narrow(1, 0, hidden)?.contiguous()?.matmul(&hidden_weight.t()?)?;
        let gates = (projected.get(step)? + recurrent)?;
        state = if storage::has_kernel(&gates) {
            lstm_cell(&gates, &state)?
        } else {
            composed_cell(&gates, &state)?
        };
        states.push(state.clone());
    }
    Tensor::stack(&states, 0)
}

/// Copies half of each `[2H]` row of `states` (0: hidden values, 1: cells); zeros where the row's `start` is set.
fn half_or_zero<T: Element>(states: &[T], half: usize, hidden: usize, starts: &[u8], output: &mut [T]) {
    let rows = states.chunks_exact(2 * hidden).zip(output.chunks_exact_mut(hidden));
    for ((state, output), &start) in rows.zip(starts) {
        if start == 0 {
            output.copy_from_slice(&state[half * hidden..][..hidden]);
        } else {
            output.fill(T::zero());
        }
    }
}

/// The walk through time: projected inputs `[T, N, 4H]`, state `[N, 2H]`, hidden weight `[4H, H]` to the states
/// `[T, N, 2H]`.
pub(super) struct Recurrence {
    /// T.
    pub(super) steps: usize,
    /// N.
    pub(super) rows: usize,
    /// H.
    pub(super) hidden: usize,
    /// `[T, N]`, not 0 where an episode starts.
    pub(super) starts: Vec<u8>,
}

impl Recurrence {
    fn forward<T: Element>(
        &self,
        [projected, state, weight]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, hidden) = (self.rows, self.hidden);
        let projected: &[T] = storage::slice(projected.0, projected.1)?;
        let weight = PackedWeight::<T>::new(storage::slice(weight.0, weight.1)?, 4 * hidden, hidden);
        let no_bias = vec![T::zero(); 4 * hidden];
        let mut states = vec![T::zero(); self.steps * rows * 2 * hidden];
        let mut previous = storage::slice(state.0, state.1)?;
        let (mut h, mut cell) = (vec![T::zero(); rows * hidden], vec![T::zero(); rows * hidden]);
        let mut recurrent = vec![T::zero(); rows * 4 * hidden];
        let mut rest = &mut states[..];
        for step in 0..self.steps {
            let starts = &self.starts[step * rows..][..rows];
            half_or_zero(previous, 0, hidden, starts, &mut h);
            half_or_zero(previous, 1, hidden, starts, &mut cell);
            weight.rows(&Patches::matrix(&h, hidden), &no_bias, Activation::Identity, &mut recurrent);
            let (state, after) = rest.split_at_mut(rows * 2 * hidden);
            let a = &projected[step * rows * 4 * hidden..][..rows * 4 * hidden];
            let gates = GateInputs { a, b: Some(&recurrent), hidden };
            on_this_processor(Forward { gates, cell: &cell, state: &mut *state });
            previous = state;
            rest = after;
        }
        Ok((T::to_cpu_storage_owned(states), Shape::from((self.steps, rows, 2 * hidden))))
    }

    /// The state before each step, split into hidden values and cells, `[T · N, H]` each.
    fn before<T: Element>(&self, state: &[T], states: &[T]) -> [Vec<T>; 2] {
        let first = self.rows;
        [0, 1].map(|half| {
            let mut output = vec![T::zero(); self.steps * self.rows * self.hidden];
            let (head, tail) = output.split_at_mut(first * self.hidden);
            half_or_zero(state, half, self.hidden, &self.starts[..first], head);
            half_or_zero(states, half, self.hidden, &self.starts[first..], tail);
            output
        })
    }

    fn backward<T: Element>(
        &self,
        inputs: [&Tensor; 3],
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let [projected, state, weight] = inputs;
        let (rows, hidden) = (self.rows, self.hidden);
        let (gates_len, state_len) = (rows * 4 * hidden, rows * 2 * hidden);
        let (projected_values, weight_values) = (values::<T>(projected)?, values::<T>(weight)?);
        let (projected_values, weight_values) = (projected_values.slice()?, weight_values.slice()?);
        let (states, gradient) = (values::<T>(result)?, values::<T>(gradient)?);
        let (states, gradient) = (states.slice()?, gradient.slice()?);
        let [h, cells] = self.before(values(state)?.slice()?, states);

        let mut recurrent = vec![T::zero(); self.steps * gates_len];
        PackedWeight::new(weight_values, 4 * hidden, hidden).rows(
            &Patches::matrix(&h, hidden),
            &vec![T::zero(); 4 * hidden],
            Activation::Identity,
            &mut recurrent,
        );

        let mut gates_gradient = vec![T::zero(); self.steps * gates_len];
        let mut state_gradient = vec![T::zero(); state_len];
        let mut total = vec![T::zero(); state_len];
        let mut h_gradient = vec![T::zero(); rows * hidden];
        let mut cell_gradient = vec![T::zero(); rows * hidden];
        for step in (0..self.steps).rev() {
            let gates = step * gates_len..(step + 1) * gates_len;
            let given = &gradient[step * state_len..][..state_len];
            for ((total, &given), &later) in total.iter_mut().zip(given).zip(&state_gradient) {
                *total = given + later;
            }
            on_this_processor(Backward {
                gates: GateInputs {
                    a: &projected_values[gates.clone()],
                    b: Some(&recurrent[gates.clone()]),
                    hidden,
                },
                cell: &cells[step * rows * hidden..][..rows * hidden],
                state: &states[step * state_len..][..state_len],
                gradient: &total,
                gates_gradient: &mut gates_gradient[gates.clone()],
                cell_gradient: &mut cell_gradient,
            });
            multiply(
                &mut h_gradient,
                Matrix::new(&gates_gradient[gates], rows, 4 * hidden),
                Matrix::new(weight_values, 4 * hidden, hidden),
                false,
            );
            let sources = h_gradient.chunks_exact(hidden).zip(cell_gradient.chunks_exact(hidden));
            let starts = &self.starts[step * rows..][..rows];
            for (((h, c), output), &start) in
                sources.zip(state_gradient.chunks_exact_mut(2 * hidden)).zip(starts)
            {
                if start == 0 {
                    output[..hidden].copy_from_slice(h);
                    output[hidden..].copy_from_slice(c);
                } else {
                    output.fill(T::zero());
                }
            }
        }

        let weight_gradient = if weight.track_op() {
            let mut output = vec![T::zero(); 4 * hidden * hidden];
            let all = self.steps * rows;
            let gates = Matrix::new(&gates_gradient, all, 4 * hidden).transposed();
            multiply(&mut output, gates, Matrix::new(&h, all, hidden), false);
            Some(Tensor::from_vec(output, weight.shape(), &Device::Cpu)?)
        } else {
            None
        };
        Ok([
            Some(Tensor::from_vec(gates_gradient, projected.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(state_gradient, state.shape(), &Device::Cpu)?).filter(|_| state.track_op()),
            weight_gradient,
        ])
    }
}

impl CustomOp3 for Recurrence {
    fn name(&self) -> &'static str {
        "lstm_unroll"
    }

    fn cpu_fwd(
        &self,
        projected: &CpuStorage,
        projected_layout: &Layout,
        state: &CpuStorage,
        state_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(projected, projected_layout), (state, state_layout), (weight, weight_layout)];
        by_type!(storage::dtype(projected), T => self.forward::<T>(inputs))
    }

    fn bwd(
        &self,
        projected: &Tensor,
        state: &Tensor,
        weight: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let [projected, state, weight] = by_type!(projected.dtype(), T =>
            self.backward::<T>([projected, state, weight], result, &gradient))?;
        Ok((projected, state, weight))
    }
}
