//! RMSNorm and LayerNorm of rows; formulas in `kernels/norm.cu`. x `[.., D]`, weight and bias `[D]`, all of one type.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{Grid, NORM, int, launch, long, typed};
use super::view::{Array, View};

/// Rows of one partial sum of the parameters' gradients; `kernels/norm.cu` has the same.
const ROWS_IN_PART: usize = 64;

fn check(kernel: &str, x: &View, parameters: &[&View]) -> Result<(usize, usize)> {
    let (rows, width) = x.rows_and_width()?;
    for parameter in parameters {
        if parameter.count() != width || parameter.dtype() != x.dtype() {
            return refuse(kernel, format!("a parameter {:?} for rows {:?}", parameter.dims(), x.dims()));
        }
    }
    Ok((rows, width))
}

pub(crate) fn rms_norm_forward(x: &View, weight: &View, epsilon: f64) -> Result<Array> {
    let (rows, width) = check("rms_norm", x, &[weight])?;
    let mut y = Array::like(x)?;
    launch(
        &x.device(),
        NORM,
        &typed("rms_norm_forward", x.dtype())?,
        Grid::warps(rows),
        &mut [x.into(), weight.into(), (&mut y).into(), long(rows), int(width)?, (epsilon as f32).into()],
    )?;
    Ok(y)
}

pub(crate) fn layer_norm_forward(x: &View, weight: &View, bias: &View, epsilon: f64) -> Result<Array> {
    let (rows, width) = check("layer_norm", x, &[weight, bias])?;
    let mut y = Array::like(x)?;
    launch(
        &x.device(),
        NORM,
        &typed("layer_norm_forward", x.dtype())?,
        Grid::warps(rows),
        &mut [
            x.into(),
            weight.into(),
            bias.into(),
            (&mut y).into(),
            long(rows),
            int(width)?,
            (epsilon as f32).into(),
        ],
    )?;
    Ok(y)
}

/// Gradients of x, and of weight and bias as `[2, D]` (the bias's is of no use here).
pub(crate) fn rms_norm_backward(
    x: &View,
    weight: &View,
    gradient: &View,
    epsilon: f64,
) -> Result<(Array, Array)> {
    backward("rms_norm_backward", x, weight, gradient, epsilon)
}

/// Gradients of x, and of weight and bias as `[2, D]`.
pub(crate) fn layer_norm_backward(
    x: &View,
    weight: &View,
    gradient: &View,
    epsilon: f64,
) -> Result<(Array, Array)> {
    backward("layer_norm_backward", x, weight, gradient, epsilon)
}

fn backward(kernel: &str, x: &View, weight: &View, gradient: &View, epsilon: f64) -> Result<(Array, Array)> {
    let (rows, width) = check(kernel, x, &[weight])?;
    if gradient.dims() != x.dims() || gradient.dtype() != x.dtype() {
        return refuse(kernel, format!("gradient {:?} of rows {:?}", gradient.dims(), x.dims()));
    }
    let (device, dtype) = (x.device(), x.dtype());
    let mut x_gradient = Array::like(x)?;
    let mut moments = Array::new(&device, DType::F32, (rows, 2))?;
    launch(
        &device,
        NORM,
        &typed(kernel, dtype)?,
        Grid::warps(rows),
        &mut [
            x.into(),
            weight.into(),
            gradient.into(),
            (&mut x_gradient).into(),
            (&mut moments).into(),
            long(rows),
            int(width)?,
            (epsilon as f32).into(),
        ],
    )?;
    let count = rows.div_ceil(ROWS_IN_PART);
    let mut parts = Array::new(&device, DType::F32, (count, 2, width))?;
    launch(
        &device,
        NORM,
        &typed("norm_parameter_parts", dtype)?,
        Grid { blocks: [Grid::threads(width).blocks[0], count, 1], shared: 0 },
        &mut [
            x.into(),
            gradient.into(),
            (&moments.view()).into(),
            (&mut parts).into(),
            long(rows),
            int(width)?,
        ],
    )?;
    let mut parameters = Array::new(&device, dtype, (2, width))?;
    launch(
        &device,
        NORM,
        &typed("sum_parts", dtype)?,
        Grid::threads(2 * width),
        &mut [(&parts.view()).into(), (&mut parameters).into(), int(count)?, int(2 * width)?],
    )?;
    Ok((x_gradient, parameters))
}
