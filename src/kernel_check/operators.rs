//! Operators as their users call them: results and gradients on a device against the CPU, through candle's autograd.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};

use super::case::{indices, normal, values};
use crate::learner::optimizer::{
    AdamwConfig, Optimizer, OptimizerConfig, RmspropTfConfig, RmspropTorchConfig,
};
use crate::ops::{self, Activation, LstmParameters, Sequence};

type Function = Box<dyn Fn(&[Tensor], &[Tensor]) -> Result<Tensor>>;

/// An operator with its inputs.
pub(super) struct OperatorCase {
    pub(super) name: &'static str,
    /// Tracked, f32.
    floats: Vec<Tensor>,
    integers: Vec<Tensor>,
    function: Function,
    pub(super) bound: f64,
}

impl OperatorCase {
    fn new(
        name: &'static str,
        shapes: &[&[usize]],
        integers: Vec<Tensor>,
        function: impl Fn(&[Tensor], &[Tensor]) -> Result<Tensor> + 'static,
    ) -> Result<Self> {
        let floats = shapes
            .iter()
            .enumerate()
            .map(|(seed, shape)| normal(shape, seed as u64 + 1, DType::F32)? * 0.5)
            .collect::<Result<_>>()?;
        Ok(Self { name, floats, integers, function: Box::new(function), bound: 2e-5 })
    }

    /// The result, and the gradients of the floats under a fixed weighting of the result.
    fn results(&self, device: &Device) -> Result<Vec<Tensor>> {
        let variables: Vec<Var> = self
            .floats
            .iter()
            .map(|float| Var::from_tensor(&float.to_device(device)?))
            .collect::<Result<_>>()?;
        let tracked: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
        let integers: Vec<Tensor> =
            self.integers.iter().map(|integer| integer.to_device(device)).collect::<Result<_>>()?;
        let result = (self.function)(&tracked, &integers)?;
        let weights = normal(result.dims(), 99, DType::F32)?.to_device(device)?;
        let gradients: GradStore = (&result * weights)?.sum_all()?.backward()?;
        let mut all = vec![result];
        for variable in &variables {
            match gradients.get(variable) {
                Some(gradient) => all.push(gradient.clone()),
                None => return Err(candle_core::Error::Msg(format!("{}: a gradient is missing", self.name))),
            }
        }
        Ok(all)
    }

    /// Between device and CPU, relative to the larger of 1 and the largest value.
    pub(super) fn largest_difference(&self, device: &Device) -> Result<f64> {
        difference(&self.results(&Device::Cpu)?, &self.results(device)?)
    }
}

fn difference(expected: &[Tensor], got: &[Tensor]) -> Result<f64> {
    let mut largest: f64 = 0.0;
    for (expected, got) in expected.iter().zip(got) {
        let (expected, got) = (values(expected)?, values(got)?);
        let scale = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (a, b) in expected.into_iter().zip(got) {
            let difference = (a - b).abs() / scale;
            // A NaN on one side only must not be lost in a maximum.
            largest = if difference > largest || difference.is_nan() { difference } else { largest };
        }
    }
    Ok(if largest.is_nan() { f64::INFINITY } else { largest })
}

/// Every operator that has a kernel, and those that are composed on devices.
pub(super) fn cases() -> Result<Vec<OperatorCase>> {
    let flags = |shape: &[usize], seed| indices(shape, 5, seed)?.eq(0_u32)?.to_dtype(DType::U8);
    let mut cases = vec![
        OperatorCase::new("categorical", &[&[33, 18]], vec![indices(&[33], 18, 1)?], |x, ids| {
            ops::categorical(&x[0], &ids[0])
        })?,
        OperatorCase::new("mask_logits", &[&[33, 18]], vec![flags(&[33, 18], 2)?], |x, mask| {
            // Masked entries would drown the others in the comparison.
            ops::mask_logits(&x[0], &mask[0])?.maximum(-10.0)
        })?,
        OperatorCase::new("squashed_gaussian", &[&[33, 6], &[33, 6], &[33, 6]], vec![], |x, _| {
            ops::squashed_gaussian(&x[0], &x[1], &x[2])
        })?,
        OperatorCase::new("lstm_cell", &[&[9, 128], &[9, 64]], vec![], |x, _| ops::lstm_cell(&x[0], &x[1]))?,
        OperatorCase::new(
            "lstm_unroll",
            &[&[5, 9, 7], &[9, 64], &[128, 7], &[128, 32], &[128]],
            vec![flags(&[5, 9], 3)?],
            |x, starts| {
                let parameters = LstmParameters {
                    input_weight: (&x[2]).into(),
                    hidden_weight: (&x[3]).into(),
                    bias: &x[4],
                };
                Ok(ops::lstm_unroll(&x[0], &x[1], &starts[0], parameters)?.1)
            },
        )?,
        OperatorCase::new("linear", &[&[33, 20], &[50, 20], &[50]], vec![], |x, _| {
            ops::linear(&x[0], &x[1], Some(&x[2]), Activation::Gelu)
        })?,
        OperatorCase::new("conv2d", &[&[3, 10, 10, 4], &[16, 3, 3, 4], &[16]], vec![], |x, _| {
            ops::conv2d(&x[0], &x[1], &x[2], 1, 0, Activation::Silu)
        })?,
        OperatorCase::new("max_pool2d", &[&[3, 9, 9, 4]], vec![], |x, _| ops::max_pool2d(&x[0], 3, 2, 1))?,
    ];
    cases.extend(language_cases()?);
    for config in [
        OptimizerConfig::Adamw(AdamwConfig::default()),
        OptimizerConfig::RmspropTf(RmspropTfConfig::default()),
        OptimizerConfig::RmspropTorch(RmspropTorchConfig::default()),
    ] {
        cases.push(updates(config)?);
    }
    Ok(cases)
}

