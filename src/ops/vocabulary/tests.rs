//! The vocabulary head against finite differences, its composed form, and itself in other batches.

use super::super::parallel::with_threads;
use super::super::testing::{ARCHITECTURE, check_gradients, close, offset, pseudo_random};
use super::*;
use candle_core::{Device, Var};

fn targets(rows: usize, entries: usize) -> Tensor {
    let values: Vec<u32> = (0..rows).map(|row| ((row * 7919 + 3) % entries) as u32).collect();
    offset(&Tensor::from_vec(values, rows, &Device::Cpu).unwrap())
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn two_threads() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap()
}

/// N, D, V: sizes of one, a vocabulary that just fits its chunk, one that does not, several chunks.
const CASES: [[usize; 3]; 6] =
    [[1, 1, 1], [1, 5, 3], [7, 3, 1], [3, 16, CHUNK], [5, 9, CHUNK + 1], [101, 4, 2 * CHUNK + 70]];

#[test]
fn agrees_with_the_composed_form_and_honours_offsets() {
    for [n, d, v] in CASES {
        let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
        let weight = Var::from_tensor(&pseudo_random(&[v, d], 2, DType::F32)).unwrap();
        let targets = targets(n, v);
        for temperature in [1.0, 0.6] {
            let both = [true, false].map(|own| {
                let (x_view, weight_view) = (offset(x.as_tensor()), offset(weight.as_tensor()));
                let result = if own {
                    vocabulary_log_prob(&x_view, &weight_view, &targets, temperature)
                } else {
                    composed(&x_view, &weight_view, &targets, temperature)
                };
                let result = result.unwrap();
                let factors = pseudo_random(&[n, 2], 9, DType::F32);
                let gradients = (&result * factors).unwrap().sum_all().unwrap().backward().unwrap();
                [result, gradients.get(&x).unwrap().clone(), gradients.get(&weight).unwrap().clone()]
            });
            for (own, composed) in both[0].iter().zip(&both[1]) {
                close(own, composed, 3e-5);
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    for [n, d, v] in [[1, 1, 1], [3, 4, 7], [2, 1, CHUNK + 5]] {
        let inputs = [pseudo_random(&[n, d], 1, DType::F64), pseudo_random(&[v, d], 2, DType::F64)];
        let targets = targets(n, v);
        check_gradients(&inputs, |t| vocabulary_log_prob(&t[0], &t[1], &targets, 0.7));
    }
}

#[test]
fn a_row_gives_the_same_bits_in_any_batch_on_any_threads() {
    let pool = two_threads();
    let (n, d, v) = (230, 24, 2 * CHUNK + 100);
    let x = pseudo_random(&[n, d], 1, DType::F32);
    let weight = pseudo_random(&[v, d], 2, DType::F32);
    let targets = targets(n, v);
    let rows = |first: usize, count: usize| {
        let (x, targets) = (x.narrow(0, first, count).unwrap(), targets.narrow(0, first, count).unwrap());
        bits(&vocabulary_log_prob(&x, &weight, &targets, 0.9).unwrap())
    };
    let alone: Vec<u32> = (0..n).flat_map(|row| rows(row, 1)).collect();
    for (first, count) in [(0, n), (0, 97), (97, 133), (5, 96), (3, 2), (100, 13)] {
        let expected = &alone[first * 2..(first + count) * 2];
        assert_eq!(rows(first, count), expected);
        assert_eq!(with_threads(&pool, || rows(first, count)), expected);
    }
}

#[test]
fn gradients_are_the_same_on_one_and_two_threads() {
    let pool = two_threads();
    for (n, d, v) in [(3, 40, CHUNK + 1), (300, 96, 2 * CHUNK + 3), (130, 64, 50)] {
        let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
        let weight = Var::from_tensor(&pseudo_random(&[v, d], 2, DType::F32)).unwrap();
        let targets = targets(n, v);
        let gradients = || {
            let result = vocabulary_log_prob(&x, &weight, &targets, 1.0).unwrap();
            let gradients = result.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            [bits(gradients.get(&x).unwrap()), bits(gradients.get(&weight).unwrap())]
        };
        let one = gradients();
        assert_eq!(one, gradients());
        assert_eq!(one, with_threads(&pool, gradients));
    }
}

#[test]
fn rows_beyond_one_block_are_walked_in_a_second() {
    let (n, d, v) = (BLOCK + 3, 2, 5);
    let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[v, d], 2, DType::F32)).unwrap();
    let targets = targets(n, v);
    let both = [vocabulary_log_prob, composed].map(|function| {
        let result = function(&x, &weight, &targets, 1.0).unwrap();
        let gradients = result.mean_all().unwrap().backward().unwrap();
        [result, gradients.get(&x).unwrap().clone(), gradients.get(&weight).unwrap().clone()]
    });
    for (own, composed) in both[0].iter().zip(&both[1]) {
        close(own, composed, 1e-5);
    }
}

#[test]
fn strided_inputs_are_made_contiguous() {
    let x = pseudo_random(&[6, 4], 1, DType::F32).t().unwrap();
    let weight = pseudo_random(&[6, 9], 2, DType::F32).t().unwrap();
    let targets = Tensor::new(&[[1_u32, 9], [8, 9], [0, 9], [3, 9]], &Device::Cpu).unwrap();
    let targets = targets.narrow(1, 0, 1).unwrap().squeeze(1).unwrap();
    let strided = vocabulary_log_prob(&x, &weight, &targets, 1.0).unwrap();
    let [x, weight, targets] = [&x, &weight, &targets].map(|t| t.contiguous().unwrap());
    assert_eq!(bits(&strided), bits(&vocabulary_log_prob(&x, &weight, &targets, 1.0).unwrap()));
}

#[test]
fn an_empty_batch_gives_an_empty_result_and_gradients_of_zero() {
    let x = Var::from_tensor(&Tensor::zeros((0, 3), DType::F32, &Device::Cpu).unwrap()).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[5, 3], 2, DType::F32)).unwrap();
    let targets = Tensor::zeros(0, DType::U32, &Device::Cpu).unwrap();
    let result = vocabulary_log_prob(&x, &weight, &targets, 1.0).unwrap();
    assert_eq!(result.dims(), [0, 2]);
    let gradients = result.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().dims(), [0, 3]);
    assert!(bits(gradients.get(&weight).unwrap()).iter().all(|&bits| bits == 0));
}

