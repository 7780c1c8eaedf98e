//! Cases of the kernels that move rows by index: embeddings, pages, experts.

use candle_core::{DType, Result, Tensor};

use super::Size;
use super::case::{Case, Differentiable, Work, indices, normal, rounding};
use crate::ops::cuda::{Argument, embedding, experts, lock};
use crate::random::CounterRng;

pub(super) fn cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let shapes: &[[usize; 3]] = match size {
        Size::Small => &[[1, 1, 1], [5, 0, 3], [7, 50, 5], [300, 40, 130]],
        Size::Large => &[[49_152, 16_384, 576]],
    };
    for &[rows, places, width] in shapes {
        cases.push(embedded(rows, places, width, dtype)?);
    }
    let shapes: &[[usize; 4]] = match size {
        Size::Small => &[[1, 1, 1, 1], [0, 4, 2, 3], [9, 5, 2, 33], [20, 8, 4, 7]],
        Size::Large => &[[8192, 64, 8, 2048]],
    };
    for &shape in shapes {
        cases.push(combined(shape, dtype)?);
    }
    let shapes: &[(&[usize], [usize; 2])] = match size {
        Size::Small => &[(&[1], [1, 1]), (&[3, 0, 5], [7, 4])],
        Size::Large => &[(&[1024; 64], [2048, 768])],
    };
    for &(counts, sizes) in shapes {
        cases.push(grouped(counts, sizes, dtype)?);
    }
    if size == Size::Small {
        cases.push(scattered(dtype)?);
        cases.push(outside(dtype)?);
    }
    Ok(cases)
}