/// The operators of language models.
fn language_cases() -> Result<Vec<OperatorCase>> {
    let angles = normal(&[50, 8], 9, DType::F32)?;
    let tables = vec![indices(&[21], 50, 4)?, angles.cos()?, angles.sin()?];
    let routes = indices(&[40, 1], 6, 6)?;
    let routes = Tensor::cat(&[&routes, &(&routes + 1.0)?, &(&routes + 2.0)?], 1)?;
    Ok(vec![
        OperatorCase::new("rms_norm", &[&[70, 96], &[96]], vec![], |x, _| ops::rms_norm(&x[0], &x[1], 1e-5))?,
        OperatorCase::new("layer_norm", &[&[70, 96], &[96], &[96]], vec![], |x, _| {
            ops::layer_norm(&x[0], &x[1], &x[2], 1e-5)
        })?,
        OperatorCase::new("rotary", &[&[21, 3, 16]], tables, |x, tables| {
            ops::rotary(&x[0], &tables[1], &tables[2], &tables[0])
        })?,
        OperatorCase::new("swiglu", &[&[33, 50], &[33, 50]], vec![], |x, _| ops::swiglu(&x[0], &x[1]))?,
        OperatorCase::new("embedding", &[&[40, 24]], vec![indices(&[5, 30], 40, 5)?], |x, ids| {
            ops::embedding(&x[0], &ids[0])
        })?,
        OperatorCase::new("attention", &[&[90, 4, 32], &[90, 2, 32], &[90, 2, 32]], vec![], |x, _| {
            let sequences = [(0..0, 0..35), (0..35, 35..50), (0..35, 50..51), (0..0, 51..90)]
                .map(|(prefix, rows)| Sequence { prefix, rows });
            ops::attention(&x[0], &x[1], &x[2], &sequences, 0.2)
        })?,
        OperatorCase::new(
            "vocabulary_log_prob",
            &[&[19, 32], &[9000, 32]],
            vec![indices(&[19], 9000, 7)?],
            |x, targets| ops::vocabulary_log_prob(&x[0], &x[1], &targets[0], 0.8),
        )?,
        OperatorCase::new(
            "mixture",
            &[&[40, 16], &[40, 3], &[8, 24, 16], &[8, 24, 16], &[8, 16, 24]],
            vec![routes],
            |x, ids| ops::mixture(&x[0], &ids[0], &x[1], &x[2], &x[3], &x[4]),
        )?,
    ])
}

/// Three clipped updates of two parameters; the gradients reported are those of the last loss.
fn updates(config: OptimizerConfig) -> Result<OperatorCase> {
    let name = match config {
        OptimizerConfig::Adamw(_) => "three updates of adamw",
        OptimizerConfig::RmspropTf(_) => "three updates of rmsprop_tf",
        OptimizerConfig::RmspropTorch(_) => "three updates of rmsprop_torch",
    };
    OperatorCase::new(name, &[&[70, 30], &[70]], vec![], move |x, _| {
        let failed =
            |error: crate::learner::optimizer::OptimizerError| candle_core::Error::Msg(error.to_string());
        let parameters: Vec<Var> = x.iter().map(|x| Var::from_tensor(&x.detach())).collect::<Result<_>>()?;
        let named = parameters.iter().enumerate().map(|(i, parameter)| (i.to_string(), parameter.clone()));
        let mut optimizer = Optimizer::new(&config, named.collect()).map_err(failed)?;
        for _ in 0..3 {
            let product = parameters[0].broadcast_mul(&parameters[1].unsqueeze(1)?)?;
            let gradients = product.sqr()?.sum_all()?.backward()?;
            optimizer.step(&gradients, 0.01, 1.0).map_err(failed)?;
        }
        // The inputs take part, so that they have gradients.
        let sum = x[0].broadcast_mul(&x[1].unsqueeze(1)?)?;
        parameters[0].as_detached_tensor().broadcast_mul(&parameters[1].as_detached_tensor().unsqueeze(1)?)?
            + sum
    })
}
