//! What the three forms of attention are held to, together.

use std::ops::Range;

use super::super::parallel::with_threads;
use super::super::testing::{ARCHITECTURE, check_gradients, close, offset, pseudo_random};
use super::*;
use crate::random::CounterRng;
use candle_core::{DType, Device, Var};

const SCALE: f64 = 0.3;

fn inputs(n: usize, [heads, kv_heads, d]: [usize; 3], dtype: DType) -> [Tensor; 3] {
    [(heads, 1), (kv_heads, 2), (kv_heads, 3)].map(|(heads, seed)| pseudo_random(&[n, heads, d], seed, dtype))
}

/// A batch with everything in it: sequences alone, a shared prefix, rows in any order, a sequence without rows.
fn batch(unit: usize) -> (usize, Vec<Sequence>) {
    let after = |prefix: Range<usize>, rows| Sequence { prefix, rows };
    let sequences = vec![
        after(unit..3 * unit, 4 * unit..5 * unit + 1),
        Sequence::alone(0..unit),
        Sequence::alone(unit..3 * unit),
        Sequence::alone(4 * unit..4 * unit),
        after(unit..3 * unit, 3 * unit..4 * unit),
    ];
    (5 * unit + 1, sequences)
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn packed([q, k, v]: &[Tensor; 3], sequences: &[Sequence]) -> Vec<u32> {
    bits(&flat(&attention(q, k, v, sequences, SCALE).unwrap()))
}

/// The gradients of q, k and v, each with a weighting of its own for every value of the result.
fn gradients(inputs: &[Tensor; 3], sequences: &[Sequence], function: Form) -> [Vec<f32>; 3] {
    let [q, k, v] = inputs.clone().map(|t| Var::from_tensor(&t).unwrap());
    let y = function(&q, &k, &v, sequences, SCALE).unwrap();
    let weights = pseudo_random(y.dims(), 99, y.dtype());
    let gradients = (y * weights).unwrap().sum_all().unwrap().backward().unwrap();
    [q, k, v].map(|variable| flat(gradients.get(&variable).unwrap()))
}

type Form = fn(&Tensor, &Tensor, &Tensor, &[Sequence], f64) -> Result<Tensor>;

/// The tokens of a sequence as a batch of their own.
fn unpacked(inputs: &[Tensor; 3], sequence: &Sequence) -> [Tensor; 3] {
    inputs.clone().map(|t| {
        let rows: Vec<u32> = sequence.prefix.clone().chain(sequence.rows.clone()).map(|r| r as u32).collect();
        t.index_select(&Tensor::new(rows, &Device::Cpu).unwrap(), 0).unwrap()
    })
}

/// Attention from pages, in chunks of the given sizes; pages start full of NaN.
fn from_pages([q, k, v]: &[Tensor; 3], chunks: &[usize]) -> Vec<u32> {
    let (_, heads, dimension) = q.dims3().unwrap();
    let layer = PagedAttention::new(heads, k.dim(1).unwrap(), dimension, SCALE).unwrap();
    let [q, k, v] = [q, k, v].map(flat);
    let (width, kv_width) = (heads * dimension, k.len() * heads * dimension / q.len());
    let mut pages: Vec<Vec<f32>> = Vec::new();
    let mut output = vec![0.0; q.len()];
    let mut done = 0;
    for &chunk in chunks {
        let end = done + chunk;
        pages.resize(end.div_ceil(KEY_TILE), vec![f32::NAN; layer.page_len()]);
        let request = PagedRows {
            queries: &q[done * width..end * width],
            keys: &k[done * kv_width..end * kv_width],
            values: &v[done * kv_width..end * kv_width],
            first_position: done,
            pages: pages.iter_mut().map(|page| Page::Own(page)).collect(),
            output: &mut output[done * width..end * width],
        };
        layer.attend(vec![request]).unwrap();
        done = end;
    }
    bits(&output)
}

/// A random split of `total` into parts of at least 1.
fn split(rng: &mut CounterRng, mut total: usize, largest: usize) -> Vec<usize> {
    let mut parts = Vec::new();
    while total > 0 {
        let part = (1 + rng.below(largest)).min(total);
        parts.push(part);
        total -= part;
    }
    parts
}

#[test]
fn agrees_with_the_composed_form_at_offsets_and_on_strided_inputs() {
    for (sizes, unit) in
        [([1, 1, 1], 1), ([4, 2, 5], 3), ([9, 3, 64], 20), ([2, 2, 40], 33), ([3, 1, 80], 50)]
    {
        let (n, sequences) = batch(unit);
        let inputs = inputs(n, sizes, DType::F32).map(|t| offset(&t));
        let [q, k, v] = &inputs;
        let y = attention(q, k, v, &sequences, SCALE).unwrap();
        close(&y, &composed(q, k, v, &sequences, SCALE).unwrap(), 1e-5);
        let strided = inputs
            .each_ref()
            .map(|t| t.transpose(0, 2).unwrap().contiguous().unwrap().transpose(0, 2).unwrap());
        assert_eq!(packed(&strided, &sequences), bits(&flat(&y)));
    }
}

#[test]
fn gradients_match_finite_differences() {
    let long = vec![Sequence::alone(0..KEY_TILE + 3)];
    for (sizes, (n, sequences)) in
        [([1, 1, 1], batch(1)), ([4, 2, 3], batch(2)), ([2, 1, 1], (KEY_TILE + 3, long))]
    {
        check_gradients(&inputs(n, sizes, DType::F64), |t| attention(&t[0], &t[1], &t[2], &sequences, SCALE));
    }
}

#[test]
fn gradients_over_many_tiles_agree_with_the_composed_form() {
    for (sizes, unit) in [([9, 3, 64], 30), ([2, 2, 40], 45), ([3, 1, 80], 50)] {
        let (n, sequences) = batch(unit);
        let inputs = inputs(n, sizes, DType::F32);
        let own = gradients(&inputs, &sequences, attention);
        for (own, composed) in own.iter().zip(gradients(&inputs, &sequences, composed)) {
            for (own, composed) in own.iter().zip(composed) {
                assert!((own - composed).abs() <= 2e-5 * composed.abs().max(1.0), "{own} and {composed}");
            }
        }
    }
}

#[test]
fn packed_shared_alone_chunked_and_decoded_rows_have_the_same_bits() {
    let mut rng = CounterRng::new(5);
    for case in 0..60 {
        let group = 1 + rng.below(4);
        let kv_heads = 1 + rng.below(3);
        let sizes = [group * kv_heads, kv_heads, 1 + rng.below(70)];
        let prompt = rng.below(3 * KEY_TILE);
        let lengths: Vec<usize> = (0..=rng.below(4)).map(|_| rng.below(3 * KEY_TILE)).collect();
        let mut sequences = vec![Sequence::alone(0..prompt)];
        let mut n = prompt;
        for length in lengths {
            sequences.push(Sequence { prefix: 0..prompt, rows: n..n + length });
            n += length;
        }
        let inputs = inputs(n, sizes, DType::F32);
        let width = sizes[0] * sizes[2];
        let together = packed(&inputs, &sequences);
        for sequence in &sequences {
            let total = sequence.prefix.len() + sequence.rows.len();
            if total == 0 {
                continue;
            }
            let tokens = unpacked(&inputs, sequence);
            let own = &together[sequence.rows.start * width..sequence.rows.end * width];
            let alone = packed(&tokens, &[Sequence::alone(0..total)]);
            assert_eq!(own, &alone[sequence.prefix.len() * width..], "case {case}, {sequence:?}");
            let chunks = split(&mut rng, total, 50);
            assert_eq!(from_pages(&tokens, &chunks), alone, "case {case}, chunks {chunks:?}");
            if case < 20 {
                assert_eq!(from_pages(&tokens, &vec![1; total]), alone, "case {case}, row by row");
            }
        }
    }
}

#[test]
fn threads_change_no_bits_of_results_gradients_and_pages() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (n, sequences) = batch(40);
    let inputs = inputs(n, [6, 2, 64], DType::F32);
    let all = || {
        let gradients = gradients(&inputs, &sequences, attention).concat();
        let pages = from_pages(&inputs, &[n - 70, 69, 1]);
        (packed(&inputs, &sequences), bits(&gradients), pages)
    };
    let alone = all();
    for _ in 0..3 {
        assert_eq!(with_threads(&pool, all), alone);
    }
}

