//! The squashed Gaussian; `kernels/gaussian.cu`. Inputs `[N, D]` alike.

use candle_core::Result;

use super::super::storage::refuse;
use super::launch::{GAUSSIAN, Grid, int, launch, long, typed};
use super::view::{Array, View};

fn check(mean: &View, log_std: &View, before: &View) -> Result<(usize, usize)> {
    for other in [log_std, before] {
        if other.dims() != mean.dims() || other.dtype() != mean.dtype() {
            return refuse("squashed_gaussian", format!("{:?} and {:?}", mean.dims(), other.dims()));
        }
    }
    mean.shape().dims2()
}

/// Log-density and entropy `[N, 2]`.
pub(crate) fn forward(mean: &View, log_std: &View, before: &View) -> Result<Array> {
    let (rows, width) = check(mean, log_std, before)?;
    let mut result = Array::new(&mean.device(), mean.dtype(), (rows, 2))?;
    launch(
        &mean.device(),
        GAUSSIAN,
        &typed("squashed_gaussian_forward", mean.dtype())?,
        Grid::warps(rows),
        &mut [mean.into(), log_std.into(), before.into(), (&mut result).into(), long(rows), int(width)?],
    )?;
    Ok(result)
}

/// Gradients of the three inputs from that of the result, `[N, 2]`.
pub(crate) fn backward(mean: &View, log_std: &View, before: &View, gradient: &View) -> Result<[Array; 3]> {
    let (rows, width) = check(mean, log_std, before)?;
    if gradient.dims() != [rows, 2] || gradient.dtype() != mean.dtype() {
        return refuse("squashed_gaussian", format!("gradient {:?} of {rows} rows", gradient.dims()));
    }
    let [mut of_mean, mut of_log_std, mut of_before] =
        [Array::like(mean)?, Array::like(log_std)?, Array::like(before)?];
    launch(
        &mean.device(),
        GAUSSIAN,
        &typed("squashed_gaussian_backward", mean.dtype())?,
        Grid::threads(rows * width),
        &mut [
            mean.into(),
            log_std.into(),
            before.into(),
            gradient.into(),
            (&mut of_mean).into(),
            (&mut of_log_std).into(),
            (&mut of_before).into(),
            long(rows),
            int(width)?,
        ],
    )?;
    Ok([of_mean, of_log_std, of_before])
}
