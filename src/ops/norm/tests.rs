//! What both norms are held to.

use super::super::parallel::with_threads;
use super::super::testing::{check_gradients, close, offset, pseudo_random};
use super::layer::composed as composed_layer;
use super::rms::composed as composed_rms;
use super::{BLOCK_ROWS, layer_norm, rms_norm};
use candle_core::{DType, Device, Result, Tensor, Var};

const EPSILON: f64 = 1e-5;

/// A norm as a function of x, weight and bias (which the first does not read).
type Norm = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

fn rms(x: &Tensor, weight: &Tensor, _bias: &Tensor) -> Result<Tensor> {
    rms_norm(x, weight, EPSILON)
}

fn layer(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    layer_norm(x, weight, bias, EPSILON)
}

const BOTH: [Norm; 2] = [rms, layer];

fn inputs(shape: &[usize], dtype: DType) -> [Tensor; 3] {
    let width = shape[shape.len() - 1];
    let x = ((pseudo_random(shape, 1, dtype) * 2.0).unwrap() + 0.5).unwrap();
    [x, pseudo_random(&[width], 2, dtype), pseudo_random(&[width], 3, dtype)]
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|v| v.to_bits()).collect()
}

#[test]
fn they_agree_with_the_composed_form_at_offsets_and_on_strided_inputs() {
    for shape in [&[1, 1][..], &[5], &[3, 2, 7], &[9, 64], &[2, 576], &[70, 100]] {
        let [x, weight, bias] = inputs(shape, DType::F32).map(|t| offset(&t));
        let composed = composed_rms(&x, &weight, EPSILON).unwrap();
        close(&rms_norm(&x, &weight, EPSILON).unwrap(), &composed, 1e-5);
        let composed = composed_layer(&x, &weight, &bias, EPSILON).unwrap();
        close(&layer_norm(&x, &weight, &bias, EPSILON).unwrap(), &composed, 2e-5);
    }
    let [x, weight, bias] = inputs(&[6, 10], DType::F32);
    let strided = x.t().unwrap().contiguous().unwrap().t().unwrap();
    for norm in BOTH {
        assert_eq!(bits(&norm(&strided, &weight, &bias).unwrap()), bits(&norm(&x, &weight, &bias).unwrap()));
    }
}

#[test]
fn gradients_match_finite_differences() {
    for shape in [&[1, 2][..], &[3, 5], &[2, 2, 19], &[BLOCK_ROWS + 3, 2]] {
        let inputs = inputs(shape, DType::F64);
        check_gradients(&inputs[..2], |t| rms_norm(&t[0], &t[1], EPSILON));
        check_gradients(&inputs, |t| layer_norm(&t[0], &t[1], &t[2], 0.1));
    }
}

#[test]
fn a_row_gives_the_same_bits_in_any_batch_on_any_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let [x, weight, bias] = inputs(&[1000, 137], DType::F32);
    for norm in BOTH {
        let all = bits(&norm(&x, &weight, &bias).unwrap());
        assert_eq!(bits(&with_threads(&pool, || norm(&x, &weight, &bias)).unwrap()), all);
        for (first, count) in [(0, 1), (999, 1), (17, 300)] {
            let part = norm(&x.narrow(0, first, count).unwrap(), &weight, &bias).unwrap();
            assert_eq!(bits(&part), all[first * 137..(first + count) * 137]);
        }
    }
}

#[test]
fn threads_do_not_change_gradients_that_are_shared() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let variables = inputs(&[1001, 137], DType::F32).map(|t| Var::from_tensor(&t).unwrap());
    for norm in BOTH {
        let gradients = || {
            let [x, weight, bias] = &variables;
            let y = norm(x, weight, bias).unwrap();
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            variables.iter().filter_map(|v| gradients.get(v)).map(bits).collect::<Vec<_>>()
        };
        assert_eq!(gradients(), with_threads(&pool, gradients));
    }
}

#[test]
fn only_tracked_inputs_get_gradients_and_the_same_ones() {
    let given = inputs(&[4, 9], DType::F32);
    for norm in BOTH {
        let all = given.clone().map(|t| Var::from_tensor(&t).unwrap());
        let loss =
            |x: &Tensor, w: &Tensor, b: &Tensor| norm(x, w, b).unwrap().sqr().unwrap().sum_all().unwrap();
        let full = loss(&all[0], &all[1], &all[2]).backward().unwrap();
        for tracked in 0..3 {
            let mut mixed = given.clone();
            mixed[tracked] = all[tracked].as_tensor().clone();
            let gradients = loss(&mixed[0], &mixed[1], &mixed[2]).backward().unwrap();
            assert_eq!(gradients.get(&all[tracked]).map(bits), full.get(&all[tracked]).map(bits));
        }
    }
}

#[test]
fn no_rows_give_no_rows_and_zero_gradients() {
    let [x, weight, bias] = inputs(&[0, 3], DType::F32).map(|t| Var::from_tensor(&t).unwrap());
    for norm in BOTH {
        let y = norm(&x, &weight, &bias).unwrap();
        assert_eq!(y.dims(), [0, 3]);
        let gradients = y.sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&weight).unwrap().to_vec1::<f32>().unwrap(), [0.0; 3]);
    }
}

#[test]
fn a_nan_comes_out_of_its_row_and_of_no_other() {
    let mut values = vec![1.0_f32; 6];
    values[1] = f32::NAN;
    let x = Tensor::from_vec(values, (2, 3), &Device::Cpu).unwrap();
    let [_, weight, bias] = inputs(&[2, 3], DType::F32);
    for norm in BOTH {
        let y = norm(&x, &weight, &bias).unwrap().to_vec2::<f32>().unwrap();
        assert!(y[0].iter().all(|v| v.is_nan()) && y[1].iter().all(|v| v.is_finite()));
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let error = rms_norm(&zeros(&[2, 3]), &zeros(&[4]), EPSILON).unwrap_err().to_string();
    assert!(error.contains("rms_norm") && error.contains("[4]"));
    let error = layer_norm(&zeros(&[2, 3]), &zeros(&[3]), &zeros(&[2]), EPSILON).unwrap_err().to_string();
    assert!(error.contains("layer_norm") && error.contains("[2]"));
    let double = Tensor::zeros(3, DType::F64, &Device::Cpu).unwrap();
    assert!(rms_norm(&zeros(&[2, 3]), &double, EPSILON).unwrap_err().to_string().contains("F64"));
    assert!(rms_norm(&zeros(&[2, 0]), &zeros(&[0]), EPSILON).is_err());
}
