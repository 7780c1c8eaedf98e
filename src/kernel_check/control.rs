//! Cases of the kernels for control policies: distributions over actions, masks, the LSTM cell.

use candle_core::{DType, Result, Tensor};

use super::Size;
use super::case::{Case, Differentiable, Work, indices, normal, rounding};
use crate::ops::cuda::{categorical, gaussian, lock, lstm};
use crate::ops::{self, MASKED};

pub(super) fn cases(size: Size) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        let shapes: &[(usize, usize)] = match size {
            Size::Small => &[(1, 1), (0, 3), (9, 2), (17, 18), (3, 100)],
            Size::Large => &[(65_536, 18)],
        };
        for &(rows, width) in shapes {
            cases.push(discrete(rows, width, dtype)?);
            cases.push(continuous(rows, width, dtype)?);
            cases.push(masked(rows, width, dtype)?);
        }
        let shapes: &[(usize, usize)] = match size {
            Size::Small => &[(1, 1), (0, 2), (5, 7), (9, 64)],
            Size::Large => &[(4096, 256)],
        };
        for &(rows, hidden) in shapes {
            cases.push(cell(rows, hidden, dtype)?);
        }
    }
    Ok(cases)
}

fn discrete(rows: usize, choices: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("categorical [{rows}, {choices}]"),
        dtype,
        floats: vec![(normal(&[rows, choices], 1, dtype)? * 3.0)?],
        integers: vec![indices(&[rows], choices, 2)?],
        shape_of_result: vec![rows, 2],
        reference: |floats: &[Tensor], actions: &[Tensor]| ops::categorical(&floats[0], &actions[0]),
        kernel: |inputs: &[Tensor]| {
            let [logits, actions, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (logits, actions, gradient) = (logits.view()?, actions.view()?, gradient.view()?);
            let result = categorical::forward(&logits, &actions)?;
            let of_logits = categorical::backward(&logits, &actions, &gradient)?;
            Ok(vec![result.into_tensor(), of_logits.into_tensor()])
        },
        bound: rounding(dtype),
        work: Work { bytes: 3 * rows * choices * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}

fn masked(rows: usize, choices: usize, dtype: DType) -> Result<Case> {
    let mask = indices(&[rows, choices], 2, 3)?.to_dtype(DType::U8)?;
    let masked_as_stored =
        Tensor::new(MASKED, &candle_core::Device::Cpu)?.to_dtype(dtype)?.to_dtype(DType::F64)?;
    Differentiable {
        name: format!("mask_logits [{rows}, {choices}]"),
        dtype,
        floats: vec![normal(&[rows, choices], 1, dtype)?],
        integers: vec![mask],
        shape_of_result: vec![rows, choices],
        reference: move |floats: &[Tensor], mask: &[Tensor]| {
            mask[0].where_cond(&floats[0], &masked_as_stored.broadcast_as(floats[0].shape())?)
        },
        kernel: |inputs: &[Tensor]| {
            let [logits, mask, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let mask = mask.view()?;
            let result = categorical::mask(&logits.view()?, &mask, MASKED)?;
            let of_logits = categorical::mask(&gradient.view()?, &mask, 0.0)?;
            Ok(vec![result.into_tensor(), of_logits.into_tensor()])
        },
        bound: 0.0,
        work: Work { bytes: rows * choices * (4 * dtype.size_in_bytes() + 2), operations: 0 },
    }
    .case()
}

fn continuous(rows: usize, width: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("squashed_gaussian [{rows}, {width}]"),
        dtype,
        floats: vec![
            normal(&[rows, width], 1, dtype)?,
            (normal(&[rows, width], 2, dtype)? * 0.5)?,
            normal(&[rows, width], 3, dtype)?,
        ],
        integers: vec![],
        shape_of_result: vec![rows, 2],
        reference: |floats: &[Tensor], _: &[Tensor]| {
            ops::squashed_gaussian(&floats[0], &floats[1], &floats[2])
        },
        kernel: |inputs: &[Tensor]| {
            let [mean, log_std, before, gradient] =
                [&inputs[0], &inputs[1], &inputs[2], &inputs[3]].map(lock);
            let (mean, log_std) = (mean.view()?, log_std.view()?);
            let (before, gradient) = (before.view()?, gradient.view()?);
            let result = gaussian::forward(&mean, &log_std, &before)?;
            let gradients = gaussian::backward(&mean, &log_std, &before, &gradient)?;
            let mut results = vec![result.into_tensor()];
            results.extend(gradients.map(crate::ops::cuda::Array::into_tensor));
            Ok(results)
        },
        bound: rounding(dtype),
        work: Work { bytes: 9 * rows * width * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}

fn cell(rows: usize, hidden: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("lstm_cell [{rows}, {hidden}]"),
        dtype,
        floats: vec![normal(&[rows, 4 * hidden], 1, dtype)?, normal(&[rows, 2 * hidden], 2, dtype)?],
        integers: vec![],
        shape_of_result: vec![rows, 2 * hidden],
        reference: |floats: &[Tensor], _: &[Tensor]| ops::lstm_cell(&floats[0], &floats[1]),
        kernel: |inputs: &[Tensor]| {
            let [gates, state, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (gates, state, gradient) = (gates.view()?, state.view()?, gradient.view()?);
            let next = lstm::cell_forward(&gates, &state)?.into_tensor();
            let (of_gates, of_state) = lstm::cell_backward(&gates, &state, &lock(&next).view()?, &gradient)?;
            Ok(vec![next, of_gates.into_tensor(), of_state.into_tensor()])
        },
        bound: rounding(dtype),
        work: Work { bytes: rows * hidden * 21 * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}
