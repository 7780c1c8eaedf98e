//! Cases of the vocabulary head.

use candle_core::{DType, Result, Tensor};

use super::Size;
use super::case::{Case, Differentiable, Work, indices, normal, rounding};
use crate::ops;
use crate::ops::cuda::lock;
use crate::ops::cuda::log_prob::{CHUNK, Inputs, backward, forward};

const TEMPERATURE: f64 = 0.7;

pub(super) fn cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let shapes: &[[usize; 3]] = match size {
        Size::Small => &[[1, 1, 1], [0, 3, 2], [5, 7, 300], [3, 2, 2 * CHUNK + 5]],
        Size::Large => &[[4096, 576, 49_152]],
    };
    shapes.iter().map(|&shape| head(shape, dtype)).collect()
}

fn head([rows, inputs, vocabulary]: [usize; 3], dtype: DType) -> Result<Case> {
    let size = dtype.size_in_bytes();
    Differentiable {
        name: format!("vocabulary_log_prob [{rows}, {inputs}] of {vocabulary}"),
        dtype,
        floats: vec![normal(&[rows, inputs], 1, dtype)?, normal(&[vocabulary, inputs], 2, dtype)?],
        integers: vec![indices(&[rows], vocabulary, 3)?],
        shape_of_result: vec![rows, 2],
        reference: |floats: &[Tensor], targets: &[Tensor]| {
            let logits = (floats[0].matmul(&floats[1].t()?)? / TEMPERATURE)?;
            ops::categorical(&logits, &targets[0])
        },
        kernel: |inputs: &[Tensor]| {
            // What comes out is f32, and so is its gradient.
            let gradient = inputs[3].to_dtype(DType::F32)?.contiguous()?;
            let [x, weight, targets, gradient] = [&inputs[0], &inputs[1], &inputs[2], &gradient].map(lock);
            let inputs = Inputs {
                x: x.view()?,
                weight: weight.view()?,
                targets: targets.view()?,
                temperature: TEMPERATURE,
            };
            let (result, states) = forward(&inputs)?;
            let states = states.into_tensor();
            let (of_x, of_weight) = backward(&inputs, &lock(&states).view()?, &gradient.view()?)?;
            Ok(vec![result.into_tensor(), of_x, of_weight])
        },
        bound: if dtype == DType::F32 { 1e-5 } else { 5.0 * rounding(dtype) },
        work: Work {
            bytes: (rows * inputs * 3 + vocabulary * inputs * 3) * size,
            operations: 8 * rows * inputs * vocabulary,
        },
    }
    .case()
}