fn embedded(rows: usize, places: usize, width: usize, dtype: DType) -> Result<Case> {
    Differentiable {
        name: format!("embedding [{rows}, {width}] at {places}"),
        dtype,
        floats: vec![normal(&[rows, width], 1, dtype)?],
        integers: vec![indices(&[places], rows, 2)?],
        shape_of_result: vec![places, width],
        reference: |floats: &[Tensor], ids: &[Tensor]| floats[0].index_select(&ids[0], 0),
        kernel: |inputs: &[Tensor]| {
            let [table, ids, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (table, ids, gradient) = (table.view()?, ids.view()?, gradient.view()?);
            let y = embedding::gather(&table, &ids)?;
            let of_table = embedding::gather_backward(&ids, &gradient, table.dims()[0])?;
            Ok(vec![y.into_tensor(), of_table.into_tensor()])
        },
        bound: rounding(dtype),
        work: Work { bytes: (3 * places + rows) * width * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}

/// An index outside the table gives a row of NaN, and adds nothing to the gradient.
fn outside(dtype: DType) -> Result<Case> {
    let table = normal(&[3, 2], 1, dtype)?;
    let ids = Tensor::new(&[2_u32, 3, u32::MAX], &candle_core::Device::Cpu)?;
    let gradient = normal(&[3, 2], 2, dtype)?;
    let (rows, of_rows) = (table.to_dtype(DType::F64)?, gradient.to_dtype(DType::F64)?);
    Ok(Case {
        name: format!("embedding outside {dtype:?}"),
        inputs: vec![table, ids, gradient],
        kernel: Box::new(|inputs| {
            let [table, ids, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (table, ids, gradient) = (table.view()?, ids.view()?, gradient.view()?);
            let y = embedding::gather(&table, &ids)?;
            let of_table = embedding::gather_backward(&ids, &gradient, 3)?;
            Ok(vec![y.into_tensor(), of_table.into_tensor()])
        }),
        expected: Box::new(move || {
            let nan = Tensor::full(f64::NAN, (2, 2), rows.device())?;
            let zero = rows.narrow(0, 0, 2)?.zeros_like()?;
            Ok(vec![
                Tensor::cat(&[&rows.narrow(0, 2, 1)?, &nan], 0)?,
                Tensor::cat(&[&zero, &of_rows.narrow(0, 0, 1)?], 0)?,
            ])
        }),
        bound: 0.0,
        work: Work::default(),
    })
}

/// Rows to places that are distinct, one of them outside: exactly the other places are written.
fn scattered(dtype: DType) -> Result<Case> {
    let x = normal(&[4, 37], 1, dtype)?;
    let places = Tensor::new(&[3_u32, 9, 0, 2], x.device())?;
    let before = normal(&[5, 37], 2, dtype)?;
    let [rows, kept] = [&x, &before].map(|tensor| tensor.to_dtype(DType::F64));
    let (rows, kept) = (rows?, kept?);
    Ok(Case {
        name: format!("scatter {dtype:?}"),
        inputs: vec![x, places, before],
        kernel: Box::new(|inputs| {
            let mut out = crate::ops::cuda::Array::copy_of(&inputs[2])?;
            let [x, places] = [&inputs[0], &inputs[1]].map(lock);
            embedding::scatter(&x.view()?, &places.view()?, Argument::Write(&mut out), 5)?;
            Ok(vec![out.into_tensor()])
        }),
        expected: Box::new(move || {
            let row = |tensor: &Tensor, row: usize| tensor.narrow(0, row, 1);
            Ok(vec![Tensor::cat(
                &[row(&rows, 2)?, row(&kept, 1)?, row(&rows, 3)?, row(&rows, 0)?, row(&kept, 4)?],
                0,
            )?])
        }),
        bound: 0.0,
        work: Work::default(),
    })
}

/// The products of experts that have so many rows each.
fn grouped(counts: &[usize], [inputs, outputs]: [usize; 2], dtype: DType) -> Result<Case> {
    let mut next = 0;
    let mut ranges = Vec::new();
    for count in counts {
        ranges.push(next..next + count);
        next += count;
    }
    let (rows, of_reference) = (next, ranges.clone());
    let size = dtype.size_in_bytes();
    Differentiable {
        name: format!("expert_linear of {rows} rows, {} experts [{outputs}, {inputs}]", counts.len()),
        dtype,
        floats: vec![normal(&[rows, inputs], 1, dtype)?, normal(&[counts.len(), outputs, inputs], 2, dtype)?],
        integers: vec![],
        shape_of_result: vec![rows, outputs],
        reference: move |floats: &[Tensor], _: &[Tensor]| {
            let mut parts = Vec::new();
            for (expert, range) in of_reference.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
                let x = floats[0].narrow(0, range.start, range.len())?;
                parts.push(x.matmul(&floats[1].get(expert)?.t()?)?);
            }
            Tensor::cat(&parts, 0)
        },
        kernel: move |inputs: &[Tensor]| {
            let [x, weight, gradient] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let (x, weight, gradient) = (x.view()?, weight.view()?, gradient.view()?);
            let y = experts::linear(&x, &weight, &ranges)?;
            let of_x = experts::linear_backward_x(&x, &weight, &gradient, &ranges)?;
            let of_weight = experts::linear_backward_weight(&x, &weight, &gradient, &ranges)?;
            Ok(vec![y.into_tensor(), of_x.into_tensor(), of_weight.into_tensor()])
        },
        bound: 2.0 * rounding(dtype),
        work: Work {
            bytes: (rows * (inputs + outputs) * 2 + 3 * counts.len() * inputs * outputs) * size,
            operations: 6 * rows * inputs * outputs,
        },
    }
    .case()
}

/// Where each row's copies lie in order of expert id, and which choice of the row each is, `[N, k]` each.
fn routes(rows: usize, experts: usize, choices: usize) -> Result<[Tensor; 2]> {
    let mut rng = CounterRng::new(3);
    let mut chosen = Vec::new();
    for _ in 0..rows {
        let mut left: Vec<usize> = (0..experts).collect();
        chosen.push((0..choices).map(|_| left.remove(rng.below(left.len()))).collect::<Vec<_>>());
    }
    let mut copies: Vec<(usize, usize, usize)> = Vec::new();
    for (row, ids) in chosen.iter().enumerate() {
        copies.extend(ids.iter().enumerate().map(|(slot, &expert)| (expert, row, slot)));
    }
    copies.sort_unstable();
    let (mut places, mut slots) = (vec![Vec::new(); rows], vec![Vec::new(); rows]);
    for (place, &(_, row, slot)) in copies.iter().enumerate() {
        places[row].push(place as u32);
        slots[row].push(slot as u32);
    }
    let table =
        |table: Vec<Vec<u32>>| Tensor::from_vec(table.concat(), (rows, choices), &candle_core::Device::Cpu);
    Ok([table(places)?, table(slots)?])
}

fn combined([rows, expert_count, choices, width]: [usize; 4], dtype: DType) -> Result<Case> {
    let [places, slots] = routes(rows, expert_count, choices)?;
    Differentiable {
        name: format!("combine [{rows}, {choices}] of {width}"),
        dtype,
        floats: vec![normal(&[rows * choices, width], 1, dtype)?, normal(&[rows, choices], 2, dtype)?],
        integers: vec![places, slots],
        shape_of_result: vec![rows, width],
        reference: |floats: &[Tensor], routes: &[Tensor]| {
            let (rows, choices) = routes[0].dims2()?;
            let copies = floats[0].index_select(&routes[0].flatten_all()?, 0)?;
            let copies = copies.reshape((rows, choices, floats[0].dim(1)?))?;
            copies.broadcast_mul(&floats[1].gather(&routes[1], 1)?.unsqueeze(2)?)?.sum(1)
        },
        kernel: |inputs: &[Tensor]| {
            let [values, weights, places, slots, gradient] =
                [&inputs[0], &inputs[1], &inputs[2], &inputs[3], &inputs[4]].map(lock);
            let (values, weights, gradient) = (values.view()?, weights.view()?, gradient.view()?);
            let (places, slots) = (places.view()?, slots.view()?);
            let y = experts::combine(&values, Some(&weights), &places, &slots)?;
            let (of_values, of_weights) =
                experts::combine_backward(&values, &weights, &places, &slots, &gradient)?;
            Ok(vec![y.into_tensor(), of_values.into_tensor(), of_weights.into_tensor()])
        },
        bound: 2.0 * rounding(dtype),
        work: Work { bytes: (3 * choices + 2) * rows * width * dtype.size_in_bytes(), operations: 0 },
    }
    .case()
}
