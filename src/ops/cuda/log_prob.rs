//! Log-probability and entropy under a vocabulary, chunk by chunk; `kernels/log_prob.cu`. The products are candle's.
//!
//! In bf16 a product rounds the logits to bf16, as wherever a head is multiplied in bf16. Results are f32 in any case.

use candle_core::{DType, Result, Tensor};

use super::super::storage::refuse;
use super::launch::{Argument, Grid, LOG_PROB, int, launch, long, typed};
use super::view::{Array, View};

/// Entries of the vocabulary whose logits are there at a time. Fixed, since the order of a row's sum depends on it.
pub(crate) const CHUNK: usize = 4096;

/// x `[N, D]`, weight `[V, D]`, targets u32 `[N]`.
pub(crate) struct Inputs<'a> {
    pub(crate) x: View<'a>,
    pub(crate) weight: View<'a>,
    pub(crate) targets: View<'a>,
    pub(crate) temperature: f64,
}

/// A chunk of the vocabulary.
struct Chunk<'a> {
    weight: View<'a>,
    first: u32,
    width: usize,
}

impl<'a> Inputs<'a> {
    /// N, when everything fits.
    fn check(&self) -> Result<usize> {
        let ((rows, inputs), (vocabulary, width)) = (self.x.shape().dims2()?, self.weight.shape().dims2()?);
        let fits = inputs == width && self.targets.dims() == [rows] && vocabulary > 0;
        if !fits || self.targets.dtype() != DType::U32 || self.weight.dtype() != self.x.dtype() {
            let [x, weight, targets] = [&self.x, &self.weight, &self.targets].map(View::dims);
            return refuse("vocabulary_log_prob", format!("x {x:?}, weight {weight:?}, targets {targets:?}"));
        }
        Ok(rows)
    }

    fn chunks(&self) -> impl Iterator<Item = Result<Chunk<'a>>> {
        let vocabulary = self.weight.dims()[0];
        (0..vocabulary).step_by(CHUNK).map(move |first| {
            let width = CHUNK.min(vocabulary - first);
            Ok(Chunk { weight: self.weight.narrow(first, width)?, first: first as u32, width })
        })
    }

    /// `[N, width]`, before the temperature.
    fn logits(&self, chunk: &Chunk) -> Result<Array> {
        self.x.product(&chunk.weight.transposed()?)
    }

    fn inverse_temperature(&self) -> Argument<'static> {
        Argument::Float(self.temperature.recip() as f32)
    }
}

/// Log-probability and entropy, f32 `[N, 2]`, and what the backward pass needs beside the inputs, f32 `[N, 4]`.
pub(crate) fn forward(inputs: &Inputs) -> Result<(Array, Array)> {
    let rows = inputs.check()?;
    let (device, dtype) = (inputs.x.device(), inputs.x.dtype());
    let mut states = Array::new(&device, DType::F32, (rows, 4))?;
    launch(
        &device,
        LOG_PROB,
        "vocabulary_start",
        Grid::threads(rows),
        &mut [(&mut states).into(), long(rows)],
    )?;
    let kernel = typed("vocabulary_add", dtype)?;
    for chunk in inputs.chunks().take(if rows == 0 { 0 } else { usize::MAX }) {
        let chunk = chunk?;
        launch(
            &device,
            LOG_PROB,
            &kernel,
            Grid::blocks(rows, 1),
            &mut [
                (&inputs.logits(&chunk)?.view()).into(),
                (&inputs.targets).into(),
                (&mut states).into(),
                int(chunk.width)?,
                chunk.first.into(),
                inputs.inverse_temperature(),
            ],
        )?;
    }
    let mut result = Array::new(&device, DType::F32, (rows, 2))?;
    launch(
        &device,
        LOG_PROB,
        "vocabulary_finish",
        Grid::threads(rows),
        &mut [(&states.view()).into(), (&mut result).into(), long(rows)],
    )?;
    Ok((result, states))
}

/// Gradients of x and weight from that of the result, f32 `[N, 2]`, and the forward pass's states.
pub(crate) fn backward(inputs: &Inputs, states: &View, gradient: &View) -> Result<(Tensor, Tensor)> {
    let rows = inputs.check()?;
    let (device, dtype) = (inputs.x.device(), inputs.x.dtype());
    if gradient.dims() != [rows, 2] || gradient.dtype() != DType::F32 || states.dims() != [rows, 4] {
        return refuse("vocabulary_log_prob", format!("gradient {:?} of {rows} rows", gradient.dims()));
    }
    if rows == 0 {
        let weight = Tensor::zeros(inputs.weight.shape(), dtype, &device)?;
        return Ok((Tensor::zeros(inputs.x.shape(), dtype, &device)?, weight));
    }
    let kernel = typed("vocabulary_gradient", dtype)?;
    // The sum over chunks is kept in f32.
    let mut of_x = Tensor::zeros(inputs.x.shape(), DType::F32, &device)?;
    let mut of_weight = Vec::new();
    for chunk in inputs.chunks() {
        let chunk = chunk?;
        let mut logits = inputs.logits(&chunk)?;
        launch(
            &device,
            LOG_PROB,
            &kernel,
            Grid::blocks(rows, 1),
            &mut [
                (&mut logits).into(),
                (&inputs.targets).into(),
                states.into(),
                gradient.into(),
                int(chunk.width)?,
                chunk.first.into(),
                inputs.inverse_temperature(),
            ],
        )?;
        let logits = logits.view();
        of_x = (of_x + logits.product(&chunk.weight)?.into_tensor().to_dtype(DType::F32)?)?;
        of_weight.push(logits.transposed()?.product(&inputs.x)?.into_tensor());
    }
    Ok((of_x.to_dtype(dtype)?, Tensor::cat(&of_weight, 0)?))
}
