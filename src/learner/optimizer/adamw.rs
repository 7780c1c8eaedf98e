//! Adam with decoupled weight decay.
//!
//! ```text
//! p ← p (1 − lr weight_decay)
//! m ← beta1 m + (1 − beta1) g        s ← beta2 s + (1 − beta2) g²        both start at 0
//! p ← p − lr m̂ / (sqrt(ŝ) + epsilon),   m̂ = m / (1 − beta1^k),  ŝ = s / (1 − beta2^k),  k = 1, 2, …
//! ```
//!
//! Source: Loshchilov & Hutter, "Decoupled weight decay regularization", 2019 (arXiv 1711.05101), algorithm 2.

#![expect(
    clippy::inline_always,
    reason = "vector widths reach only what is inlined into the dispatched loop"
)]

use candle_core::{Result, Tensor, Var};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::in_place::{InPlace, Kernel};
use super::rmsprop::rmsprop_accumulate;
use super::rule::{Rule, Step};
use crate::learner::Real;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
use crate::ops::cuda::optimizer::AdamwFactors;
#[cfg(feature = "cuda")]
use crate::ops::cuda::{Argument, lock, optimizer::adamw};

/// Settings of AdamW; with `weight_decay` 0 it is Adam.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdamwConfig {
    /// Share of the first moment that an update keeps.
    pub beta1: f64,
    /// Share of the second moment that an update keeps.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of each parameter that an update takes away, per unit of learning rate.
    pub weight_decay: f64,
}

impl Default for AdamwConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

/// One update of a parameter and its moments, for every entry; the module's documentation has the formula.
pub fn adamw_update<F: Real>(
    config: &AdamwConfig,
    step: &Step,
    parameter: &mut [F],
    first_moment: &mut [F],
    second_moment: &mut [F],
    gradient: &[F],
) {
    first_moment_update(config.beta1, step.gradient_scale, first_moment, gradient);
    rmsprop_accumulate(config.beta2, step.gradient_scale, second_moment, gradient);
    parameter_update(config, step, parameter, first_moment, second_moment);
}

#[inline(always)]
fn first_moment_update<F: Real>(beta1: f64, gradient_scale: f64, first_moment: &mut [F], gradient: &[F]) {
    let (keep, take) = (F::narrow(beta1), F::narrow((1.0 - beta1) * gradient_scale));
    for (moment, &gradient) in first_moment.iter_mut().zip(gradient) {
        *moment = keep * *moment + take * gradient;
    }
}

#[inline(always)]
fn parameter_update<F: Real>(
    config: &AdamwConfig,
    step: &Step,
    parameter: &mut [F],
    first_moment: &[F],
    second_moment: &[F],
) {
    let (first_correction, second_correction) = config.corrections(step);
    let keep = F::narrow(1.0 - step.learning_rate * config.weight_decay);
    let rate = F::narrow(step.learning_rate / first_correction);
    let root_correction = F::narrow(second_correction.sqrt().recip());
    let epsilon = F::narrow(config.epsilon);
    for ((parameter, &first), &second) in parameter.iter_mut().zip(first_moment).zip(second_moment) {
        *parameter = keep * *parameter - rate * first / (second.sqrt() * root_correction + epsilon);
    }
}

impl AdamwConfig {
    /// 1 − beta1^k and 1 − beta2^k.
    fn corrections(&self, step: &Step) -> (f64, f64) {
        let k = i32::try_from(step.update).unwrap_or(i32::MAX);
        (1.0 - self.beta1.powi(k), 1.0 - self.beta2.powi(k))
    }
}

#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
impl AdamwConfig {
    /// What the kernel of an update multiplies with.
    pub(crate) fn factors(&self, step: &Step) -> AdamwFactors {
        let (first_correction, second_correction) = self.corrections(step);
        AdamwFactors {
            keep_first: self.beta1 as f32,
            take_first: ((1.0 - self.beta1) * step.gradient_scale) as f32,
            keep_second: self.beta2 as f32,
            take_second: (1.0 - self.beta2) as f32,
            scale: step.gradient_scale as f32,
            keep: (1.0 - step.learning_rate * self.weight_decay) as f32,
            rate: (step.learning_rate / first_correction) as f32,
            root_correction: second_correction.sqrt().recip() as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

struct FirstMoment {
    beta1: f64,
    gradient_scale: f64,
}

impl Kernel<1> for FirstMoment {
    const NAME: &'static str = "adamw-first-moment";

    #[inline(always)]
    fn run<F: Real>(&self, first_moment: &mut [F], [gradient]: [&[F]; 1]) {
        first_moment_update(self.beta1, self.gradient_scale, first_moment, gradient);
    }
}

struct SecondMoment {
    beta2: f64,
    gradient_scale: f64,
}

impl Kernel<1> for SecondMoment {
    const NAME: &'static str = "adamw-second-moment";

    #[inline(always)]
    fn run<F: Real>(&self, second_moment: &mut [F], [gradient]: [&[F]; 1]) {
        rmsprop_accumulate(self.beta2, self.gradient_scale, second_moment, gradient);
    }
}

struct Update {
    config: AdamwConfig,
    step: Step,
}

impl Kernel<2> for Update {
    const NAME: &'static str = "adamw-update";

    #[inline(always)]
    fn run<F: Real>(&self, parameter: &mut [F], [first_moment, second_moment]: [&[F]; 2]) {
        parameter_update(&self.config, &self.step, parameter, first_moment, second_moment);
    }
}

impl Rule for AdamwConfig {
    fn moments(&self) -> &'static [(&'static str, f64)] {
        &[("first_moment", 0.0), ("second_moment", 0.0)]
    }

    fn update_in_place(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let gradient_scale = step.gradient_scale;
        moments[0].inplace_op2(gradient, &InPlace(FirstMoment { beta1: self.beta1, gradient_scale }))?;
        moments[1].inplace_op2(gradient, &InPlace(SecondMoment { beta2: self.beta2, gradient_scale }))?;
        parameter.inplace_op3(&moments[0], &moments[1], &InPlace(Update { config: *self, step: *step }))
    }

    #[cfg(feature = "cuda")]
    fn update_on_device(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let places = (lock(parameter), lock(&moments[0]), lock(&moments[1]));
        let [parameter, first, second] = [places.0.view()?, places.1.view()?, places.2.view()?];
        let places = [parameter, first, second].map(Argument::Update);
        let [parameter, first, second] = places;
        adamw([parameter, first, second, Argument::Nothing], &lock(gradient).view()?, self.factors(step))
    }

    fn update_composed(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let gradient = (gradient * step.gradient_scale)?;
        moments[0] = ((&moments[0] * self.beta1)? + (&gradient * (1.0 - self.beta1))?)?;
        moments[1] = ((&moments[1] * self.beta2)? + (gradient.sqr()? * (1.0 - self.beta2))?)?;
        let (first_correction, second_correction) = self.corrections(step);
        let divisor = ((moments[1].sqrt()? * second_correction.sqrt().recip())? + self.epsilon)?;
        let change = ((&moments[0] * (step.learning_rate / first_correction))? / divisor)?;
        let kept = (parameter.as_detached_tensor() * (1.0 - step.learning_rate * self.weight_decay))?;
        parameter.set(&(kept - change)?)
    }
}
