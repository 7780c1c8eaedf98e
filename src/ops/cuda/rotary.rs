//! Rotary position embedding; `kernels/rotary.cu`.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{Argument, Grid, ROTARY, int, launch, long, typed};
use super::view::{Array, View};

/// x `[N, H, D]` turned forward, or back (`backward`: also the gradient); tables f32 `[P, D/2]`, positions u32 `[N]`.
pub(crate) fn rotary(
    x: &View,
    cosine: &View,
    sine: &View,
    positions: &View,
    backward: bool,
) -> Result<Array> {
    let (rows, heads, width) = x.shape().dims3()?;
    let (table_rows, half) = cosine.shape().dims2()?;
    let tables_fit = width == 2 * half && sine.dims() == cosine.dims() && positions.dims() == [rows];
    let types = [cosine.dtype(), sine.dtype(), positions.dtype()];
    if !tables_fit || types != [DType::F32, DType::F32, DType::U32] {
        return refuse("rotary", format!("x {:?}, tables {:?} {types:?}", x.dims(), cosine.dims()));
    }
    let mut y = Array::like(x)?;
    launch(
        &x.device(),
        ROTARY,
        &typed("rotary", x.dtype())?,
        Grid::threads(rows * heads * half),
        &mut [
            x.into(),
            cosine.into(),
            sine.into(),
            positions.into(),
            (&mut y).into(),
            long(rows),
            int(heads)?,
            int(half)?,
            Argument::Word(table_rows as u32),
            Argument::Float(if backward { -1.0 } else { 1.0 }),
        ],
    )?;
    Ok(y)
}
