//! Cases of the kernels behind the learner: recursions over time, updates of parameters, norms of gradients.

use candle_core::{DType, Device, Result, Tensor};

use super::Size;
use super::case::{Case, Work, indices, normal, rounding, values};
use crate::learner::advantage::{self, Boundaries, VtraceConfig, VtraceInput};
use crate::learner::optimizer::{self, AdamwConfig, EpsilonPlace, Step};
use crate::ops::cuda::optimizer::{adamw, rmsprop, sum_of_squares};
use crate::ops::cuda::scan::{self, Ends, VtraceBounds};
use crate::ops::cuda::{Argument, Array, Locked, lock};

fn refused(error: impl std::fmt::Display) -> candle_core::Error {
    candle_core::Error::Msg(error.to_string())
}

fn flags(tensor: &Tensor) -> Result<Vec<bool>> {
    Ok(tensor.flatten_all()?.to_vec1::<u8>()?.into_iter().map(|flag| flag != 0).collect())
}

/// What a scan reads, in the order of the kernel's inputs: log-ratios, rewards, values, discounts, terminated,
/// truncated, final values, bootstrap.
fn trajectories(steps: usize, columns: usize) -> Result<Vec<Tensor>> {
    let shape = [steps, columns];
    let rare = |seed| indices(&shape, 7, seed)?.eq(0_u32)?.to_dtype(DType::U8);
    Ok(vec![
        normal(&shape, 1, DType::F32)?,
        normal(&shape, 2, DType::F32)?,
        normal(&shape, 3, DType::F32)?,
        (normal(&shape, 4, DType::F32)?.abs()? * 0.3)?.minimum(1.0)?,
        rare(5)?,
        rare(6)?,
        normal(&shape, 7, DType::F32)?,
        normal(&[columns], 8, DType::F32)?,
    ])
}

const BOUNDS: VtraceBounds =
    VtraceBounds { log_ratio_limit: 1.5, rho_bar: 1.5, c_bar: 1.0, pg_rho_bar: 1.2, lambda: 0.9 };
const VTRACE: VtraceConfig = VtraceConfig { rho_bar: 1.5, c_bar: 1.0, pg_rho_bar: 1.2, lambda: 0.9 };
const GAMMA: f32 = 0.97;
const LAMBDA: f32 = 0.9;

pub(super) fn scan_cases(size: Size) -> Result<Vec<Case>> {
    let shapes: &[(usize, usize)] = match size {
        Size::Small => &[(1, 1), (0, 3), (20, 33), (7, 300)],
        Size::Large => &[(128, 16_384)],
    };
    shapes.iter().map(|&(steps, columns)| scans(steps, columns)).collect()
}

/// V-trace's targets and advantages, GAE's advantages and returns, discounted returns.
fn scans(steps: usize, columns: usize) -> Result<Case> {
    let inputs = trajectories(steps, columns)?;
    let given = inputs.clone();
    Ok(Case {
        name: format!("vtrace, gae and returns [{steps}, {columns}] f32"),
        inputs,
        kernel: Box::new(|inputs| {
            let locked: Vec<_> = inputs.iter().map(lock).collect();
            let views: Vec<_> = locked.iter().map(Locked::view).collect::<Result<_>>()?;
            let [log_rhos, rewards, values, discounts, terminated, truncated, final_values, bootstrap] =
                &views[..]
            else {
                return Err(refused("eight inputs are needed"));
            };
            let ends = Ends {
                terminated: terminated.clone(),
                truncated: truncated.clone(),
                final_values: final_values.clone(),
                bootstrap: bootstrap.clone(),
            };
            let vtrace = scan::vtrace([log_rhos, rewards, values, discounts], &ends, BOUNDS)?;
            let gae = scan::gae(rewards, values, &ends, GAMMA, LAMBDA)?;
            let returns = scan::discounted_returns(rewards, discounts, &ends)?;
            Ok([vtrace.0, vtrace.1, gae.0, gae.1, returns].map(Array::into_tensor).into())
        }),
        expected: Box::new(move || {
            let floats = |index: usize| values(&given[index]);
            let (log_rhos, rewards, state_values, discounts) =
                (floats(0)?, floats(1)?, floats(2)?, floats(3)?);
            let (terminated, truncated) = (flags(&given[4])?, flags(&given[5])?);
            let (final_values, bootstrap) = (floats(6)?, floats(7)?);
            let boundaries = Boundaries {
                terminated: &terminated,
                truncated: &truncated,
                final_values: &final_values,
                bootstrap: &bootstrap,
            };
            let input = VtraceInput {
                log_rhos: &log_rhos,
                rewards: &rewards,
                values: &state_values,
                discounts: &discounts,
            };
            let vtrace = advantage::vtrace(&VTRACE, &input, &boundaries).map_err(refused)?;
            let (gamma, lambda) = (f64::from(GAMMA), f64::from(LAMBDA));
            let gae = advantage::gae(gamma, lambda, &rewards, &state_values, &boundaries).map_err(refused)?;
            let returns =
                advantage::discounted_returns(&rewards, &discounts, &boundaries).map_err(refused)?;
            [vtrace.vs, vtrace.pg_advantages, gae.advantages, gae.returns, returns]
                .into_iter()
                .map(|values| Tensor::from_vec(values, (steps, columns), &Device::Cpu))
                .collect()
        }),
        bound: 3e-6,
        work: Work { bytes: steps * columns * (4 * 15 + 6), operations: 0 },
    })
}

