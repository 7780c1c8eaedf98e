//! The pointwise part of an LSTM step; `kernels/lstm.cu`. Gates `[N, 4H]`, state `[N, 2H]` (h, c).

use candle_core::Result;

use super::super::storage::refuse;
use super::launch::{Grid, LSTM, int, launch, long, typed};
use super::view::{Array, View};

fn check(gates: &View, states: &[&View]) -> Result<(usize, usize)> {
    let (rows, width) = gates.shape().dims2()?;
    for state in states {
        if state.dims() != [rows, width / 2] || width % 4 != 0 || state.dtype() != gates.dtype() {
            return refuse("lstm_cell", format!("gates {:?}, state {:?}", gates.dims(), state.dims()));
        }
    }
    Ok((rows, width / 4))
}

/// The next state.
pub(crate) fn cell_forward(gates: &View, state: &View) -> Result<Array> {
    let (rows, hidden) = check(gates, &[state])?;
    let mut next = Array::like(state)?;
    launch(
        &gates.device(),
        LSTM,
        &typed("lstm_cell_forward", gates.dtype())?,
        Grid::threads(rows * hidden),
        &mut [gates.into(), state.into(), (&mut next).into(), long(rows), int(hidden)?],
    )?;
    Ok(next)
}

/// Gradients of gates and state from that of the next state.
pub(crate) fn cell_backward(
    gates: &View,
    state: &View,
    next: &View,
    gradient: &View,
) -> Result<(Array, Array)> {
    let (rows, hidden) = check(gates, &[state, next, gradient])?;
    let (mut of_gates, mut of_state) = (Array::like(gates)?, Array::like(state)?);
    launch(
        &gates.device(),
        LSTM,
        &typed("lstm_cell_backward", gates.dtype())?,
        Grid::threads(rows * hidden),
        &mut [
            gates.into(),
            state.into(),
            next.into(),
            gradient.into(),
            (&mut of_gates).into(),
            (&mut of_state).into(),
            long(rows),
            int(hidden)?,
        ],
    )?;
    Ok((of_gates, of_state))
}
