//! Cases of attention: packed sequences with and without a shared prefix, and the same out of pages.

use std::ops::Range;

use candle_core::{D, DType, Device, Result, Tensor};

use super::Size;
use super::case::{Case, Differentiable, Work, normal, rounding, values};
use crate::ops::cuda::attention::{PagedPlan, Plan, Request, Saved, backward, forward, paged};
use crate::ops::cuda::{Argument, Array, embedding, lock};

/// Rows of a prefix, and rows of its own.
type Sequence = (Range<usize>, Range<usize>);

/// Heads, KV heads, columns of a head.
#[derive(Debug, Clone, Copy)]
struct Heads(usize, usize, usize);

impl Heads {
    fn scale(self) -> f64 {
        (self.2 as f64).sqrt().recip()
    }
}

/// Sequences one after another, without prefixes.
fn packed(lengths: &[usize]) -> Vec<Sequence> {
    let mut start = 0;
    lengths
        .iter()
        .map(|length| {
            start += length;
            (0..0, start - length..start)
        })
        .collect()
}

/// A prompt, and answers that continue it.
fn shared(prompt: usize, answers: &[usize]) -> Vec<Sequence> {
    let mut sequences = packed(&[&[prompt], answers].concat());
    for (prefix, _) in &mut sequences[1..] {
        *prefix = 0..prompt;
    }
    sequences
}

fn rows(sequences: &[Sequence]) -> usize {
    sequences.iter().map(|(_, own)| own.len()).sum()
}

pub(super) fn cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    match size {
        Size::Small => {
            for (heads, sequences) in [
                (Heads(1, 1, 1), packed(&[1])),
                (Heads(3, 1, 7), packed(&[5, 1, 70, 33])),
                (Heads(4, 2, 64), shared(40, &[3, 35, 1])),
                (Heads(2, 2, 100), shared(32, &[32, 10])),
                (Heads(2, 1, 256), packed(&[35, 2])),
                // Prefixes that are a part of a sequence, and parts of two.
                (Heads(2, 1, 16), vec![(0..0, 0..40), (5..30, 40..50), (33..47, 50..60)]),
                (Heads(2, 1, 8), packed(&[])),
            ] {
                cases.push(training(heads, &sequences, dtype)?);
                if !sequences.is_empty() {
                    cases.push(generation(heads, &sequences, dtype)?);
                }
            }
        }
        Size::Large => {
            cases.push(training(Heads(9, 3, 64), &packed(&[1024; 16]), dtype)?);
            cases.push(training(Heads(32, 8, 128), &packed(&[2048; 4]), dtype)?);
            cases.push(training(Heads(32, 8, 128), &shared(1024, &[512; 16]), dtype)?);
            cases.push(decoding(Heads(32, 8, 128), 64, 2048, dtype)?);
        }
    }
    Ok(cases)
}

/// Attention by whole matrices, one sequence after another.
fn reference(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    sequences: &[Sequence],
    Heads(heads, kv_heads, width): Heads,
) -> Result<Tensor> {
    let mut results = vec![q.narrow(0, 0, 0)?];
    for (prefix, own) in sequences {
        let keys: Vec<u32> = prefix.clone().chain(own.clone()).map(|row| row as u32).collect();
        let (seen, queries) = (keys.len(), own.len());
        let keys = Tensor::new(keys, &Device::Cpu)?;
        // [heads, rows, columns]
        let spread = |values: &Tensor| {
            let values = values.index_select(&keys, 0)?.unsqueeze(2)?;
            let values = values.broadcast_as((seen, kv_heads, heads / kv_heads, width))?;
            values.reshape((seen, heads, width))?.transpose(0, 1)?.contiguous()
        };
        let queries_first = q.narrow(0, own.start, queries)?.transpose(0, 1)?.contiguous()?;
        let scores = queries_first.matmul(&spread(k)?.transpose(1, 2)?.contiguous()?)?;
        let hidden: Vec<f64> = (0..queries * seen)
            .map(|at| if at % seen > prefix.len() + at / seen { -1e30 } else { 0.0 })
            .collect();
        let hidden = Tensor::from_vec(hidden, (1, queries, seen), &Device::Cpu)?;
        let scores = (scores * Heads(heads, kv_heads, width).scale())?.broadcast_add(&hidden)?;
        let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        results.push(weights.matmul(&spread(v)?)?.transpose(0, 1)?);
    }
    Tensor::cat(&results, 0)
}

