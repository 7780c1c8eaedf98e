use super::super::parallel::with_threads;
use super::super::testing::{check_gradients, close, offset, pseudo_random};
use super::*;
use candle_core::DType;

/// (x, weight, stride, padding).
const CASES: [([usize; 4], [usize; 4], usize, usize); 6] = [
    ([1, 1, 1, 1], [1, 1, 1, 1], 1, 0),
    ([2, 5, 4, 3], [2, 3, 2, 3], 1, 0),
    ([3, 6, 7, 2], [17, 3, 3, 2], 2, 1),
    ([1, 3, 3, 1], [2, 3, 3, 1], 1, 2),
    ([2, 4, 4, 5], [3, 1, 1, 5], 1, 0),
    ([2, 9, 8, 1], [4, 4, 4, 1], 3, 0),
];

fn inputs(x: &[usize], weight: &[usize], dtype: DType) -> [Tensor; 3] {
    [
        pseudo_random(x, 1, dtype),
        (pseudo_random(weight, 2, dtype) * 0.5).unwrap(),
        pseudo_random(&weight[..1], 3, dtype),
    ]
}

#[test]
fn agrees_with_the_composed_form_and_honours_offsets() {
    for (x, weight, stride, padding) in CASES {
        let [x, weight, bias] = inputs(&x, &weight, DType::F32).map(|t| offset(&t));
        let geometry = Geometry::new(&x, &weight, &bias, stride, padding).unwrap();
        for activation in [Activation::Identity, Activation::Relu, Activation::Silu] {
            let fused = conv2d(&x, &weight, &bias, stride, padding, activation).unwrap();
            close(&fused, &composed(&x, &weight, &bias, &geometry, activation).unwrap(), 1e-5);
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    for (x, weight, stride, padding) in CASES {
        for activation in [Activation::Relu, Activation::Silu] {
            check_gradients(&inputs(&x, &weight, DType::F64), |t| {
                conv2d(&t[0], &t[1], &t[2], stride, padding, activation)
            });
        }
    }
}

#[test]
fn gradients_over_many_tiles_agree_with_the_composed_form() {
    let [x, weight, bias] =
        inputs(&[40, 9, 9, 3], &[5, 5, 5, 3], DType::F32).map(|t| candle_core::Var::from_tensor(&t).unwrap());
    let geometry = Geometry::new(&x, &weight, &bias, 1, 1).unwrap();
    assert!(geometry.rows() > 1000, "more rows than any pass takes at a time");
    let fused = conv2d(&x, &weight, &bias, 1, 1, Activation::Tanh).unwrap();
    let plain = composed(&x, &weight, &bias, &geometry, Activation::Tanh).unwrap();
    let fused = fused.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let plain = plain.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    for variable in [&x, &weight, &bias] {
        let (fused, plain) = (fused.get(variable).unwrap(), plain.get(variable).unwrap());
        close(fused, plain, 1e-4);
    }
}

#[test]
fn an_image_gives_the_same_bits_in_any_batch_on_any_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let [x, weight, bias] = inputs(&[31, 10, 10, 4], &[16, 3, 3, 4], DType::F32);
    let images = |first, count| -> Vec<f32> {
        let x = x.narrow(0, first, count).unwrap();
        let y = conv2d(&x, &weight, &bias, 1, 0, Activation::Relu).unwrap();
        y.flatten_all().unwrap().to_vec1().unwrap()
    };
    let alone: Vec<Vec<f32>> = (0..31).map(|n| images(n, 1)).collect();
    for count in 1..=31 {
        assert_eq!(images(31 - count, count), alone[31 - count..].concat());
        assert_eq!(with_threads(&pool, || images(0, count)), alone[..count].concat());
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let [x, weight, bias] = inputs(&[1, 2, 2, 1], &[1, 3, 3, 1], DType::F32);
    let error = conv2d(&x, &weight, &bias, 1, 0, Activation::Relu).unwrap_err().to_string();
    assert!(error.contains("conv2d") && error.contains("[1, 3, 3, 1]"));
}
