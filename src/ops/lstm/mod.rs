//! The LSTM: one cell, one step, and an unroll over time with episode starts.
//!
//! A state row is `[2H]`: hidden values, then cells (h, c). The unroll projects the inputs of all steps in one product
//! and then walks through time, keeping the gates where gradients are wanted. Row-invariant: a sequence's results depend on that sequence only, bit for bit,
//! and [`lstm_step`] after step gives the bits of [`lstm_unroll`].

mod cell;
mod kernels;
mod recurrence;

use std::sync::OnceLock;

use candle_core::{DType, Result, Tensor};

use super::activation::Activation;
use super::linear::linear;
use super::prepared::WeightRef;
use super::storage::{self, refuse};

use recurrence::{Recurrence, composed_recurrence};

pub use cell::lstm_cell;

/// The parameters of an LSTM layer; gates in the order input, forget, candidate, output.
#[derive(Debug, Clone, Copy)]
pub struct LstmParameters<'a> {
    /// `[4H, I]`.
    pub input_weight: WeightRef<'a>,
    /// `[4H, H]`.
    pub hidden_weight: WeightRef<'a>,
    /// `[4H]`.
    pub bias: &'a Tensor,
}

/// One step: x `[N, I]` and state `[N, 2H]` to the next state `[N, 2H]`, whose first half is the output.
pub fn lstm_step(x: &Tensor, state: &Tensor, parameters: LstmParameters) -> Result<Tensor> {
    let starts = Tensor::zeros((1, state.dim(0)?), DType::U8, state.device())?;
    lstm_unroll(&x.unsqueeze(0)?, state, &starts, parameters)?.1.squeeze(0)
}

/// T steps: the outputs `[T, N, H]` and the states after each step `[T, N, 2H]`.
///
/// Shapes: x `[T, N, I]`, state before the first step `[N, 2H]`, starts `[T, N]` (`u8`): where it is not 0 an episode
/// starts and the state is zero before the step. Differentiable in x, state and the parameters. Errors when a shape
/// does not fit.
pub fn lstm_unroll(
    x: &Tensor,
    state: &Tensor,
    starts: &Tensor,
    parameters: LstmParameters,
) -> Result<(Tensor, Tensor)> {
    let (steps, rows, hidden) = check(x, state, starts, parameters)?;
    let LstmParameters { input_weight, hidden_weight, bias } = parameters;
    let projected = linear(&x.flatten(0, 1)?, input_weight, Some(bias), Activation::Identity)?;
    let projected = projected.reshape((steps, rows, 4 * hidden))?;
    let states = if storage::is_native(x) {
        let starts = starts.flatten_all()?.to_vec1()?;
        let tracked = [&projected, state, hidden_weight.tensor].iter().any(|tensor| tensor.track_op());
        let recurrence = Recurrence {
            steps,
            rows,
            hidden,
            starts,
            prepared: hidden_weight.prepared.cloned(),
            gates: OnceLock::new(),
            keep_gates: tracked,
        };
        projected.apply_op3(&state.contiguous()?, &hidden_weight.tensor.contiguous()?, recurrence)?
    } else {
        composed_recurrence(&projected, state, starts, hidden_weight.tensor)?
    };
    Ok((states.narrow(2, 0, hidden)?, states))
}

