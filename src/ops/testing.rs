//! What every operator is held to: finite differences for each input, agreement with its composed form, offsets.

use std::cell::Cell;

use candle_core::{DType, Device, Result, Tensor, Var};

use crate::random::CounterRng;

thread_local! {
    /// The instruction set of this thread's operators; the widest when empty.
    pub(super) static ARCHITECTURE: Cell<Option<pulp::Arch>> = const { Cell::new(None) };
}

/// Normal values that depend on the seed and the position only.
pub(super) fn pseudo_random(shape: &[usize], seed: u64, dtype: DType) -> Tensor {
    let mut rng = CounterRng::new(seed);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| rng.normal()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

/// The same values as a contiguous view that does not start at the beginning of its storage.
pub(super) fn offset(tensor: &Tensor) -> Tensor {
    let view = Tensor::cat(&[tensor, tensor], 0).unwrap();
    let rows = tensor.dim(0).unwrap();
    let view = view.narrow(0, rows, rows).unwrap();
    assert!(view.is_contiguous() && (tensor.elem_count() == 0 || view.layout().start_offset() > 0));
    view
}

/// Asserts that two tensors agree within `tolerance`, relative for values above 1.
pub(super) fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!(a.dims(), b.dims());
    let flat = |t: &Tensor| t.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (i, (a, b)) in flat(a).into_iter().zip(flat(b)).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "value {i}: {a} and {b}");
    }
}

/// Checks the gradient of every `f64` input of `function` against central differences of a random weighting of its
/// results. Every input is tracked and read at an offset, and none may lack a gradient.
pub(super) fn check_gradients(inputs: &[Tensor], function: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let loss = |inputs: &[Tensor]| -> Tensor {
        let result = function(inputs).unwrap();
        let weights = pseudo_random(result.dims(), 99, DType::F64);
        (result * weights).unwrap().sum_all().unwrap()
    };
    let variables: Vec<Var> = inputs.iter().map(|t| Var::from_tensor(t).unwrap()).collect();
    let views: Vec<Tensor> = variables.iter().map(|v| offset(v.as_tensor())).collect();
    let gradients = loss(&views).backward().unwrap();
    for (index, variable) in variables.iter().enumerate() {
        let gradient = gradients.get(variable).expect("a tracked input has a gradient");
        let gradient: Vec<f64> = gradient.flatten_all().unwrap().to_vec1().unwrap();
        let values: Vec<f64> = inputs[index].flatten_all().unwrap().to_vec1().unwrap();
        for (i, &analytic) in gradient.iter().enumerate() {
            let step = 1e-6;
            let at = |shift: f64| {
                let mut moved = values.clone();
                moved[i] += shift;
                let mut inputs = inputs.to_vec();
                inputs[index] = Tensor::from_vec(moved, inputs[index].shape(), &Device::Cpu).unwrap();
                loss(&inputs).to_scalar::<f64>().unwrap()
            };
            let numeric = (at(step) - at(-step)) / (2.0 * step);
            assert!(
                (analytic - numeric).abs() <= 1e-6 * numeric.abs().max(1.0),
                "input {index}, value {i}: gradient {analytic}, finite difference {numeric}"
            );
        }
    }
}

/// Every operator, forward and backward, as one flat list of numbers.
fn everything() -> Vec<f32> {
    use super::{Activation, LstmParameters};
    let var = |shape: &[usize], seed| Var::from_tensor(&pseudo_random(shape, seed, DType::F32)).unwrap();
    let images = var(&[3, 7, 6, 5], 1);
    let (kernel, kernel_bias) = (var(&[19, 3, 3, 5], 2), var(&[19], 3));
    let (input_weight, hidden_weight, bias) = (var(&[36, 57], 4), var(&[36, 9], 5), var(&[36], 6));
    let state = var(&[3, 18], 7);
    let starts = Tensor::new(&[[0_u8, 1, 0]], &Device::Cpu).unwrap();
    let (head, head_bias) = (var(&[18, 9], 8), var(&[18], 9));
    let actions = Tensor::new(&[1_u32, 17, 0], &Device::Cpu).unwrap();

    let y = super::conv2d(&images, &kernel, &kernel_bias, 2, 1, Activation::Silu).unwrap();
    let y = super::max_pool2d(&y, 3, 2, 1).unwrap().flatten(1, 2).unwrap().mean(1).unwrap();
    let y = Tensor::cat(&[&y, &y, &y], 1).unwrap().unsqueeze(0).unwrap();
    let parameters = LstmParameters {
        input_weight: (&input_weight).into(),
        hidden_weight: (&hidden_weight).into(),
        bias: &bias,
    };
    let (y, states) = super::lstm_unroll(&y, &state, &starts, parameters).unwrap();
    let logits = super::linear(&y.squeeze(0).unwrap(), &head, Some(&head_bias), Activation::Tanh).unwrap();
    let discrete = super::categorical(&logits, &actions).unwrap();
    let (mean, log_std) = (logits.narrow(1, 0, 9).unwrap(), logits.narrow(1, 9, 9).unwrap());
    let before = states.get(0).unwrap().narrow(1, 9, 9).unwrap();
    let continuous = super::squashed_gaussian(&mean, &log_std, &before).unwrap();
    let result = (discrete + continuous).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    let mut all = vec![result];
    for variable in [&images, &kernel, &kernel_bias, &input_weight, &hidden_weight, &bias, &state, &head] {
        all.push(gradients.get(variable).unwrap().clone());
    }
    all.iter().flat_map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect()
}