#[test]
fn rows_without_inputs_are_uniform() {
    let x = Var::from_tensor(&Tensor::zeros((2, 0), DType::F32, &Device::Cpu).unwrap()).unwrap();
    let weight = Tensor::zeros((8, 0), DType::F32, &Device::Cpu).unwrap();
    let targets = Tensor::new(&[0_u32, 7], &Device::Cpu).unwrap();
    let result = vocabulary_log_prob(&x, &weight, &targets, 1.0).unwrap();
    let ln = 8.0_f32.ln();
    assert_eq!(result.to_vec2::<f32>().unwrap(), [[-ln, ln], [-ln, ln]]);
    assert!(result.sum_all().unwrap().backward().is_ok());
}

#[test]
fn a_gradient_sum_takes_what_differentiation_would_give_the_weight() {
    let x = pseudo_random(&[5, 4], 1, DType::F64);
    let weight = Var::from_tensor(&pseudo_random(&[CHUNK + 3, 4], 2, DType::F64)).unwrap();
    let sum = GradientSum::new(&weight).unwrap();
    let backward = |gradients| {
        let weight = WeightRef { tensor: &weight, prepared: None, gradients };
        let result = vocabulary_log_prob(&x, weight, &targets(5, CHUNK + 3), 1.0).unwrap();
        result.sqr().unwrap().sum_all().unwrap().backward().unwrap()
    };
    let alone = backward(None).get(&weight).unwrap().clone();
    for times in 1..=2 {
        assert!(backward(Some(&sum)).get(&weight).is_none());
        close(&sum.tensor().unwrap(), &(&alone * f64::from(times)).unwrap(), 1e-12);
    }
}

#[test]
fn an_untracked_input_costs_no_gradient() {
    let x = pseudo_random(&[3, 4], 1, DType::F32);
    let weight = Var::from_tensor(&pseudo_random(&[6, 4], 2, DType::F32)).unwrap();
    let targets = targets(3, 6);
    let frozen = vocabulary_log_prob(&x, weight.as_tensor(), &targets, 1.0).unwrap();
    let op = operator(false);
    let result = x.apply_op3_no_bwd(&weight, &targets, &op).unwrap();
    assert_eq!(bits(&result), bits(&frozen));
    let ones = result.ones_like().unwrap();
    let gradients = op.bwd(&x, &weight, &targets, &result, &ones).unwrap();
    assert!(gradients.0.is_none() && gradients.1.is_some() && gradients.2.is_none());
}

fn operator(keeps: bool) -> VocabularyLogProb {
    VocabularyLogProb {
        temperature: 1.0,
        keeps,
        sums: OnceLock::new(),
        kept: Mutex::default(),
        gradients: None,
        #[cfg(feature = "cuda")]
        states: OnceLock::new(),
    }
}