#[test]
fn a_batch_of_requests_gives_what_each_gives_alone() {
    let layer = PagedAttention::new(6, 2, 16, SCALE).unwrap();
    let pages: Vec<Vec<f32>> =
        (0..3).map(|seed| flat(&pseudo_random(&[layer.page_len()], seed, DType::F32))).collect();
    let [queries, keys, values] = [(9, 6), (10, 2), (11, 2)]
        .map(|(seed, heads)| flat(&pseudo_random(&[5, heads, 16], seed, DType::F32)));
    // Two that continue one page, and one without rows.
    let run = |which: &[usize]| {
        let mut outputs = [vec![0.0; 3 * 96], vec![0.0; 2 * 96], Vec::new()];
        let mut own = pages.clone();
        let requests = own.iter_mut().zip(&mut outputs).zip([(0..3, 84), (3..5, 90), (5..5, 0)]).enumerate();
        let requests = requests.filter(|(i, _)| which.contains(i));
        let requests = requests.map(|(_, ((own, output), (rows, first_position)))| PagedRows {
            queries: &queries[rows.start * 96..rows.end * 96],
            keys: &keys[rows.start * 32..rows.end * 32],
            values: &values[rows.start * 32..rows.end * 32],
            first_position,
            pages: vec![Page::Shared(&pages[0]), Page::Own(own)],
            output,
        });
        layer.attend(requests.collect()).unwrap();
        outputs.map(|output| bits(&output))
    };
    let all = run(&[0, 1, 2]);
    assert_eq!(run(&[0])[0], all[0]);
    assert_eq!(run(&[1])[1], all[1]);
}