fn check(
    x: &Tensor,
    state: &Tensor,
    starts: &Tensor,
    parameters: LstmParameters,
) -> Result<(usize, usize, usize)> {
    let LstmParameters { input_weight, hidden_weight, bias } = parameters;
    match (x.dims(), state.dims(), starts.dims(), hidden_weight.tensor.dims()) {
        (&[t, n, i], &[rows, double], &[steps, columns], &[gates, hidden])
            if t > 0
                && hidden > 0
                && (rows, steps, columns) == (n, t, n)
                && (double, gates) == (2 * hidden, 4 * hidden)
                && input_weight.tensor.dims() == [gates, i]
                && bias.dims() == [gates]
                && starts.dtype() == DType::U8 =>
        {
            Ok((t, n, hidden))
        }
        (x, state, starts_shape, hidden_weight) => refuse(
            "lstm_unroll",
            format!(
                "x {x:?}, state {state:?}, {:?} starts {starts_shape:?}, input weight {:?}, hidden weight \
                 {hidden_weight:?}, bias {:?}: must be [T, N, I], [N, 2H], U8 [T, N], [4H, I], [4H, H], [4H]",
                starts.dtype(),
                input_weight.tensor.dims(),
                bias.dims()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::Device;

    /// T, N, I, H.
    const CASES: [[usize; 4]; 4] = [[1, 1, 1, 1], [4, 3, 2, 5], [3, 1, 7, 17], [5, 6, 1, 2]];

    fn starts(steps: usize, rows: usize) -> Tensor {
        let flags: Vec<u8> = (0..steps * rows).map(|i| u8::from(i % 5 == 2)).collect();
        Tensor::from_vec(flags, (steps, rows), &Device::Cpu).unwrap()
    }

    /// x, state, input weight, hidden weight, bias.
    fn inputs([t, n, i, h]: [usize; 4], dtype: DType) -> [Tensor; 5] {
        let shapes = [vec![t, n, i], vec![n, 2 * h], vec![4 * h, i], vec![4 * h, h], vec![4 * h]];
        let mut seed = 0;
        shapes.map(|shape| {
            seed += 1;
            pseudo_random(&shape, seed, dtype)
        })
    }

    fn parameters(inputs: &[Tensor]) -> LstmParameters<'_> {
        LstmParameters {
            input_weight: (&inputs[2]).into(),
            hidden_weight: (&inputs[3]).into(),
            bias: &inputs[4],
        }
    }

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for case in CASES {
            let inputs = inputs(case, DType::F32).map(|t| offset(&t));
            let starts = offset(&starts(case[0], case[1]));
            let (outputs, states) =
                lstm_unroll(&inputs[0], &inputs[1], &starts, parameters(&inputs)).unwrap();
            let x = inputs[0].flatten(0, 1).unwrap();
            let projected = linear(&x, &inputs[2], Some(&inputs[4]), Activation::Identity).unwrap();
            let projected = projected.reshape((case[0], case[1], 4 * case[3])).unwrap();
            let plain = composed_recurrence(&projected, &inputs[1], &starts, &inputs[3]).unwrap();
            close(&states, &plain, 1e-5);
            close(&outputs, &plain.narrow(2, 0, case[3]).unwrap(), 1e-5);
        }
    }

    #[test]
    fn gradients_of_the_unroll_match_finite_differences() {
        for case in CASES {
            let starts = starts(case[0], case[1]);
            check_gradients(&inputs(case, DType::F64), |t| {
                let (outputs, states) = lstm_unroll(&t[0], &t[1], &starts, parameters(t))?;
                Tensor::cat(&[&outputs.sqr()?, &states], 2)
            });
        }
    }

    #[test]
    fn a_sequence_gives_the_same_bits_in_any_batch_and_step_by_step() {
        let inputs = inputs([6, 9, 3, 20], DType::F32);
        let starts = starts(6, 9);
        let (_, states) = lstm_unroll(&inputs[0], &inputs[1], &starts, parameters(&inputs)).unwrap();
        for row in 0..9 {
            let x = inputs[0].narrow(1, row, 1).unwrap();
            let mut state = inputs[1].narrow(0, row, 1).unwrap();
            let starts = starts.narrow(1, row, 1).unwrap();
            for step in 0..6 {
                if starts.get(step).unwrap().to_vec1::<u8>().unwrap()[0] != 0 {
                    state = state.zeros_like().unwrap();
                }
                state = lstm_step(&x.get(step).unwrap(), &state, parameters(&inputs)).unwrap();
                let batched = states.get(step).unwrap().get(row).unwrap().to_vec1::<f32>().unwrap();
                assert_eq!(state.get(0).unwrap().to_vec1::<f32>().unwrap(), batched);
            }
        }
    }

    #[test]
    fn nothing_crosses_an_episode_start() {
        let inputs = inputs([2, 1, 1, 2], DType::F32);
        let starts = Tensor::new(&[[0_u8], [1]], &Device::Cpu).unwrap();
        let run = |state: &Tensor| {
            let (outputs, _) = lstm_unroll(&inputs[0], state, &starts, parameters(&inputs)).unwrap();
            outputs.get(1).unwrap().to_vec2::<f32>().unwrap()
        };
        let nan = Tensor::full(f32::NAN, (1, 4), &Device::Cpu).unwrap();
        assert_eq!(run(&inputs[1]), run(&nan));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_by_name() {
        let inputs = inputs([2, 1, 1, 2], DType::F32);
        let starts = starts(2, 2);
        let error = lstm_unroll(&inputs[0], &inputs[1], &starts, parameters(&inputs)).unwrap_err();
        assert!(error.to_string().contains("lstm_unroll"));
    }
}