#[test]
fn logits_that_were_kept_give_the_bits_of_logits_made_again_and_are_given_back() {
    let (n, d, v) = (TILE + 5, 24, 2 * CHUNK + 100);
    let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[v, d], 2, DType::F32)).unwrap();
    let targets = targets(n, v);
    let ones = Tensor::ones((n, 2), DType::F32, &Device::Cpu).unwrap();
    let [again, kept] = [false, true].map(operator);
    let gradients = |op: &VocabularyLogProb| {
        let (of_x, of_weight, _) = op.bwd(&x, &weight, &targets, &ones, &ones).unwrap();
        [of_x, of_weight].map(|gradient| bits(&gradient.unwrap()))
    };
    for op in [&again, &kept] {
        x.apply_op3_no_bwd(&weight, &targets, op).unwrap();
    }
    assert!(again.kept.lock().unwrap().is_none() && kept.kept.lock().unwrap().is_some());
    let expected = gradients(&again);
    assert_eq!(gradients(&kept), expected);
    // They are gone now, and made again.
    assert!(kept.kept.lock().unwrap().is_none());
    assert_eq!(gradients(&kept), expected);
}

#[test]
fn nothing_is_kept_without_a_backward_pass_or_beyond_the_limit() {
    let x = pseudo_random(&[3, 4], 1, DType::F32);
    let variable = Var::from_tensor(&pseudo_random(&[6, 4], 2, DType::F32)).unwrap();
    assert!(keeps(&x, &variable, 3, 6) && !keeps(&x, &variable.detach(), 3, 6));
    assert!(!keeps(&x, &variable, KEPT, 2));
}

#[test]
fn a_nan_stays_in_its_row_and_reaches_the_gradients() {
    let x = Tensor::new(&[[1.0_f32, 2.0], [f32::NAN, 1.0]], &Device::Cpu).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[4, 2], 2, DType::F32)).unwrap();
    let x = Var::from_tensor(&x).unwrap();
    let result = vocabulary_log_prob(&x, &weight, &targets(2, 4), 1.0).unwrap();
    let values = result.to_vec2::<f32>().unwrap();
    assert!(values[0].iter().all(|v| v.is_finite()) && values[1].iter().all(|v| v.is_nan()));
    let gradients = result.sum_all().unwrap().backward().unwrap();
    let of_x = gradients.get(&x).unwrap().to_vec2::<f32>().unwrap();
    assert!(of_x[0].iter().all(|v| v.is_finite()) && of_x[1].iter().all(|v| v.is_nan()));
    assert!(bits(gradients.get(&weight).unwrap()).iter().all(|&bits| f32::from_bits(bits).is_nan()));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    let (x, weight, good) = (zeros(&[2, 3], DType::F32), zeros(&[4, 3], DType::F32), zeros(&[2], DType::U32));
    let message = |x: &Tensor, weight: &Tensor, targets: &Tensor, temperature| {
        vocabulary_log_prob(x, weight, targets, temperature).unwrap_err().to_string()
    };
    for (x, weight, targets) in [
        (&x, &zeros(&[4, 5], DType::F32), &good),
        (&x, &zeros(&[0, 3], DType::F32), &good),
        (&x, &weight, &zeros(&[3], DType::U32)),
        (&x, &weight, &zeros(&[2], DType::F32)),
    ] {
        let message = message(x, weight, targets, 1.0);
        assert!(message.contains("vocabulary_log_prob refused") && message.contains("[N, D]"), "{message}");
    }
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(message(&x, &weight, &good, temperature).contains("temperature"));
    }
    let beyond = Tensor::new(&[0_u32, 4], &Device::Cpu).unwrap();
    assert!(message(&x, &weight, &beyond, 1.0).contains("target 4 of row 1 is not below 4"));
}

#[test]
fn every_instruction_set_gives_the_same_results() {
    let (n, d, v) = (14, 19, CHUNK + 37);
    let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
    let weight = Var::from_tensor(&pseudo_random(&[v, d], 2, DType::F32)).unwrap();
    let everything = || {
        let result = vocabulary_log_prob(&x, &weight, &targets(n, v), 1.0).unwrap();
        let gradients = result.sum_all().unwrap().backward().unwrap();
        [gradients.get(&x).unwrap().clone(), gradients.get(&weight).unwrap().clone(), result]
    };
    let widest = everything();
    for architecture in narrower() {
        ARCHITECTURE.set(Some(architecture));
        let narrower = everything();
        ARCHITECTURE.set(None);
        for (narrower, widest) in narrower.iter().zip(&widest) {
            close(narrower, widest, 1e-5);
        }
    }
}

fn narrower() -> Vec<pulp::Arch> {
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = pulp::x86::V3::try_new() {
        return vec![pulp::Arch::Scalar, pulp::Arch::V3(v3)];
    }
    vec![pulp::Arch::Scalar]
}