/// Pairs of a query under a head and a key.
fn pairs(heads: Heads, sequences: &[Sequence]) -> usize {
    let of = |(prefix, own): &Sequence| own.len() * prefix.len() + own.len() * (own.len() + 1) / 2;
    heads.0 * sequences.iter().map(of).sum::<usize>()
}

fn inputs(heads: Heads, count: usize, dtype: DType) -> Result<Vec<Tensor>> {
    let Heads(heads, kv_heads, width) = heads;
    [heads, kv_heads, kv_heads]
        .into_iter()
        .enumerate()
        .map(|(seed, heads)| normal(&[count, heads, width], seed as u64 + 1, dtype))
        .collect()
}

fn training(heads: Heads, sequences: &[Sequence], dtype: DType) -> Result<Case> {
    let (count, size) = (rows(sequences), dtype.size_in_bytes());
    let (of_reference, of_kernel) = (sequences.to_vec(), sequences.to_vec());
    let shared = sequences.iter().any(|(prefix, _)| !prefix.is_empty());
    Differentiable {
        name: format!("attention {heads:?} of {count} rows{}", if shared { ", shared prefix" } else { "" }),
        dtype,
        floats: inputs(heads, count, dtype)?,
        integers: vec![],
        shape_of_result: vec![count, heads.0, heads.2],
        reference: move |floats: &[Tensor], _: &[Tensor]| {
            reference(&floats[0], &floats[1], &floats[2], &of_reference, heads)
        },
        kernel: move |inputs: &[Tensor]| {
            let plan = Plan::new(&of_kernel, heads.0 / heads.1, inputs[0].device())?;
            let [q, k, v, gradient] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]].map(lock);
            let (q, k, v, gradient) = (q.view()?, k.view()?, v.view()?, gradient.view()?);
            let (out, log_sums) = forward(&q, &k, &v, &plan, heads.scale())?;
            let (out, log_sums) = (out.into_tensor(), log_sums.into_tensor());
            let locked = (lock(&out), lock(&log_sums));
            let saved = Saved { out: locked.0.view()?, log_sums: locked.1.view()? };
            let gradients = backward(&q, &k, &v, &saved, &gradient, &plan, heads.scale())?;
            drop(saved);
            drop(locked);
            Ok([vec![out], gradients.map(Array::into_tensor).into()].concat())
        },
        bound: 2.0 * rounding(dtype),
        work: Work {
            bytes: count * (6 * heads.0 + 8 * heads.1) * heads.2 * size,
            // Two products forward, five backward; the kernels here compute seven backward.
            operations: 14 * pairs(heads, sequences) * heads.2,
        },
    }
    .case()
}

const PAGE_ROWS: usize = 16;

/// The pages of sequences of given lengths: page numbers run backwards, so that none stands where its rows stood.
fn page_lists(lengths: &[usize]) -> (Vec<Vec<u32>>, usize) {
    let counts = lengths.iter().map(|length| length.div_ceil(PAGE_ROWS));
    let total: usize = counts.clone().sum();
    let mut next = total as u32;
    let lists = counts
        .map(|count| {
            (0..count)
                .map(|_| {
                    next -= 1;
                    next
                })
                .collect()
        })
        .collect();
    (lists, total)
}