#[test]
fn gradients_of_a_sequence_do_not_depend_on_the_batch() {
    let sizes = [4, 2, 24];
    let inputs = inputs(150, sizes, DType::F32);
    let part = inputs.each_ref().map(|t| t.narrow(0, 0, 70).unwrap());
    let rest = [Sequence::alone(70..90), Sequence::alone(90..150)];
    let whole = [Sequence::alone(0..70)];
    let both = [&whole[..], &rest[..]].concat();
    let alone = gradients(&part, &whole, attention);
    for ((alone, together), heads) in alone.iter().zip(gradients(&inputs, &both, attention)).zip([4, 2, 2]) {
        assert_eq!(bits(alone), bits(&together[..70 * heads * 24]));
    }
}

#[test]
fn only_tracked_inputs_get_gradients_and_the_same_ones() {
    let (n, sequences) = batch(12);
    let inputs = inputs(n, [4, 2, 8], DType::F32);
    let all = gradients(&inputs, &sequences, attention);
    let weights = pseudo_random(inputs[0].dims(), 99, DType::F32);
    for tracked in 0..3 {
        let variable = Var::from_tensor(&inputs[tracked]).unwrap();
        let mut given = inputs.clone();
        given[tracked] = variable.as_tensor().clone();
        let y = attention(&given[0], &given[1], &given[2], &sequences, SCALE).unwrap();
        let gradients = (y * &weights).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(bits(&flat(gradients.get(&variable).unwrap())), bits(&all[tracked]));
        assert!((0..3).filter(|&i| i != tracked).all(|i| gradients.get(&inputs[i]).is_none()));
    }
}

#[test]
fn a_nan_is_seen_by_those_who_see_its_token_and_by_nobody_else() {
    let sizes = [2, 1, 20];
    let (n, poisoned) = (2 * KEY_TILE, KEY_TILE + 5);
    let clean = inputs(n + 4, sizes, DType::F32);
    let sequences = [Sequence::alone(0..n), Sequence::alone(n..n + 4)];
    let before = packed(&clean, &sequences);
    let before_gradients = gradients(&clean, &sequences, attention);
    for which in 0..3 {
        let mut inputs = clean.clone();
        let row_len = inputs[which].elem_count() / (n + 4);
        let mut values = flat(&inputs[which]);
        values[poisoned * row_len..(poisoned + 1) * row_len].fill(f32::NAN);
        inputs[which] = Tensor::from_vec(values, clean[which].shape(), &Device::Cpu).unwrap();
        let after = packed(&inputs, &sequences);
        for row in 0..n + 4 {
            let range = row * 40..(row + 1) * 40;
            let touched = if which == 0 { row == poisoned } else { (poisoned..n).contains(&row) };
            let nan = after[range.clone()].iter().all(|&bits| f32::from_bits(bits).is_nan());
            assert_eq!(nan, touched, "row {row}");
            assert!(touched || after[range.clone()] == before[range]);
        }
        // Rows that do not see the token, and tokens that no row seeing it sees, keep their gradients.
        let gradients = gradients(&inputs, &sequences, attention);
        let untouched = |row: usize, of: usize| match (which, of) {
            (0, 0) => row != poisoned,
            (0, _) => row > poisoned,
            (_, 0) => row < poisoned || row >= n,
            _ => row >= n,
        };
        for (of, width) in [(0, 40), (1, 20), (2, 20)] {
            for row in (0..n + 4).filter(|&row| untouched(row, of)) {
                let range = row * width..(row + 1) * width;
                assert_eq!(bits(&gradients[of][range.clone()]), bits(&before_gradients[of][range]));
            }
        }
        assert!(gradients[0].iter().any(|value| value.is_nan()));
    }
}

#[test]
fn large_scores_stay_finite() {
    let [q, k, v] = inputs(40, [1, 1, 4], DType::F32);
    let sequences = [Sequence::alone(0..40)];
    let y = attention(&q, &k, &v, &sequences, 1e4).unwrap();
    close(&y, &composed(&q, &k, &v, &sequences, 1e4).unwrap(), 1e-5);
    assert!(
        gradients(&[(q * 1e4).unwrap(), k, v], &sequences, attention).concat().iter().all(|v| v.is_finite())
    );
}

