use candle_core::{DType, Device, Var};

use super::super::super::categorical::categorical;
use super::super::super::parallel::with_threads;
use super::super::super::testing::{check_gradients, close, pseudo_random};
use super::super::super::{Sampling, SamplingScratch, linear, sample_token};
use super::super::vocabulary_log_prob;
use super::*;

/// Sets of several sizes, and a target in each.
fn sets(rows: usize, entries: u32) -> (CandidateSets, Tensor) {
    let (mut sets, mut targets) = (CandidateSets::default(), Vec::new());
    for row in 0..rows as u32 {
        let ids: Vec<u32> = (0..entries).filter(|id| (id * 7 + row * 5) % (row % 4 + 2) == 0).collect();
        targets.push(ids[row as usize * 3 % ids.len()]);
        sets.push(ids);
    }
    (sets, Tensor::from_vec(targets, rows, &Device::Cpu).unwrap())
}

/// The same with all other logits masked.
fn masked(
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    sets: &CandidateSets,
    temperature: f64,
) -> Result<Tensor> {
    let (rows, entries) = (x.dim(0)?, weight.dim(0)?);
    let mask: Vec<f64> = (0..rows)
        .flat_map(|row| (0..entries as u32).map(move |id| (row, id)))
        .map(|(row, id)| if sets.row(row).contains(&id) { 0.0 } else { -1e4 })
        .collect();
    let mask = Tensor::from_vec(mask, (rows, entries), &Device::Cpu)?.to_dtype(x.dtype())?;
    categorical(&((x.matmul(&weight.t()?)? + mask)? / temperature)?, targets)
}

#[test]
fn is_the_distribution_with_all_other_logits_masked_and_so_are_its_gradients() {
    for (rows, inputs, entries) in [(1, 1, 3), (9, 5, 40), (6, 16, 2500)] {
        let (sets, targets) = sets(rows, entries as u32);
        let x = pseudo_random(&[rows, inputs], 1, DType::F64);
        let weight = pseudo_random(&[entries, inputs], 2, DType::F64);
        let found = candidate_log_prob(&x, &weight, &targets, sets.clone(), 0.7).unwrap();
        close(&found, &masked(&x, &weight, &targets, &sets, 0.7).unwrap(), 1e-9);
        if entries < 100 {
            check_gradients(&[x, weight], |t| candidate_log_prob(&t[0], &t[1], &targets, sets.clone(), 0.7));
        }
    }
}

#[test]
fn out_of_other_operators_it_is_the_same_function_with_the_same_gradients() {
    let (rows, inputs, entries) = (9, 5, 40);
    let (sets, targets) = sets(rows, entries as u32);
    let variables =
        [pseudo_random(&[rows, inputs], 1, DType::F32), pseudo_random(&[entries, inputs], 2, DType::F32)]
            .map(|values| Var::from_tensor(&values).unwrap());
    let weighting = pseudo_random(&[rows, 2], 3, DType::F32);
    let gradients = |result: &Tensor| {
        let found = (result * &weighting).unwrap().sum_all().unwrap().backward().unwrap();
        [0, 1].map(|index: usize| found.get(&variables[index]).unwrap().clone())
    };
    let own = candidate_log_prob(&variables[0], &variables[1], &targets, sets.clone(), 0.7).unwrap();
    let other = composed(&variables[0], &variables[1], &targets, &sets, 0.7).unwrap();
    close(&own, &other, 1e-5);
    for (own, other) in gradients(&own).iter().zip(&gradients(&other)) {
        close(own, other, 1e-5);
    }
    let mut wrong = CandidateSets::default();
    (0..rows).for_each(|_| wrong.push([entries as u32]));
    let error = composed(&variables[0], &variables[1], &targets, &wrong, 0.7).unwrap_err();
    assert!(error.to_string().contains("ascending"), "{error}");
}