/// The rows of packed sequences come out of pages, part by part, with the bits of the packed forward pass.
fn generation(heads: Heads, sequences: &[Sequence], dtype: DType) -> Result<Case> {
    let count = rows(sequences);
    let floats = inputs(heads, count, dtype)?;
    let (of_kernel, of_expected) = (sequences.to_vec(), sequences.to_vec());
    let given = floats.clone();
    Ok(Case {
        name: format!("paged attention {heads:?} of {count} rows {dtype:?}"),
        inputs: floats,
        kernel: Box::new(move |inputs| {
            let lengths: Vec<usize> =
                of_kernel.iter().map(|(prefix, own)| prefix.len() + own.len()).collect();
            let (pages, total) = page_lists(&lengths);
            let device = inputs[0].device();
            let mut caches = Vec::new();
            for values in &inputs[1..3] {
                // What no row was written to is NaN and must not matter.
                let empty = (total * PAGE_ROWS, heads.1 * heads.2);
                let empty = Tensor::full(f32::NAN, empty, device)?.to_dtype(values.dtype())?.contiguous()?;
                let mut cache = Array::copy_of(&empty)?;
                for ((prefix, own), pages) in of_kernel.iter().zip(&pages) {
                    let positions = 0..prefix.len() + own.len();
                    let places: Vec<u32> = positions
                        .map(|at| pages[at / PAGE_ROWS] * PAGE_ROWS as u32 + (at % PAGE_ROWS) as u32)
                        .collect();
                    let places = Tensor::new(places, device)?;
                    let flat = values.flatten(1, 2)?;
                    let own_rows = flat.narrow(0, own.start, own.len())?;
                    let rows = Tensor::cat(&[&flat.narrow(0, prefix.start, prefix.len())?, &own_rows], 0)?;
                    let (rows, places) = (lock(&rows), lock(&places));
                    let whole = total * PAGE_ROWS;
                    embedding::scatter(&rows.view()?, &places.view()?, Argument::Write(&mut cache), whole)?;
                }
                caches.push(cache.into_tensor().reshape((total, PAGE_ROWS, heads.1, heads.2))?);
            }
            // The first rows of each sequence at once, then one by one; later parts see a cache that is already full.
            let (mut first, mut one_by_one) = (Vec::new(), Vec::new());
            for ((prefix, own), pages) in of_kernel.iter().zip(&pages) {
                let request = |rows: Range<usize>| Request {
                    first_position: prefix.len() + rows.start - own.start,
                    rows,
                    pages: pages.clone(),
                };
                let split = own.start + own.len() / 2;
                first.push(request(own.start..split));
                one_by_one.extend((split..own.end).map(|row| request(row..row + 1)));
            }
            let (q, keys, values) = (lock(&inputs[0]), lock(&caches[0]), lock(&caches[1]));
            let (q, keys, values) = (q.view()?, keys.view()?, values.view()?);
            let requests = [first, one_by_one].concat();
            let plan = PagedPlan::new(&requests, count, heads.0 / heads.1, PAGE_ROWS, device)?;
            let out = paged(&q, &keys, &values, &plan, heads.scale())?.into_tensor();
            let plan = Plan::new(&of_kernel, heads.0 / heads.1, device)?;
            let (k, v) = (lock(&inputs[1]), lock(&inputs[2]));
            let (packed, _) = forward(&q, &k.view()?, &v.view()?, &plan, heads.scale())?;
            let packed = self::values(&packed.into_tensor())?;
            let same = packed.iter().zip(self::values(&out)?).all(|(a, b)| a.to_bits() == b.to_bits());
            if !same {
                return Err(candle_core::Error::Msg("pages give other bits than packed rows".into()));
            }
            Ok(vec![out])
        }),
        expected: Box::new(move || {
            let [q, k, v] = [0, 1, 2].map(|index: usize| given[index].to_dtype(DType::F64));
            Ok(vec![reference(&q?, &k?, &v?, &of_expected, heads)?])
        }),
        bound: 2.0 * rounding(dtype),
        work: Work::default(),
    })
}

/// One new row in each of many sequences.
fn decoding(heads: Heads, sequences: usize, length: usize, dtype: DType) -> Result<Case> {
    let (pages, total) = page_lists(&vec![length; sequences]);
    let cache = [total, PAGE_ROWS, heads.1, heads.2];
    let requests: Vec<Request> = pages
        .into_iter()
        .enumerate()
        .map(|(row, pages)| Request { first_position: length - 1, rows: row..row + 1, pages })
        .collect();
    Ok(Case {
        name: format!("decode attention {heads:?}, {sequences} sequences of {length} {dtype:?}"),
        inputs: vec![
            normal(&[sequences, heads.0, heads.2], 1, dtype)?,
            normal(&cache, 2, dtype)?,
            normal(&cache, 3, dtype)?,
        ],
        kernel: Box::new(move |inputs| {
            let [q, keys, values] = [&inputs[0], &inputs[1], &inputs[2]].map(lock);
            let plan =
                PagedPlan::new(&requests, sequences, heads.0 / heads.1, PAGE_ROWS, inputs[0].device())?;
            let out = paged(&q.view()?, &keys.view()?, &values.view()?, &plan, heads.scale())?;
            Ok(vec![out.into_tensor()])
        }),
        expected: Box::new(|| Ok(Vec::new())),
        bound: 0.0,
        work: Work {
            bytes: 2 * sequences * length * heads.1 * heads.2 * dtype.size_in_bytes(),
            operations: 4 * sequences * length * heads.0 * heads.2,
        },
    })
}