#[test]
fn every_instruction_set_gives_the_same_results() {
    let widest = everything();
    let with = |architecture| {
        ARCHITECTURE.set(Some(architecture));
        let values = everything();
        ARCHITECTURE.set(None);
        values
    };
    let close = |values: Vec<f32>| {
        for (a, b) in values.into_iter().zip(&widest) {
            assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{a} and {b}");
        }
    };
    close(with(pulp::Arch::Scalar));
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = pulp::x86::V3::try_new() {
        close(with(pulp::Arch::V3(v3)));
    }
}

#[test]
fn threads_change_no_bit_of_any_result_or_gradient_of_the_control_operators() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    assert_eq!(everything(), super::with_threads(&pool, everything));
}

/// The same values in a view whose neighbours are not neighbours in memory.
fn strided(tensor: &Tensor) -> Tensor {
    let last = tensor.rank() - 1;
    let view = Tensor::stack(&[tensor, tensor], last + 1).unwrap().narrow(last + 1, 1, 1).unwrap();
    let view = view.squeeze(last + 1).unwrap();
    assert!(!view.is_contiguous());
    view
}

/// Every operator of the control workload on inputs that went through `view`.
fn control(view: impl Fn(&Tensor) -> Tensor, images: usize) -> Vec<Vec<f32>> {
    use super::{Activation, LstmParameters};
    let input = |shape: &[usize], seed| view(&pseudo_random(shape, seed, DType::F32));
    let x = input(&[images, 6, 5, 4], 1);
    let y = super::conv2d(&x, &input(&[8, 3, 3, 4], 2), &input(&[8], 3), 1, 1, Activation::Relu).unwrap();
    let pooled = super::max_pool2d(&view(&y), 3, 2, 1).unwrap().flatten_from(1).unwrap();
    let (weight, bias) = (input(&[6, 72], 4), input(&[6], 5));
    let logits = super::linear(&view(&pooled), &weight, Some(&bias), Activation::Gelu).unwrap();
    let actions = Tensor::full(5_u32, images, &Device::Cpu).unwrap();
    let discrete = super::categorical(&view(&logits), &view(&actions)).unwrap();
    let continuous =
        super::squashed_gaussian(&view(&logits), &input(&[images, 6], 6), &input(&[images, 6], 7)).unwrap();
    let (input_weight, hidden_weight, bias) = (input(&[12, 6], 8), input(&[12, 3], 9), input(&[12], 10));
    let parameters = LstmParameters {
        input_weight: (&input_weight).into(),
        hidden_weight: (&hidden_weight).into(),
        bias: &bias,
    };
    let state = super::lstm_step(&view(&logits), &input(&[images, 6], 11), parameters).unwrap();
    let results = [y, pooled, logits, discrete, continuous, state];
    results.iter().map(|t| t.flatten_all().unwrap().to_vec1().unwrap()).collect()
}

#[test]
fn strided_inputs_give_the_results_of_contiguous_ones() {
    assert_eq!(control(strided, 3), control(Clone::clone, 3));
}

#[test]
fn empty_batches_go_through_every_operator_forward_and_backward() {
    use super::Activation;
    assert!(control(Clone::clone, 0).iter().all(Vec::is_empty));
    let variable = |shape: &[usize]| Var::from_tensor(&pseudo_random(shape, 1, DType::F32)).unwrap();
    let (x, weight, bias) = (variable(&[0, 6, 5, 4]), variable(&[8, 3, 3, 4]), variable(&[8]));
    for stride in [1, 2] {
        let y = super::conv2d(&x, &weight, &bias, stride, 1, Activation::Relu).unwrap();
        let gradients = super::max_pool2d(&y, 3, 2, 1).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().dims(), x.dims());
        let gradient: Vec<f32> = gradients.get(&weight).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert!(gradient.iter().all(|&value| value == 0.0));
    }
}
