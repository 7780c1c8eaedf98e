//! Backward recursions over time, `[T, B]`; `kernels/scan.cu`. Values f32, flags u8.

use candle_core::{DType, Result};

use super::super::storage::refuse;
use super::launch::{Argument, Grid, SCAN, int, launch};
use super::view::{Array, View};

/// The ends of episodes: flags and final values `[T, B]`, bootstrap `[B]`.
pub(crate) struct Ends<'a> {
    pub(crate) terminated: View<'a>,
    pub(crate) truncated: View<'a>,
    pub(crate) final_values: View<'a>,
    pub(crate) bootstrap: View<'a>,
}

impl<'a> Ends<'a> {
    /// T and B, when everything fits.
    fn check(&self, kernel: &str, arrays: &[&View]) -> Result<(usize, usize)> {
        let (steps, columns) = self.final_values.shape().dims2()?;
        for flags in [&self.terminated, &self.truncated] {
            if flags.dims() != [steps, columns] || flags.dtype() != DType::U8 {
                return refuse(kernel, format!("flags {:?} for [{steps}, {columns}]", flags.dims()));
            }
        }
        for &array in arrays {
            if array.dims() != [steps, columns] || array.dtype() != DType::F32 {
                return refuse(kernel, format!("values {:?} for [{steps}, {columns}]", array.dims()));
            }
        }
        if self.bootstrap.dims() != [columns] || self.bootstrap.dtype() != DType::F32 {
            return refuse(kernel, format!("bootstrap {:?} for {columns} columns", self.bootstrap.dims()));
        }
        Ok((steps, columns))
    }

    fn arguments(&self) -> [Argument<'a>; 4] {
        [&self.terminated, &self.truncated, &self.final_values, &self.bootstrap].map(Into::into)
    }
}

/// The bounds of V-trace; `log_ratio_limit` is where log-ratios are cut before the exponential.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VtraceBounds {
    pub(crate) log_ratio_limit: f32,
    pub(crate) rho_bar: f32,
    pub(crate) c_bar: f32,
    pub(crate) pg_rho_bar: f32,
    pub(crate) lambda: f32,
}

/// Targets and advantages from log-ratios, rewards, values and discounts.
pub(crate) fn vtrace(inputs: [&View; 4], ends: &Ends, bounds: VtraceBounds) -> Result<(Array, Array)> {
    let (steps, columns) = ends.check("vtrace", &inputs)?;
    let (mut targets, mut advantages) = (Array::like(inputs[0])?, Array::like(inputs[0])?);
    let mut arguments: Vec<Argument> = inputs.map(Into::into).into();
    arguments.extend(ends.arguments());
    arguments.extend([(&mut targets).into(), (&mut advantages).into(), int(steps)?, int(columns)?]);
    let VtraceBounds { log_ratio_limit, rho_bar, c_bar, pg_rho_bar, lambda } = bounds;
    arguments.extend([log_ratio_limit, rho_bar, c_bar, pg_rho_bar, lambda].map(Argument::Float));
    launch(&inputs[0].device(), SCAN, "vtrace", Grid::threads(columns), &mut arguments)?;
    Ok((targets, advantages))
}

/// Advantages and returns.
pub(crate) fn gae(
    rewards: &View,
    values: &View,
    ends: &Ends,
    gamma: f32,
    lambda: f32,
) -> Result<(Array, Array)> {
    let (steps, columns) = ends.check("gae", &[rewards, values])?;
    let (mut advantages, mut returns) = (Array::like(values)?, Array::like(values)?);
    let mut arguments: Vec<Argument> = vec![rewards.into(), values.into()];
    arguments.extend(ends.arguments());
    arguments.extend([(&mut advantages).into(), (&mut returns).into(), int(steps)?, int(columns)?]);
    arguments.extend([gamma.into(), lambda.into()]);
    launch(&values.device(), SCAN, "gae", Grid::threads(columns), &mut arguments)?;
    Ok((advantages, returns))
}

pub(crate) fn discounted_returns(rewards: &View, discounts: &View, ends: &Ends) -> Result<Array> {
    let (steps, columns) = ends.check("discounted_returns", &[rewards, discounts])?;
    let mut returns = Array::like(rewards)?;
    let mut arguments: Vec<Argument> = vec![rewards.into(), discounts.into()];
    arguments.extend(ends.arguments());
    arguments.extend([(&mut returns).into(), int(steps)?, int(columns)?]);
    launch(&rewards.device(), SCAN, "discounted_returns", Grid::threads(columns), &mut arguments)?;
    Ok(returns)
}
