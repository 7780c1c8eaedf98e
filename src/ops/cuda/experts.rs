//! Rows to experts and back, `kernels/experts.cu`, and the experts' products, which are candle's. Dispatching is [`super::embedding::gather`] of a row for each place.

use std::ops::Range;

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

/// x `[N k, K]` and weight `[E, O, K]`, when they fit the ranges of rows that the experts have.
fn check_experts(x: &View, weight: &View, ranges: &[Range<usize>]) -> Result<[usize; 3]> {
    let (rows, width) = x.shape().dims2()?;
    let (experts, outputs, inputs) = weight.shape().dims3()?;
    let last = ranges.last().map_or(0, |range| range.end);
    if inputs != width || experts != ranges.len() || last != rows || weight.dtype() != x.dtype() {
        return refuse("expert_linear", format!("x {:?}, weight {:?}", x.dims(), weight.dims()));
    }
    Ok([rows, outputs, inputs])
}

/// Experts that have rows.
fn busy(ranges: &[Range<usize>]) -> impl Iterator<Item = (usize, &Range<usize>)> {
    ranges.iter().enumerate().filter(|(_, range)| !range.is_empty())
}

/// Each expert's rows of x times its weight, `[N k, O]`; `ranges` are the experts' rows, one after another.
pub(crate) fn linear(x: &View, weight: &View, ranges: &[Range<usize>]) -> Result<Array> {
    let [rows, outputs, _] = check_experts(x, weight, ranges)?;
    let mut y = Array::new(&x.device(), x.dtype(), (rows, outputs))?;
    for (expert, range) in busy(ranges) {
        let x = x.narrow(range.start, range.len())?;
        y.write(range.start * outputs, &x.product(&weight.matrix(expert)?.transposed()?)?)?;
    }
    Ok(y)
}

/// The gradient of x from that of [`linear`]'s result.
pub(crate) fn linear_backward_x(
    x: &View,
    weight: &View,
    gradient: &View,
    ranges: &[Range<usize>],
) -> Result<Array> {
    let [_, _, inputs] = check_experts(x, weight, ranges)?;
    let mut of_x = Array::like(x)?;
    for (expert, range) in busy(ranges) {
        let gradient = gradient.narrow(range.start, range.len())?;
        of_x.write(range.start * inputs, &gradient.product(&weight.matrix(expert)?)?)?;
    }
    Ok(of_x)
}

/// The gradient of the weight; 0 for experts without rows.
pub(crate) fn linear_backward_weight(
    x: &View,
    weight: &View,
    gradient: &View,
    ranges: &[Range<usize>],
) -> Result<Array> {
    let [_, outputs, inputs] = check_experts(x, weight, ranges)?;
    let mut of_weight = Array::zeros(&x.device(), x.dtype(), weight.shape().clone())?;
    for (expert, range) in busy(ranges) {
        let gradient = gradient.narrow(range.start, range.len())?.transposed()?;
        let x = x.narrow(range.start, range.len())?;
        of_weight.write(expert * outputs * inputs, &gradient.product(&x)?)?;
    }
    Ok(of_weight)
}