#[test]
fn no_rows_give_no_rows() {
    let inputs = inputs(0, [2, 1, 3], DType::F32);
    for sequences in [&[][..], &[Sequence::alone(0..0)]] {
        assert!(packed(&inputs, sequences).is_empty());
        assert!(gradients(&inputs, sequences, attention).concat().is_empty());
    }
}

#[test]
fn every_instruction_set_gives_close_results() {
    let (n, sequences) = batch(15);
    let inputs = inputs(n, [4, 2, 40], DType::F32);
    let all = || {
        let [q, k, v] = gradients(&inputs, &sequences, attention);
        let result = packed(&inputs, &sequences).into_iter().map(f32::from_bits).collect();
        let pages = from_pages(&inputs, &[n - 9, 9]).into_iter().map(f32::from_bits).collect();
        [q, k, v, result, pages].concat()
    };
    let widest = all();
    let mut others = vec![pulp::Arch::Scalar];
    #[cfg(target_arch = "x86_64")]
    others.extend(pulp::x86::V3::try_new().map(pulp::Arch::V3));
    for architecture in others {
        ARCHITECTURE.set(Some(architecture));
        let narrow = all();
        ARCHITECTURE.set(None);
        for (a, b) in narrow.into_iter().zip(&widest) {
            assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{a} and {b}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let [q, k, v] = inputs(6, [4, 2, 3], DType::F32);
    let refused = |q: &Tensor, k: &Tensor, v: &Tensor, sequences: &[Sequence]| {
        let message = attention(q, k, v, sequences, SCALE).unwrap_err().to_string();
        assert!(message.contains("attention"), "{message}");
        message
    };
    let all = [Sequence::alone(0..6)];
    assert!(refused(&q.narrow(0, 0, 5).unwrap(), &k, &v, &all).contains("[5, 4, 3]"));
    assert!(refused(&q, &k, &v.narrow(2, 0, 2).unwrap(), &all).contains("[6, 2, 2]"));
    assert!(refused(&q.narrow(1, 0, 3).unwrap(), &k, &v, &all).contains("3 heads"));
    assert!(refused(&q, &k, &v.to_dtype(DType::F64).unwrap(), &all).contains("F64"));

    let alone = Sequence::alone;
    let after = |prefix, rows| Sequence { prefix, rows };
    let sequences = |sequences: &[Sequence]| refused(&q, &k, &v, sequences);
    assert!(sequences(&[alone(0..3), alone(2..6)]).contains("row 2 belongs to two"));
    assert!(sequences(&[alone(4..6), alone(0..3)]).contains("row 3 belongs to no"));
    assert!(sequences(&[alone(0..5)]).contains("row 5 belongs to no"));
    assert!(sequences(&[]).contains("row 0 belongs to no"));
    assert!(sequences(&[alone(0..7)]).contains("rows 0..7 of sequence 0"));
    assert!(sequences(&[alone(0..3), after(1..9, 3..6)]).contains("prefix 1..9 of sequence 1"));
    assert!(sequences(&[alone(0..3), after(1..4, 3..6)]).contains("overlaps"));
}

#[test]
fn pages_that_do_not_fit_are_refused_by_name() {
    let layer = PagedAttention::new(2, 1, 4, SCALE).unwrap();
    let page = vec![0.0; layer.page_len()];
    let refused = |queries: usize, keys: usize, first_position, shared: &[f32], own: &[f32]| {
        let (queries, keys, mut output, mut own) =
            (vec![0.0; queries], vec![0.0; keys], [0.0; 8], own.to_vec());
        let request = PagedRows {
            queries: &queries,
            keys: &keys,
            values: &[0.0; 4],
            first_position,
            pages: vec![Page::Shared(shared), Page::Own(&mut own)],
            output: &mut output,
        };
        layer.attend(vec![request]).unwrap_err().to_string()
    };
    assert!(refused(9, 4, KEY_TILE, &page, &page).contains("9 queries"));
    assert!(refused(8, 3, KEY_TILE, &page, &page).contains("3 keys and 4 values of 1 rows must be 4"));
    let too_far = refused(8, 4, 2 * KEY_TILE, &page, &page);
    assert!(too_far.contains("attention refused its inputs: request 0: 2 pages"), "{too_far}");
    assert!(refused(8, 4, KEY_TILE, &page[1..], &page).contains("a page of"));
    assert!(refused(8, 4, KEY_TILE, &page, &page[1..]).contains("a page of"));
    assert!(refused(8, 4, 0, &page, &page).contains("a page of new tokens is shared"));
    assert!(layer.write(&mut page[1..].to_vec(), 0, &[0.0; 4], &[0.0; 4]).is_err());
    assert!(layer.write(&mut page.clone(), 0, &[0.0; 4], &[0.0; 8]).is_err());
    assert!(PagedAttention::new(3, 2, 4, SCALE).unwrap_err().to_string().contains("3 heads"));
    assert!(PagedAttention::new(3, 0, 4, SCALE).is_err());
}
