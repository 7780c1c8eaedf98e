//! silu(gate) · up; `kernels/swiglu.cu`. Any equal shapes.

use candle_core::Result;

use super::super::storage::refuse;
use super::launch::{Grid, SWIGLU, launch, long, typed};
use super::view::{Array, View};

fn check(gate: &View, others: &[&View]) -> Result<()> {
    for other in others {
        if other.dims() != gate.dims() || other.dtype() != gate.dtype() {
            return refuse("swiglu", format!("{:?} and {:?} differ", gate.dims(), other.dims()));
        }
    }
    Ok(())
}

pub(crate) fn forward(gate: &View, up: &View) -> Result<Array> {
    check(gate, &[up])?;
    let mut y = Array::like(gate)?;
    launch(
        &gate.device(),
        SWIGLU,
        &typed("swiglu_forward", gate.dtype())?,
        Grid::threads(gate.count()),
        &mut [gate.into(), up.into(), (&mut y).into(), long(gate.count())],
    )?;
    Ok(y)
}

/// Gradients of gate and up.
pub(crate) fn backward(gate: &View, up: &View, gradient: &View) -> Result<(Array, Array)> {
    check(gate, &[up, gradient])?;
    let (mut of_gate, mut of_up) = (Array::like(gate)?, Array::like(up)?);
    launch(
        &gate.device(),
        SWIGLU,
        &typed("swiglu_backward", gate.dtype())?,
        Grid::threads(gate.count()),
        &mut [
            gate.into(),
            up.into(),
            gradient.into(),
            (&mut of_gate).into(),
            (&mut of_up).into(),
            long(gate.count()),
        ],
    )?;
    Ok((of_gate, of_up))
}
