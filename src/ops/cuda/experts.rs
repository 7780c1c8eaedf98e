//! Rows to experts and back; `kernels/experts.cu`. Dispatching is [`super::embedding::gather`] of a row for each place.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{Argument, EXPERTS, Grid, int, launch, long, typed};
use super::view::{Array, View};

fn check(values: &View, weights: Option<&View>, places: &View, slots: &View) -> Result<[usize; 3]> {
    let (copies, width) = values.shape().dims2()?;
    let (rows, choices) = places.shape().dims2()?;
    let weights_fit = weights.is_none_or(|weights| weights.dims() == places.dims());
    let types = (places.dtype(), slots.dtype());
    if copies != rows * choices
        || slots.dims() != places.dims()
        || !weights_fit
        || types != (DType::U32, DType::U32)
    {
        return refuse("combine", format!("values {:?}, places {:?}", values.dims(), places.dims()));
    }
    Ok([rows, choices, width])
}

/// Of `values` `[N k, D]` each row's k copies, times the row's weights `[N, k]` if any, summed in order of expert id:
/// `places` u32 `[N, k]` says where the copies lie in that order, `slots` u32 `[N, k]` which weight is whose. `[N, D]`.
pub(crate) fn combine(values: &View, weights: Option<&View>, places: &View, slots: &View) -> Result<Array> {
    let [rows, choices, width] = check(values, weights, places, slots)?;
    let mut y = Array::new(&values.device(), values.dtype(), (rows, width))?;
    launch(
        &values.device(),
        EXPERTS,
        &typed("combine_rows", values.dtype())?,
        Grid::threads(rows * width),
        &mut [
            values.into(),
            weights.map_or(Argument::Nothing, Into::into),
            places.into(),
            slots.into(),
            (&mut y).into(),
            long(rows),
            int(choices)?,
            int(width)?,
        ],
    )?;
    Ok(y)
}

/// Gradients of values and weights from that of the sums, `[N, D]`.
pub(crate) fn combine_backward(
    values: &View,
    weights: &View,
    places: &View,
    slots: &View,
    gradient: &View,
) -> Result<(Array, Array)> {
    let [rows, choices, width] = check(values, Some(weights), places, slots)?;
    if gradient.dims() != [rows, width] || gradient.dtype() != values.dtype() {
        return refuse("combine", format!("gradient {:?} of {rows} rows of {width}", gradient.dims()));
    }
    let (mut of_values, mut of_weights) = (Array::like(values)?, Array::like(weights)?);
    launch(
        &values.device(),
        EXPERTS,
        &typed("combine_rows_backward", values.dtype())?,
        Grid::warps(rows * choices),
        &mut [
            values.into(),
            weights.into(),
            places.into(),
            slots.into(),
            gradient.into(),
            (&mut of_values).into(),
            (&mut of_weights).into(),
            long(rows),
            int(choices)?,
            int(width)?,
        ],
    )?;
    Ok((of_values, of_weights))
}
