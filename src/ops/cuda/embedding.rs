//! Rows by index, and the gradient of the table they come from; `kernels/embedding.cu`.

use candle_core::{DType, Result, Shape};

use super::super::storage::refuse;
use super::launch::{Argument, EMBEDDING, Grid, int, launch, long, typed};
use super::view::{Array, View};

/// Row `ids[i]` of `table` `[V, D]` for each index, `[.., D]`.
pub(crate) fn gather(table: &View, ids: &View) -> Result<Array> {
    let (rows, width) = table.shape().dims2()?;
    if ids.dtype() != DType::U32 {
        return refuse("gather", format!("indices must be u32, not {:?}", ids.dtype()));
    }
    let mut shape = ids.dims().to_vec();
    shape.push(width);
    let mut y = Array::new(&table.device(), table.dtype(), shape)?;
    launch(
        &table.device(),
        EMBEDDING,
        &typed("gather_rows", table.dtype())?,
        Grid::threads(ids.count() * width),
        &mut [
            table.into(),
            ids.into(),
            (&mut y).into(),
            long(ids.count()),
            int(width)?,
            Argument::Word(rows as u32),
        ],
    )?;
    Ok(y)
}

/// Writes row n of `x` `[N, D]` to row `places[n]` of `out` `[R, D]`; the places must be distinct.
pub(crate) fn scatter<'a>(x: &View<'a>, places: &View<'a>, out: Argument<'a>, rows: usize) -> Result<()> {
    let (count, width) = x.shape().dims2()?;
    if places.dims() != [count] || places.dtype() != DType::U32 {
        return refuse("scatter", format!("places {:?} for rows {:?}", places.dims(), x.dims()));
    }
    launch(
        &x.device(),
        EMBEDDING,
        &typed("scatter_rows", x.dtype())?,
        Grid::threads(count * width),
        &mut [x.into(), places.into(), out, long(count), int(width)?, long(rows)],
    )
}

/// The gradient of the table `[rows, D]` from the gradient `[.., D]` of what [`gather`] gave: each row's parts are
/// summed in order of place.
pub(crate) fn gather_backward(ids: &View, gradient: &View, rows: usize) -> Result<Array> {
    let (places, width) = gradient.rows_and_width()?;
    if ids.count() != places || ids.dtype() != DType::U32 {
        return refuse("gather", format!("indices {:?}, gradient {:?}", ids.dims(), gradient.dims()));
    }
    let device = gradient.device();
    // Integers; the type only has the right size.
    let mut first = Array::new(&device, DType::U32, rows)?;
    let mut next = Array::new(&device, DType::U32, places)?;
    launch(
        &device,
        EMBEDDING,
        "embedding_clear",
        Grid::threads(rows),
        &mut [(&mut first).into(), int(rows)?],
    )?;
    let table_rows = Argument::Word(rows as u32);
    launch(
        &device,
        EMBEDDING,
        "embedding_first",
        Grid::threads(places),
        &mut [ids.into(), (&mut first).into(), int(places)?, table_rows],
    )?;
    launch(
        &device,
        EMBEDDING,
        "embedding_next",
        Grid::threads(places),
        &mut [ids.into(), (&mut next).into(), int(places)?],
    )?;
    let mut table = Array::new(&device, gradient.dtype(), Shape::from((rows, width)))?;
    launch(
        &device,
        EMBEDDING,
        &typed("embedding_backward", gradient.dtype())?,
        Grid::blocks(rows, 1),
        &mut [
            gradient.into(),
            (&first.view()).into(),
            (&next.view()).into(),
            (&mut table).into(),
            int(width)?,
        ],
    )?;
    Ok(table)
}
