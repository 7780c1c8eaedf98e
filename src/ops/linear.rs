//! A linear layer with its activation as one operator: `y = activation(x · Wᵀ + b)`.
//!
//! Row-invariant: a row of `y` depends on that row of `x` only, bit for bit, whatever the number of rows and threads.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::GradientSum;
use super::activation::{self, Activation, activate};
use super::lanes::Element;
use super::parallel::zeros;
use super::patches::Patches;
use super::prepared::{PreparedWeight, WeightRef};
use super::product::{self, Weight};
use super::storage::{self, by_type, refuse, values};
use super::tape;

/// `activation(x · weightᵀ + bias)`; without a bias, none is added.
///
/// Shapes: x `[N, K]`, weight `[O, K]`, bias `[O]`, result `[N, O]`; all of one float type on one device. Own kernels
/// for `f32` and `f64` on the CPU, which add to the weight's gradient sum where there is one, else candle's operators.
/// Errors when a shape does not fit.
pub fn linear<'a>(
    x: &Tensor,
    weight: impl Into<WeightRef<'a>>,
    bias: Option<&Tensor>,
    activation: Activation,
) -> Result<Tensor> {
    let WeightRef { tensor: weight, prepared, gradients } = weight.into();
    check(x, weight, bias)?;
    if !storage::is_native(x) {
        return composed(x, weight, bias, activation);
    }
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let fused = activation.is_told_by_result();
    let operator = Linear {
        activation: if fused { activation } else { Activation::Identity },
        prepared: prepared.cloned(),
        gradients: gradients.cloned(),
    };
    let y = match bias {
        Some(bias) => tape::apply3(&x, &weight, &bias.contiguous()?, operator)?,
        None => tape::apply2(&x, &weight, operator)?,
    };
    if fused { Ok(y) } else { activate(&y, activation) }
}

