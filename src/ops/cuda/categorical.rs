//! The categorical distribution and masked logits; `kernels/categorical.cu`.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{CATEGORICAL, Grid, int, launch, long, typed};
use super::view::{Array, View};

fn check(logits: &View, actions: &View) -> Result<(usize, usize)> {
    let (rows, choices) = logits.shape().dims2()?;
    if actions.dims() != [rows] || actions.dtype() != DType::U32 || choices == 0 {
        return refuse("categorical", format!("logits {:?}, actions {:?}", logits.dims(), actions.dims()));
    }
    Ok((rows, choices))
}

/// Logits `[N, A]`, actions u32 `[N]` to log-probability and entropy `[N, 2]`.
pub(crate) fn forward(logits: &View, actions: &View) -> Result<Array> {
    let (rows, choices) = check(logits, actions)?;
    let mut result = Array::new(&logits.device(), logits.dtype(), (rows, 2))?;
    launch(
        &logits.device(),
        CATEGORICAL,
        &typed("categorical_forward", logits.dtype())?,
        Grid::warps(rows),
        &mut [logits.into(), actions.into(), (&mut result).into(), long(rows), int(choices)?],
    )?;
    Ok(result)
}

/// The gradient of the logits from that of the result, `[N, 2]`.
pub(crate) fn backward(logits: &View, actions: &View, gradient: &View) -> Result<Array> {
    let (rows, choices) = check(logits, actions)?;
    if gradient.dims() != [rows, 2] || gradient.dtype() != logits.dtype() {
        return refuse("categorical", format!("gradient {:?} of {rows} rows", gradient.dims()));
    }
    let mut result = Array::like(logits)?;
    launch(
        &logits.device(),
        CATEGORICAL,
        &typed("categorical_backward", logits.dtype())?,
        Grid::warps(rows),
        &mut [
            logits.into(),
            actions.into(),
            gradient.into(),
            (&mut result).into(),
            long(rows),
            int(choices)?,
        ],
    )?;
    Ok(result)
}

/// `fill` where the mask (u8, of the same shape) is 0; with `fill` 0 also the gradient.
pub(crate) fn mask(logits: &View, mask: &View, fill: f32) -> Result<Array> {
    if logits.dims() != mask.dims() || mask.dtype() != DType::U8 {
        return refuse("mask_logits", format!("logits {:?}, mask {:?}", logits.dims(), mask.dims()));
    }
    let mut result = Array::like(logits)?;
    launch(
        &logits.device(),
        CATEGORICAL,
        &typed("mask_logits", logits.dtype())?,
        Grid::threads(logits.count()),
        &mut [logits.into(), mask.into(), (&mut result).into(), long(logits.count()), fill.into()],
    )?;
    Ok(result)
}
