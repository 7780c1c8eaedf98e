//! What every operator is held to: finite differences for each input, agreement with its composed form, offsets.

use candle_core::{DType, Device, Result, Tensor, Var};

use crate::random::CounterRng;

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
