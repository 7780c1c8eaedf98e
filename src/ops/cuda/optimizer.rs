//! Updates of parameters in place, and the sum of squares of a gradient; `kernels/optimizer.cu`.
//!
//! Parameters and moments are f32; a gradient may be bf16. The factors are those of `crate::learner`'s rules, computed
//! there in f64.

use candle_core::{DType, Device, Result};

use super::launch::{Argument, Grid, OPTIMIZER, int, launch, long, typed};
use super::view::{Array, View};

/// Entries that one block sums; `kernels/optimizer.cu` has the same.
const ENTRIES_IN_PART: usize = 16_384;

/// What an AdamW update multiplies with: `m ← keep_first m + take_first g`, `s ← keep_second s + take_second (scale g)²`,
/// `p ← keep p - rate m / (√s root_correction + epsilon)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamwFactors {
    pub(crate) keep_first: f32,
    pub(crate) take_first: f32,
    pub(crate) keep_second: f32,
    pub(crate) take_second: f32,
    pub(crate) scale: f32,
    pub(crate) keep: f32,
    pub(crate) rate: f32,
    pub(crate) root_correction: f32,
    pub(crate) epsilon: f32,
}

/// `places`: parameter, first moment, second moment, and the bf16 copy of the parameter or nothing; all as long as the
/// gradient.
pub(crate) fn adamw(places: [Argument; 4], gradient: &View, factors: AdamwFactors) -> Result<()> {
    let AdamwFactors {
        keep_first,
        take_first,
        keep_second,
        take_second,
        scale,
        keep,
        rate,
        root_correction,
        epsilon,
    } = factors;
    let [parameter, first, second, copy] = places;
    let mut arguments = vec![parameter, first, second, gradient.into(), copy, long(gradient.count())];
    arguments.extend(
        [keep_first, take_first, keep_second, take_second, scale, keep, rate, root_correction, epsilon]
            .map(Argument::Float),
    );
    let kernel = typed("adamw_update", gradient.dtype())?;
    launch(&gradient.device(), OPTIMIZER, &kernel, Grid::threads(gradient.count()), &mut arguments)
}

/// What an RMSProp update multiplies with: `s ← keep s + take (scale g)²`, `p ← p - rate g / (√(s + inside) + outside)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RmspropFactors {
    pub(crate) keep: f32,
    pub(crate) take: f32,
    pub(crate) scale: f32,
    pub(crate) rate: f32,
    pub(crate) inside: f32,
    pub(crate) outside: f32,
}

/// `places`: parameter, second moment, and the bf16 copy of the parameter or nothing.
pub(crate) fn rmsprop(places: [Argument; 3], gradient: &View, factors: RmspropFactors) -> Result<()> {
    let RmspropFactors { keep, take, scale, rate, inside, outside } = factors;
    let [parameter, second, copy] = places;
    let mut arguments = vec![parameter, second, gradient.into(), copy, long(gradient.count())];
    arguments.extend([keep, take, scale, rate, inside, outside].map(Argument::Float));
    let kernel = typed("rmsprop_update", gradient.dtype())?;
    launch(&gradient.device(), OPTIMIZER, &kernel, Grid::threads(gradient.count()), &mut arguments)
}

/// The sum of squares as one f64, `[1]`, in an order that depends on the length alone.
pub(crate) fn sum_of_squares(values: &View) -> Result<Array> {
    let (device, count) = (values.device(), values.count());
    let parts = count.div_ceil(ENTRIES_IN_PART);
    let mut sums = Array::new(&device, DType::F64, parts)?;
    let kernel = typed("square_parts", values.dtype())?;
    launch(
        &device,
        OPTIMIZER,
        &kernel,
        Grid::blocks(parts, 1),
        &mut [values.into(), (&mut sums).into(), long(count)],
    )?;
    sum_of_parts(&device, &sums, parts)
}

fn sum_of_parts(device: &Device, sums: &Array, parts: usize) -> Result<Array> {
    let mut total = Array::new(device, DType::F64, 1)?;
    launch(
        device,
        OPTIMIZER,
        "sum_square_parts",
        Grid::blocks(1, 1),
        &mut [(&sums.view()).into(), (&mut total).into(), int(parts)?],
    )?;
    Ok(total)
}
