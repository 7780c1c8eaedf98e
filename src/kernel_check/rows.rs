//! Cases of the kernels that work on rows or entries: norms, rotary positions, SwiGLU.

use candle_core::{D, DType, Result, Tensor};

use super::Size;
use super::case::{Case, Differentiable, Work, indices, normal, rounding};
use crate::ops::cuda::{lock, norm, rotary, swiglu};

const EPSILON: f64 = 1e-5;

pub(super) fn cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let shapes: &[(usize, usize)] = match size {
        Size::Small => &[(1, 1), (0, 5), (5, 3), (67, 33), (130, 40), (3, 300)],
        Size::Large => &[(16_384, 576), (16_384, 4096)],
    };
    for &(rows, width) in shapes {
        cases.push(rms(rows, width, dtype)?);
        cases.push(layer(rows, width, dtype)?);
    }
    let shapes: &[[usize; 4]] = match size {
        Size::Small => &[[1, 1, 2, 1], [0, 2, 4, 3], [5, 3, 6, 9], [70, 2, 16, 40]],
        Size::Large => &[[16_384, 32, 128, 4096]],
    };
    for &shape in shapes {
        cases.push(turned(shape, dtype)?);
    }
    let counts: &[usize] = match size {
        Size::Small => &[0, 1, 255, 1000],
        Size::Large => &[16_384 * 4096],
    };
    for &count in counts {
        cases.push(gated(count, dtype)?);
    }
    Ok(cases)
}

/// Forward reads x and writes y; backward reads x and the gradient twice (for the rows, then for the parameters) and
/// writes one gradient. Parameters do not count.
fn norm_work(rows: usize, width: usize, dtype: DType) -> Work {
    Work { bytes: 7 * rows * width * dtype.size_in_bytes(), operations: 0 }
}

fn rms(rows: usize, width: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("rms_norm [{rows}, {width}]"),
        dtype,
        floats: vec![normal(&[rows, width], 1, dtype)?, normal(&[width], 2, dtype)?],
        integers: vec![],
        shape_of_result: vec![rows, width],
        reference: |floats: &[Tensor], _: &[Tensor]| {
            let mean = floats[0].sqr()?.mean_keepdim(D::Minus1)?;
            floats[0].broadcast_div(&(mean + EPSILON)?.sqrt()?)?.broadcast_mul(&floats[1])
        },
        kernel: |inputs: &[Tensor]| {
            let [x, weight, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (x, weight, gradient) = (x.view()?, weight.view()?, gradient.view()?);
            let y = norm::rms_norm_forward(&x, &weight, EPSILON)?;
            let (of_x, parameters) = norm::rms_norm_backward(&x, &weight, &gradient, EPSILON)?;
            Ok(vec![y.into_tensor(), of_x.into_tensor(), parameters.into_tensor().get(0)?])
        },
        bound: rounding(dtype),
        work: norm_work(rows, width, dtype),
    }
    .case()
}

fn layer(rows: usize, width: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("layer_norm [{rows}, {width}]"),
        dtype,
        floats: vec![
            normal(&[rows, width], 1, dtype)?,
            normal(&[width], 2, dtype)?,
            normal(&[width], 3, dtype)?,
        ],
        integers: vec![],
        shape_of_result: vec![rows, width],
        reference: |floats: &[Tensor], _: &[Tensor]| {
            let centred = floats[0].broadcast_sub(&floats[0].mean_keepdim(D::Minus1)?)?;
            let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
            let normed = centred.broadcast_div(&(variance + EPSILON)?.sqrt()?)?;
            normed.broadcast_mul(&floats[1])?.broadcast_add(&floats[2])
        },
        kernel: |inputs: &[Tensor]| {
            let [x, weight, bias, gradient] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]].map(lock);
            let (x, weight, bias, gradient) = (x.view()?, weight.view()?, bias.view()?, gradient.view()?);
            let y = norm::layer_norm_forward(&x, &weight, &bias, EPSILON)?;
            let (of_x, parameters) = norm::layer_norm_backward(&x, &weight, &gradient, EPSILON)?;
            let parameters = parameters.into_tensor();
            Ok(vec![y.into_tensor(), of_x.into_tensor(), parameters.get(0)?, parameters.get(1)?])
        },
        bound: rounding(dtype),
        work: norm_work(rows, width, dtype),
    }
    .case()
}

fn turned([rows, heads, width, positions]: [usize; 4], dtype: DType) -> Result<Case> {
    let angles = normal(&[positions, width / 2], 4, DType::F32)?;
    let (cosine, sine) = (angles.cos()?, angles.sin()?);
    Differentiable {
        name: format!("rotary [{rows}, {heads}, {width}]"),
        dtype,
        floats: vec![normal(&[rows, heads, width], 1, dtype)?],
        integers: vec![indices(&[rows], positions, 5)?, cosine, sine],
        shape_of_result: vec![rows, heads, width],
        reference: |floats: &[Tensor], tables: &[Tensor]| {
            let half = floats[0].dim(2)? / 2;
            let of_rows =
                |table: &Tensor| table.to_dtype(DType::F64)?.index_select(&tables[0], 0)?.unsqueeze(1);
            let (cosine, sine) = (of_rows(&tables[1])?, of_rows(&tables[2])?);
            let (a, b) = (floats[0].narrow(2, 0, half)?, floats[0].narrow(2, half, half)?);
            let first = (a.broadcast_mul(&cosine)? - b.broadcast_mul(&sine)?)?;
            let second = (b.broadcast_mul(&cosine)? + a.broadcast_mul(&sine)?)?;
            Tensor::cat(&[first, second], 2)
        },
        kernel: |inputs: &[Tensor]| {
            let [x, positions, cosine, sine, gradient] =
                [&inputs[0], &inputs[1], &inputs[2], &inputs[3], &inputs[4]].map(lock);
            let (x, gradient) = (x.view()?, gradient.view()?);
            let (positions, cosine, sine) = (positions.view()?, cosine.view()?, sine.view()?);
            let y = rotary::rotary(&x, &cosine, &sine, &positions, false)?;
            let of_x = rotary::rotary(&gradient, &cosine, &sine, &positions, true)?;
            Ok(vec![y.into_tensor(), of_x.into_tensor()])
        },
        bound: rounding(dtype),
        work: Work { bytes: 4 * rows * heads * width * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}

fn gated(count: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("swiglu [{count}]"),
        dtype,
        floats: vec![normal(&[count], 1, dtype)?, normal(&[count], 2, dtype)?],
        integers: vec![],
        shape_of_result: vec![count],
        reference: |floats: &[Tensor], _: &[Tensor]| {
            let logistic = (floats[0].neg()?.exp()? + 1.0)?.recip()?;
            (&floats[0] * logistic)? * &floats[1]
        },
        kernel: |inputs: &[Tensor]| {
            let [gate, up, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (gate, up, gradient) = (gate.view()?, up.view()?, gradient.view()?);
            let y = swiglu::forward(&gate, &up)?;
            let (of_gate, of_up) = swiglu::backward(&gate, &up, &gradient)?;
            Ok(vec![y.into_tensor(), of_gate.into_tensor(), of_up.into_tensor()])
        },
        bound: rounding(dtype),
        work: Work { bytes: 8 * count * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}
