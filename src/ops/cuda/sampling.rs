//! Drawing tokens; `kernels/sampling.cu`.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{Argument, Grid, SAMPLING, int, launch, typed};
use super::view::{Array, View};

/// The token of a draw that was impossible: a NaN among the logits, or none above minus infinity.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// How tokens are drawn. No `top_k` and a `top_p` of 1 take every token as a candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) temperature: f32,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: f32,
    /// Of the Philox generator; each row has its own counters.
    pub(crate) key: [u32; 2],
}

/// One token from each row of `logits` `[N, V]`, with the Philox block of each row's `counters` (u32 `[N, 4]`): tokens
/// u32, log-probabilities f32 and sizes of the candidate sets u32, `[N]` each.
pub(crate) fn sample(logits: &View, counters: &View, draw: Draw) -> Result<[Array; 3]> {
    let (rows, vocabulary) = logits.shape().dims2()?;
    if counters.dims() != [rows, 4] || counters.dtype() != DType::U32 || vocabulary == 0 {
        return refuse("sample", format!("logits {:?}, counters {:?}", logits.dims(), counters.dims()));
    }
    let device = logits.device();
    let mut tokens = Array::new(&device, DType::U32, rows)?;
    let mut log_probs = Array::new(&device, DType::F32, rows)?;
    let mut candidates = Array::new(&device, DType::U32, rows)?;
    launch(
        &device,
        SAMPLING,
        &typed("sample_tokens", logits.dtype())?,
        Grid::blocks(rows, 1),
        &mut [
            logits.into(),
            counters.into(),
            (&mut tokens).into(),
            (&mut log_probs).into(),
            (&mut candidates).into(),
            int(vocabulary)?,
            Argument::Float(draw.temperature),
            int(draw.top_k.unwrap_or(0))?,
            Argument::Float(draw.top_p),
            Argument::Word(draw.key[0]),
            Argument::Word(draw.key[1]),
        ],
    )?;
    Ok([tokens, log_probs, candidates])
}