fn check(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<()> {
    let outputs = weight.dims().first().copied();
    let biases = bias.map_or(outputs, |bias| bias.dims1().ok());
    match (x.dims(), weight.dims()) {
        ([_, k], [_, inputs]) if k == inputs && biases == outputs => Ok(()),
        (x, weight) => {
            let bias = bias.map(Tensor::dims);
            refuse(
                "linear",
                format!("x {x:?}, weight {weight:?} and bias {bias:?} must be [N, K], [O, K] and [O]"),
            )
        }
    }
}

/// The same function out of candle's own differentiable operators.
fn composed(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
    let y = x.matmul(&weight.t()?)?;
    activation.composed(&match bias {
        Some(bias) => y.broadcast_add(bias)?,
        None => y,
    })
}

/// The operator; its activation's derivative follows from the result.
struct Linear {
    activation: Activation,
    prepared: Option<PreparedWeight>,
    /// Where the weight's gradient goes, if not to automatic differentiation.
    gradients: Option<GradientSum>,
}

/// A storage and the view of it that an operator was given.
type View<'a> = (&'a CpuStorage, &'a Layout);

impl Linear {
    fn forward<T: Element>(&self, x: View, weight: View, bias: Option<View>) -> Result<(CpuStorage, Shape)> {
        let ((rows, inputs), (outputs, _)) = (x.1.shape().dims2()?, weight.1.shape().dims2()?);
        let weight = storage::slice::<T>(weight.0, weight.1)?;
        let weight = Weight::prepared_or_plain(self.prepared.as_ref(), weight, outputs, inputs);
        let x = Patches::matrix(storage::slice(x.0, x.1)?, inputs);
        let bias = bias.map(|bias| storage::slice(bias.0, bias.1)).transpose()?;
        let mut y = zeros(rows * outputs);
        product::rows(weight, &x, bias, self.activation, &mut y);
        Ok((T::to_cpu_storage_owned(y), Shape::from((rows, outputs))))
    }

    fn backward<T: Element>(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let (outputs, inputs) = weight.dims2()?;
        let gradient = gradient.contiguous()?;
        let (result, gradient) = (values::<T>(result)?, values::<T>(&gradient)?);
        let before = activation::backward(self.activation, result.slice()?, gradient.slice()?);
        let tensor = |values, shape: &Tensor| Tensor::from_vec(values, shape.shape(), &Device::Cpu);
        // The gradient of the observations themselves is wasted work: nothing tracks them.
        let x_gradient = x.track_op().then(|| {
            let weight = values(weight)?;
            tensor(product::inputs_gradient(&before, weight.slice()?, [x.dim(0)?, outputs, inputs]), x)
        });
        let weight_gradient = match &self.gradients {
            _ if !weight.track_op() => None,
            Some(sum) => {
                let x = values(x)?;
                let x = Patches::matrix(x.slice()?, inputs);
                sum.update(|sum, accumulate| {
                    product::add_weight_gradient(sum, &before, outputs, &x, accumulate);
                })?;
                None
            }
            None => {
                let x = values(x)?;
                let x = Patches::matrix(x.slice()?, inputs);
                Some(tensor(product::weight_gradient(&before, outputs, &x), weight)?)
            }
        };
        let bias_gradient = bias
            .filter(|bias| bias.track_op())
            .map(|bias| tensor(activation::column_sums(&before, outputs), bias));
        Ok([x_gradient.transpose()?, weight_gradient, bias_gradient.transpose()?])
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => self.forward::<T>((x, x_layout), (weight, weight_layout), None))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [x, weight, _] = by_type!(x.dtype(), T => self.backward::<T>(x, weight, None, result, gradient))?;
        Ok((x, weight))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let bias = Some((bias, bias_layout));
        by_type!(storage::dtype(x), T => self.forward::<T>((x, x_layout), (weight, weight_layout), bias))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [x, weight, bias] =
            by_type!(x.dtype(), T => self.backward::<T>(x, weight, Some(bias), result, gradient))?;
        Ok((x, weight, bias))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::{check_gradients, close, offset, pseudo_random};
    use super::*;
    use candle_core::{DType, Device, Var};

    const ALL: [Activation; 5] =
        [Activation::Identity, Activation::Relu, Activation::Tanh, Activation::Silu, Activation::Gelu];

    #[test]
    fn agrees_with_the_composed_form_and_honours_offsets() {
        for (n, k, o) in [(1, 1, 1), (3, 5, 2), (64, 64, 64), (13, 4, 33), (30, 100, 17), (2, 700, 6)] {
            let x = offset(&pseudo_random(&[n, k], 1, DType::F32));
            let weight = offset(&(pseudo_random(&[o, k], 2, DType::F32) * 0.3).unwrap());
            let bias = offset(&pseudo_random(&[o], 3, DType::F32));
            for activation in ALL {
                let fused = linear(&x, &weight, Some(&bias), activation).unwrap();
                close(&fused, &composed(&x, &weight, Some(&bias), activation).unwrap(), 1e-5);
            }
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (n, k, o) in [(1, 1, 1), (3, 5, 2), (2, 1, 40), (7, 9, 1)] {
            for activation in ALL {
                let inputs = [
                    pseudo_random(&[n, k], 1, DType::F64),
                    pseudo_random(&[o, k], 2, DType::F64),
                    pseudo_random(&[o], 3, DType::F64),
                ];
                check_gradients(&inputs, |t| linear(&t[0], &t[1], Some(&t[2]), activation));
                check_gradients(&inputs[..2], |t| linear(&t[0], &t[1], None, activation));
            }
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_in_any_batch_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for (k, o) in [(4, 64), (64, 1), (64, 2), (64, 64), (600, 50)] {
            let x = pseudo_random(&[200, k], 1, DType::F32);
            let weight = pseudo_random(&[o, k], 2, DType::F32);
            let bias = pseudo_random(&[o], 3, DType::F32);
            let rows = |first, count| -> Vec<Vec<f32>> {
                let x = x.narrow(0, first, count).unwrap();
                linear(&x, &weight, Some(&bias), Activation::Tanh).unwrap().to_vec2().unwrap()
            };
            let alone: Vec<Vec<f32>> = (0..200).flat_map(|row| rows(row, 1)).collect();
            for count in (1..=200).step_by(if k > 64 { 23 } else { 1 }) {
                assert_eq!(rows(200 - count, count), alone[200 - count..]);
                assert_eq!(with_threads(&pool, || rows(0, count)), alone[..count]);
            }
            let prepared = PreparedWeight::new(&weight).unwrap();
            let weight = WeightRef { tensor: &weight, prepared: prepared.as_ref(), gradients: None };
            let output = linear(&x.narrow(0, 0, 5).unwrap(), weight, Some(&bias), Activation::Tanh).unwrap();
            assert_eq!(output.to_vec2::<f32>().unwrap(), alone[..5]);
        }
    }

    #[test]
    fn threads_do_not_change_gradients_that_are_shared() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let x = pseudo_random(&[300, 96], 1, DType::F32);
        let weight = Var::from_tensor(&pseudo_random(&[80, 96], 2, DType::F32)).unwrap();
        let bias = pseudo_random(&[80], 3, DType::F32);
        let gradient = || {
            let y = linear(&x, &weight, Some(&bias), Activation::Relu).unwrap();
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            gradients.get(&weight).unwrap().to_vec2::<f32>().unwrap()
        };
        assert_eq!(gradient(), with_threads(&pool, gradient));
    }

    #[test]
    fn empty_batches_and_inputs_give_empty_results_and_zero_gradients() {
        for (n, k, o) in [(0, 3, 2), (3, 0, 2), (3, 2, 0)] {
            let variable =
                |shape: &[usize], seed| Var::from_tensor(&pseudo_random(shape, seed, DType::F32)).unwrap();
            let (x, weight, bias) = (variable(&[n, k], 1), variable(&[o, k], 2), variable(&[o], 3));
            let y = linear(&x, &weight, Some(&bias), Activation::Silu).unwrap();
            assert_eq!(y.dims(), [n, o]);
            let gradients = y.sum_all().unwrap().backward().unwrap();
            for variable in [&x, &weight] {
                let gradient =
                    gradients.get(variable).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(gradient.iter().all(|&value| value == 0.0));
            }
        }
    }

    #[test]
    fn a_gradient_sum_takes_what_differentiation_would_give_the_weight() {
        for (n, k, o) in [(5, 700, 40), (40, 8, 6), (9, 12, 3)] {
            let x = pseudo_random(&[n, k], 1, DType::F64);
            let weight = Var::from_tensor(&pseudo_random(&[o, k], 2, DType::F64)).unwrap();
            let sum = GradientSum::new(&weight).unwrap();
            let backward = |gradients| {
                let weight = WeightRef { tensor: &weight, prepared: None, gradients };
                let y = linear(&x, weight, None, Activation::Tanh).unwrap();
                y.sqr().unwrap().sum_all().unwrap().backward().unwrap()
            };
            let alone = backward(None).get(&weight).unwrap().clone();
            for times in 1..=2 {
                assert!(backward(Some(&sum)).get(&weight).is_none());
                close(&sum.tensor().unwrap(), &(&alone * f64::from(times)).unwrap(), 1e-12);
            }
        }
    }

    #[test]
    fn an_untracked_input_costs_no_gradient() {
        let x = pseudo_random(&[3, 4], 1, DType::F32);
        let weight = Var::from_tensor(&pseudo_random(&[2, 4], 2, DType::F32)).unwrap();
        let bias = Var::from_tensor(&pseudo_random(&[2], 3, DType::F32)).unwrap();
        let op = Linear { activation: Activation::Relu, prepared: None, gradients: None };
        let y = linear(&x, &weight, Some(&bias), Activation::Relu).unwrap();
        let (x, weight, bias) = CustomOp3::bwd(&op, &x, &weight, &bias, &y, &y.ones_like().unwrap()).unwrap();
        assert!(x.is_none() && weight.is_some() && bias.is_some());
    }

    #[test]
    fn a_nan_is_not_hidden_by_the_activation() {
        let x = Tensor::new(&[[f32::NAN, 1.0]], &Device::Cpu).unwrap();
        let weight = Var::from_tensor(&Tensor::new(&[[1.0_f32, 1.0]], &Device::Cpu).unwrap()).unwrap();
        let bias = Tensor::new(&[0.0_f32], &Device::Cpu).unwrap();
        for activation in ALL {
            let y = linear(&x, &weight, Some(&bias), activation).unwrap();
            assert!(y.to_vec2::<f32>().unwrap()[0][0].is_nan());
            let gradient = y.sum_all().unwrap().backward().unwrap();
            assert!(gradient.get(&weight).unwrap().to_vec2::<f32>().unwrap()[0][0].is_nan());
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_by_name() {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let error =
            linear(&zeros(&[2, 3]), &zeros(&[4, 5]), Some(&zeros(&[4])), Activation::Relu).unwrap_err();
        assert!(error.to_string().contains("linear") && error.to_string().contains("[4, 5]"));
    }
}
