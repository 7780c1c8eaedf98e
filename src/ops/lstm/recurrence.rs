//! The walk of an LSTM through time as one operator.

use std::ops::Range;
use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::super::activation::Activation;
use super::super::lanes::{Element, on_this_processor};
use super::super::parallel::{self, Output};
use super::super::patches::Patches;
use super::super::prepared::PreparedWeight;
use super::super::product::{self, PackedWeight, Weight};
use super::super::storage::{self, by_type, refuse, values};
use super::cell::{composed_cell, lstm_cell};
use super::kernels::{Backward, Forward};

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
/// `[T, N, 2H]`. Threads share the sequences, each walks with its own.
pub(super) struct Recurrence {
    /// T.
    pub(super) steps: usize,
    /// N.
    pub(super) rows: usize,
    /// H.
    pub(super) hidden: usize,
    /// `[T, N]`, not 0 where an episode starts.
    pub(super) starts: Vec<u8>,
    /// The hidden weight laid out, where it is.
    pub(super) prepared: Option<PreparedWeight>,
    /// The squashed gates `[T, N, 4H]`, kept by the forward pass where a backward pass may follow.
    pub(super) gates: OnceLock<Tensor>,
    /// Whether one may follow.
    pub(super) keep_gates: bool,
}

impl Recurrence {
    /// Threads worth having for the products of the walk.
    fn threads(&self) -> usize {
        parallel::worthwhile(self.steps * self.rows * 4 * self.hidden * self.hidden)
    }

    /// Which of the flags of a step belong to some rows.
    fn starts(&self, step: usize, rows: &Range<usize>) -> &[u8] {
        &self.starts[step * self.rows + rows.start..step * self.rows + rows.end]
    }

    /// Some rows of step `step` in a matrix `[T · N, ...]`.
    fn place(&self, step: usize, rows: &Range<usize>) -> Range<usize> {
        step * self.rows + rows.start..step * self.rows + rows.end
    }

    fn forward<T: Element>(
        &self,
        [projected, state, weight]: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let (steps, hidden) = (self.steps, self.hidden);
        let projected: &[T] = storage::slice(projected.0, projected.1)?;
        let first = storage::slice::<T>(state.0, state.1)?;
        let weight = storage::slice::<T>(weight.0, weight.1)?;
        let packed;
        let weight = if let Some(prepared) = self.prepared.as_ref().and_then(T::prepared) {
            prepared
        } else {
            packed = PackedWeight::new(weight, 4 * hidden, hidden);
            &packed
        };
        let mut states = vec![T::zero(); steps * self.rows * 2 * hidden];
        let mut gates = vec![T::zero(); if self.keep_gates { steps } else { 1 } * self.rows * 4 * hidden];
        let (states_out, gates_out) =
            (Output::new(&mut states, 2 * hidden), Output::new(&mut gates, 4 * hidden));
        parallel::over_parts(self.rows, self.threads(), |rows| {
            let mut previous = &first[rows.start * 2 * hidden..rows.end * 2 * hidden];
            let (mut h, mut cell) =
                (vec![T::zero(); rows.len() * hidden], vec![T::zero(); rows.len() * hidden]);
            for step in 0..steps {
                let starts = self.starts(step, &rows);
                half_or_zero(previous, 0, hidden, starts, &mut h);
                half_or_zero(previous, 1, hidden, starts, &mut cell);
                let place = self.place(step, &rows);
                // SAFETY: the rows belong to this part alone, and each step's are taken once (or, where gates are not
                // kept, after those of the step before are done with).
                let (state, gates) = unsafe {
                    let kept = if self.keep_gates { place.clone() } else { rows.clone() };
                    (states_out.whole(place.clone()), gates_out.whole(kept))
                };
                let (weight, x) = (Weight::Packed(weight), Patches::matrix(&h, hidden));
                parallel::alone(|| product::rows(weight, &x, None, Activation::Identity, gates));
                let added = Some(&projected[place.start * 4 * hidden..place.end * 4 * hidden]);
                on_this_processor(Forward { hidden, added, gates, cell: &cell, state: &mut *state });
                previous = state;
            }
        });
        let shape = Shape::from((steps, self.rows, 2 * hidden));
        if self.keep_gates {
            // Only ever set here, once: the operator runs forward once.
            let _ = self.gates.set(Tensor::from_vec(gates, (steps, self.rows, 4 * hidden), &Device::Cpu)?);
        }
        Ok((T::to_cpu_storage_owned(states), shape))
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
        let hidden = self.hidden;
        let Some(gates) = self.gates.get() else {
            return refuse("lstm_unroll", "the forward pass kept no gates for a backward pass");
        };
        let (gates, weight_values) = (values::<T>(gates)?, values::<T>(weight)?);
        let (gates, weight_values) = (gates.slice()?, weight_values.slice()?);
        let (states, gradient) = (values::<T>(result)?, values::<T>(gradient)?);
        let (states, gradient) = (states.slice()?, gradient.slice()?);
        let [h, cells] = self.before(values(state)?.slice()?, states);
        // The gradient goes back through the weight the other way round.
        let turned = PackedWeight::transposed(weight_values, 4 * hidden, hidden);

        let mut gates_gradient = vec![T::zero(); gates.len()];
        let mut state_gradient = vec![T::zero(); self.rows * 2 * hidden];
        let gates_out = Output::new(&mut gates_gradient, 4 * hidden);
        let state_out = Output::new(&mut state_gradient, 2 * hidden);
        parallel::over_parts(self.rows, self.threads(), |rows| {
            // SAFETY: the rows belong to this part alone.
            let later = unsafe { state_out.whole(rows.clone()) };
            let mut total = vec![T::zero(); rows.len() * 2 * hidden];
            let mut h_gradient = vec![T::zero(); rows.len() * hidden];
            let mut cell_gradient = vec![T::zero(); rows.len() * hidden];
            for step in (0..self.steps).rev() {
                let place = self.place(step, &rows);
                let part = |width: usize| place.start * width..place.end * width;
                let given = &gradient[part(2 * hidden)];
                for ((total, &given), &later) in total.iter_mut().zip(given).zip(&*later) {
                    *total = given + later;
                }
                // SAFETY: the rows belong to this part alone, and each step's are taken once.
                let gates_gradient = unsafe { gates_out.whole(place.clone()) };
                on_this_processor(Backward {
                    hidden,
                    gates: &gates[part(4 * hidden)],
                    cell: &cells[part(hidden)],
                    state: &states[part(2 * hidden)],
                    gradient: &total,
                    gates_gradient: &mut *gates_gradient,
                    cell_gradient: &mut cell_gradient,
                });
                let (weight, x) = (Weight::Packed(&turned), Patches::matrix(gates_gradient, 4 * hidden));
                parallel::alone(|| product::rows(weight, &x, None, Activation::Identity, &mut h_gradient));
                let sources = h_gradient.chunks_exact(hidden).zip(cell_gradient.chunks_exact(hidden));
                let starts = self.starts(step, &rows);
                for (((h, c), output), &start) in sources.zip(later.chunks_exact_mut(2 * hidden)).zip(starts)
                {
                    if start == 0 {
                        output[..hidden].copy_from_slice(h);
                        output[hidden..].copy_from_slice(c);
                    } else {
                        output.fill(T::zero());
                    }
                }
            }
        });

        let weight_gradient = weight.track_op().then(|| {
            let output = product::weight_gradient(&gates_gradient, 4 * hidden, &Patches::matrix(&h, hidden));
            Tensor::from_vec(output, weight.shape(), &Device::Cpu)
        });
        let weight_gradient = weight_gradient.transpose()?;
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
