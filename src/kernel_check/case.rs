//! One case, how its inputs are made, and how its results are compared.

use candle_core::{DType, Device, Error, Result, Tensor, Var};

use crate::random::CounterRng;

/// What kernels cannot do without.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a device is timed"))]
pub(super) struct Work {
    /// Memory that is read or written, each value once.
    pub(super) bytes: usize,
    /// Multiplications and additions.
    pub(super) operations: usize,
}

type Kernel = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;
type Expected = Box<dyn Fn() -> Result<Vec<Tensor>>>;

/// See the module's documentation.
pub(super) struct Case {
    pub(super) name: String,
    /// On the CPU; the kernel gets them on its device, as views that do not start where their storage does.
    pub(super) inputs: Vec<Tensor>,
    pub(super) kernel: Kernel,
    /// `f64`, or integers that must be equal.
    pub(super) expected: Expected,
    /// Largest difference of a value, relative to the larger of 1 and the largest value of the same result.
    pub(super) bound: f64,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a device is timed"))]
    pub(super) work: Work,
}

/// Different values of a tensor; more would take long to draw.
const DRAWN: usize = 1 << 20;

/// Normal values that the type represents exactly.
pub(super) fn normal(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    let mut rng = CounterRng::new(seed);
    let count = shape.iter().product();
    let mut values: Vec<f32> = (0..DRAWN.min(count)).map(|_| rng.normal() as f32).collect();
    while values.len() < count {
        let more = values.len().min(count - values.len());
        values.extend_from_within(..more);
    }
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)
}

/// Integers below `limit`.
pub(super) fn indices(shape: &[usize], limit: usize, seed: u64) -> Result<Tensor> {
    let mut rng = CounterRng::new(seed);
    let values: Vec<u32> = (0..shape.iter().product()).map(|_| rng.below(limit) as u32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// The same values as a contiguous view behind as many others.
pub(super) fn offset(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    let flat = tensor.flatten_all()?.to_device(device)?;
    Tensor::cat(&[&flat, &flat], 0)?.narrow(0, flat.dim(0)?, flat.dim(0)?)?.reshape(tensor.shape())
}

/// A differentiable function: the kernel gets the floats, the integers and the gradient of the result, and gives the
/// result and the gradients of the floats.
pub(super) struct Differentiable<R, K> {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) floats: Vec<Tensor>,
    pub(super) integers: Vec<Tensor>,
    pub(super) shape_of_result: Vec<usize>,
    /// In `f64`, differentiable.
    pub(super) reference: R,
    pub(super) kernel: K,
    pub(super) bound: f64,
    pub(super) work: Work,
}

impl<R, K> Differentiable<R, K>
where
    R: Fn(&[Tensor], &[Tensor]) -> Result<Tensor> + 'static,
    K: Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'static,
{
    pub(super) fn case(self) -> Result<Case> {
        let Self { name, dtype, floats, integers, shape_of_result, reference, kernel, bound, work } = self;
        let gradient = normal(&shape_of_result, 77, dtype)?;
        let mut inputs = floats.clone();
        inputs.extend(integers.iter().cloned());
        inputs.push(gradient.clone());
        let expected = move || {
            let variables: Vec<Var> = floats
                .iter()
                .map(|float| Var::from_tensor(&float.to_dtype(DType::F64)?))
                .collect::<Result<_>>()?;
            let tracked: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
            let result = reference(&tracked, &integers)?;
            let gradients = (&result * gradient.to_dtype(DType::F64)?)?.sum_all()?.backward()?;
            let mut all = vec![result.detach()];
            for variable in &variables {
                let gradient = gradients.get(variable).cloned();
                all.push(gradient.map_or_else(|| variable.zeros_like(), Ok)?);
            }
            Ok(all)
        };
        let name = format!("{name} {}", if dtype == DType::F32 { "f32" } else { "bf16" });
        Ok(Case { name, inputs, kernel: Box::new(kernel), expected: Box::new(expected), bound, work })
    }
}

/// A bound for results that differ by roundings of their own type and of f32 sums.
pub(super) fn rounding(dtype: DType) -> f64 {
    if dtype == DType::F32 { 3e-6 } else { 6e-3 }
}

impl Case {
    /// The inputs on a device.
    pub(super) fn inputs_on(&self, device: &Device) -> Result<Vec<Tensor>> {
        self.inputs.iter().map(|input| offset(input, device)).collect()
    }

    /// The largest difference of a result, as the bound counts it; an error when one is not as expected in kind.
    pub(super) fn largest_difference(&self, results: &[Tensor]) -> Result<f64> {
        let expected = (self.expected)()?;
        let problem = |what: String| Err(Error::Msg(format!("{}: {what}", self.name)));
        if expected.len() != results.len() {
            return problem(format!("{} results instead of {}", results.len(), expected.len()));
        }
        let mut largest: f64 = 0.0;
        for (index, (result, expected)) in results.iter().zip(&expected).enumerate() {
            if result.dims() != expected.dims() {
                return problem(format!("result {index} is {:?}, not {:?}", result.dims(), expected.dims()));
            }
            if expected.dtype() == DType::U32 {
                let (got, expected) = (integers(result)?, integers(expected)?);
                if let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) {
                    return problem(format!("result {index} has {} at {at}, not {}", got[at], expected[at]));
                }
                continue;
            }
            let (got, expected) = (values(result)?, values(expected)?);
            let scale =
                expected.iter().filter(|value| value.is_finite()).fold(1.0, |a: f64, b| a.max(b.abs()));
            for (at, (got, expected)) in got.into_iter().zip(expected).enumerate() {
                if got.is_nan() != expected.is_nan() {
                    return problem(format!("result {index} has {got} at {at}, not {expected}"));
                }
                if !got.is_nan() && got != expected {
                    largest = largest.max((got - expected).abs() / scale);
                }
            }
        }
        Ok(largest)
    }
}

/// All values in `f64`.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

fn integers(tensor: &Tensor) -> Result<Vec<u32>> {
    tensor.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()
}