const STEP: Step = Step { learning_rate: 0.01, gradient_scale: 0.5, update: 3 };
const ADAMW: AdamwConfig = AdamwConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-6, weight_decay: 0.1 };
const DECAY: f64 = 0.95;
const EPSILON: f64 = 0.01;

pub(super) fn optimizer_cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let counts: &[usize] = match size {
        Size::Small => &[0, 1, 1000, 40_000],
        Size::Large => &[100_000_000],
    };
    let mut cases = Vec::new();
    for &count in counts {
        cases.push(adamw_case(count, dtype)?);
        cases.push(rmsprop_case(count, EpsilonPlace::Tf, dtype)?);
        cases.push(rmsprop_case(count, EpsilonPlace::Torch, dtype)?);
        cases.push(squares(count, dtype)?);
    }
    Ok(cases)
}

/// Parameter, first moment, second moment (not negative), gradient.
fn state(count: usize, dtype: DType) -> Result<Vec<Tensor>> {
    Ok(vec![
        normal(&[count], 1, DType::F32)?,
        normal(&[count], 2, DType::F32)?,
        normal(&[count], 3, DType::F32)?.sqr()?,
        normal(&[count], 4, dtype)?,
    ])
}

/// The bf16 copy of a parameter, as f64.
fn copy(parameter: &[f64]) -> Result<Tensor> {
    Tensor::new(parameter, &Device::Cpu)?.to_dtype(DType::BF16)?.to_dtype(DType::F64)
}

fn adamw_case(count: usize, dtype: DType) -> Result<Case> {
    let inputs = state(count, dtype)?;
    let given = inputs.clone();
    Ok(Case {
        name: format!("adamw [{count}] {dtype:?}"),
        inputs,
        kernel: Box::new(|inputs| {
            let mut parameter = Array::copy_of(&inputs[0])?;
            let mut moments = [Array::copy_of(&inputs[1])?, Array::copy_of(&inputs[2])?];
            let mut copy = Array::copy_of(&inputs[0].to_dtype(DType::BF16)?)?;
            let [first, second] = &mut moments;
            let places = [&mut parameter, first, second, &mut copy].map(Argument::Write);
            adamw(places, &lock(&inputs[3]).view()?, ADAMW.factors(&STEP))?;
            let [first, second] = moments;
            Ok([parameter, first, second, copy].map(Array::into_tensor).into())
        }),
        expected: Box::new(move || {
            let mut parameter = values(&given[0])?;
            let (mut first, mut second) = (values(&given[1])?, values(&given[2])?);
            optimizer::adamw_update(
                &ADAMW,
                &STEP,
                &mut parameter,
                &mut first,
                &mut second,
                &values(&given[3])?,
            );
            let tensor = |values: Vec<f64>| Tensor::from_vec(values, count, &Device::Cpu);
            let copy = copy(&parameter)?;
            Ok(vec![tensor(parameter)?, tensor(first)?, tensor(second)?, copy])
        }),
        // A value between two of bf16 may be rounded to either.
        bound: rounding(DType::BF16),
        // Parameter and moments are copied before the update, and a copy is rounded.
        work: Work { bytes: count * (6 * 4 + dtype.size_in_bytes() + 2 + 6 * 4 + 10), operations: 0 },
    })
}

fn rmsprop_case(count: usize, place: EpsilonPlace, dtype: DType) -> Result<Case> {
    let inputs = state(count, dtype)?;
    let given = inputs.clone();
    Ok(Case {
        name: format!("rmsprop {place:?} [{count}] {dtype:?}"),
        inputs,
        kernel: Box::new(move |inputs| {
            let mut parameter = Array::copy_of(&inputs[0])?;
            let mut second = Array::copy_of(&inputs[2])?;
            let places = [Argument::Write(&mut parameter), Argument::Write(&mut second), Argument::Nothing];
            let factors = optimizer::rmsprop_factors(place, DECAY, EPSILON, &STEP);
            rmsprop(places, &lock(&inputs[3]).view()?, factors)?;
            Ok(vec![parameter.into_tensor(), second.into_tensor()])
        }),
        expected: Box::new(move || {
            let (mut parameter, mut second) = (values(&given[0])?, values(&given[2])?);
            let gradient = values(&given[3])?;
            optimizer::rmsprop_accumulate(DECAY, STEP.gradient_scale, &mut second, &gradient);
            optimizer::rmsprop_update(place, EPSILON, &STEP, &mut parameter, &second, &gradient);
            let tensor = |values: Vec<f64>| Tensor::from_vec(values, count, &Device::Cpu);
            Ok(vec![tensor(parameter)?, tensor(second)?])
        }),
        bound: rounding(DType::F32),
        // Parameter and moment are copied before the update.
        work: Work { bytes: count * (4 * 4 + dtype.size_in_bytes() + 4 * 4), operations: 0 },
    })
}

fn squares(count: usize, dtype: DType) -> Result<Case> {
    let input = normal(&[count], 1, dtype)?;
    let given = input.clone();
    Ok(Case {
        name: format!("sum_of_squares [{count}] {dtype:?}"),
        inputs: vec![input],
        kernel: Box::new(|inputs| Ok(vec![sum_of_squares(&lock(&inputs[0]).view()?)?.into_tensor()])),
        expected: Box::new(move || {
            let sum: f64 = values(&given)?.into_iter().map(|value| value * value).sum();
            Ok(vec![Tensor::new(&[sum], &Device::Cpu)?])
        }),
        bound: 1e-12,
        work: Work { bytes: count * dtype.size_in_bytes(), operations: 0 },
    })
}