#[test]
fn what_sampling_recorded_comes_out_to_the_last_bit() {
    let (entries, inputs) = (3000, 24);
    let weight = pseudo_random(&[entries, inputs], 2, DType::F32);
    let x = pseudo_random(&[40, inputs], 1, DType::F32);
    let logits: Vec<Vec<f32>> = linear(&x, &weight, None, Activation::Identity).unwrap().to_vec2().unwrap();
    for (top_k, top_p) in
        [(Some(1), None), (Some(3), None), (Some(50), None), (None, Some(0.9)), (Some(2000), Some(0.99))]
    {
        let sampling = Sampling { temperature: 0.8, top_k, top_p };
        let (mut scratch, mut sets) = (SamplingScratch::default(), CandidateSets::default());
        let drawn: Vec<(u32, f32)> = logits
            .iter()
            .enumerate()
            .map(|(row, logits)| {
                let random = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let drawn = sample_token(logits, &sampling, random, &mut scratch).unwrap();
                sets.push(scratch.candidates().iter().copied());
                (drawn.token, drawn.log_prob)
            })
            .collect();
        let targets = Tensor::from_iter(drawn.iter().map(|(token, _)| *token), &Device::Cpu).unwrap();
        let temperature = f64::from(sampling.temperature);
        let found = candidate_log_prob(&x, &weight, &targets, sets, temperature).unwrap();
        let found: Vec<Vec<f32>> = found.to_vec2().unwrap();
        for ((_, recorded), found) in drawn.iter().zip(&found) {
            assert_eq!(recorded.to_bits(), found[0].to_bits(), "{top_k:?} {top_p:?}");
        }
    }
}

#[test]
fn a_set_of_everything_gives_the_bits_of_no_set() {
    let (x, weight) = (pseudo_random(&[5, 12], 1, DType::F32), pseudo_random(&[2100, 12], 2, DType::F32));
    let (some, targets) = sets(5, 2100);
    let mut empty = CandidateSets::default();
    (0..5).for_each(|_| empty.push([]));
    let restricted = candidate_log_prob(&x, &weight, &targets, empty.filled(2100), 0.9).unwrap();
    let free = vocabulary_log_prob(&x, &weight, &targets, 0.9).unwrap();
    assert_eq!(restricted.to_vec2::<f32>().unwrap(), free.to_vec2::<f32>().unwrap());
    assert_eq!(some.filled(2100), some);
}

#[test]
fn threads_change_no_bit_and_sums_collect_the_weights_gradient() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let x = Var::from_tensor(&pseudo_random(&[70, 32], 1, DType::F32)).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[300, 32], 2, DType::F32)).unwrap();
    let (sets, targets) = sets(70, 300);
    let numbers = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let run = |sum: Option<&GradientSum>| {
        let weight_ref = WeightRef { tensor: &weight, prepared: None, gradients: sum };
        let result = candidate_log_prob(&x, weight_ref, &targets, sets.clone(), 1.0).unwrap();
        let mut found = result.sum_all().unwrap().backward().unwrap();
        let of_weight = sum.map_or_else(|| found.remove(&weight).unwrap(), |sum| sum.tensor().unwrap());
        [numbers(&result), numbers(&found.remove(&x).unwrap()), numbers(&of_weight)]
    };
    let alone = run(None);
    assert_eq!(with_threads(&pool, || run(None)), alone);
    let sum = GradientSum::new(&weight).unwrap();
    assert_eq!(with_threads(&pool, || run(Some(&sum))), alone);
    let twice: Vec<f32> = run(Some(&sum))[2].clone();
    assert!(twice.iter().zip(&alone[2]).all(|(twice, once)| (twice - 2.0 * once).abs() < 1e-5));
}

#[test]
fn sets_that_do_not_fit_are_refused() {
    let (x, weight) = (pseudo_random(&[1, 4], 1, DType::F32), pseudo_random(&[6, 4], 2, DType::F32));
    let targets = Tensor::new(&[2_u32], &Device::Cpu).unwrap();
    let refused = |ids: &[u32]| {
        let mut sets = CandidateSets::default();
        sets.push(ids.iter().copied());
        candidate_log_prob(&x, &weight, &targets, sets, 1.0).unwrap_err().to_string()
    };
    assert!(refused(&[1, 3]).contains("target 2 of row 0 is not among"));
    for ids in [&[2_u32, 6][..], &[3, 2], &[2, 2], &[]] {
        assert!(refused(ids).contains("candidates of row 0"), "{ids:?}");
    }
    let none = candidate_log_prob(&x, &weight, &targets, CandidateSets::default(), 1.0).unwrap_err();
    assert!(none.to_string().contains("0 candidate sets for 1 rows"));
}
