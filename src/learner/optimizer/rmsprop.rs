//! RMSProp without momentum, not centred, in its two conventions of where epsilon stands.
//!
//! ```text
//! s ← decay s + (1 − decay) g²
//! tf:     p ← p − lr g / sqrt(s + epsilon)        s starts at 1
//! torch:  p ← p − lr g / (sqrt(s) + epsilon)      s starts at 0
//! ```
//!
//! Source: Tieleman & Hinton, "RMSProp", Coursera lecture 6.5, 2012; the conventions are those of TensorFlow's and
//! PyTorch's optimisers. A published setting belongs to one of them: the two differ most while s is small.

#![expect(
    clippy::inline_always,
    reason = "vector widths reach only what is inlined into the dispatched loop"
)]

use candle_core::{Result, Tensor, Var};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::in_place::{InPlace, Kernel};
use super::rule::{Rule, Step};
use crate::learner::Real;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
use crate::ops::cuda::optimizer::RmspropFactors;
#[cfg(feature = "cuda")]
use crate::ops::cuda::{Argument, lock, optimizer::rmsprop};

/// Where epsilon stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsilonPlace {
    /// Inside the root; the second moment starts at 1.
    Tf,
    /// Outside the root; the second moment starts at 0.
    Torch,
}

/// Settings of RMSProp with epsilon inside the root and a second moment that starts at 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RmspropTfConfig {
    /// Share of the second moment that an update keeps.
    pub decay: f64,
    /// Added to the second moment, under the root.
    pub epsilon: f64,
}

impl Default for RmspropTfConfig {
    fn default() -> Self {
        Self { decay: 0.99, epsilon: 0.1 }
    }
}

/// Settings of RMSProp with epsilon outside the root and a second moment that starts at 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RmspropTorchConfig {
    /// Share of the second moment that an update keeps.
    pub decay: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Default for RmspropTorchConfig {
    fn default() -> Self {
        Self { decay: 0.99, epsilon: 0.01 }
    }
}

impl RmspropTfConfig {
    pub(super) fn rule(self) -> Rmsprop {
        Rmsprop { place: EpsilonPlace::Tf, decay: self.decay, epsilon: self.epsilon }
    }
}

impl RmspropTorchConfig {
    pub(super) fn rule(self) -> Rmsprop {
        Rmsprop { place: EpsilonPlace::Torch, decay: self.decay, epsilon: self.epsilon }
    }
}

/// s ← decay s + (1 − decay)(scale g)², for every entry.
#[inline(always)]
pub fn rmsprop_accumulate<F: Real>(decay: f64, gradient_scale: f64, second_moment: &mut [F], gradient: &[F]) {
    let (keep, take) = (F::narrow(decay), F::narrow(1.0 - decay));
    let scale = F::narrow(gradient_scale);
    for (moment, &gradient) in second_moment.iter_mut().zip(gradient) {
        let gradient = scale * gradient;
        *moment = keep * *moment + take * gradient * gradient;
    }
}

/// p ← p − lr (scale g) / sqrt(s + epsilon) (`Tf`) or / (sqrt(s) + epsilon) (`Torch`), for every entry, with s
/// already updated.
#[inline(always)]
pub fn rmsprop_update<F: Real>(
    place: EpsilonPlace,
    epsilon: f64,
    step: &Step,
    parameter: &mut [F],
    second_moment: &[F],
    gradient: &[F],
) {
    let rate = F::narrow(step.learning_rate * step.gradient_scale);
    let (inside, outside) = match place {
        EpsilonPlace::Tf => (F::narrow(epsilon), F::zero()),
        EpsilonPlace::Torch => (F::zero(), F::narrow(epsilon)),
    };
    for ((parameter, &moment), &gradient) in parameter.iter_mut().zip(second_moment).zip(gradient) {
        *parameter = *parameter - rate * gradient / ((moment + inside).sqrt() + outside);
    }
}

/// What the kernel of an update multiplies with.
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
pub(crate) fn rmsprop_factors(place: EpsilonPlace, decay: f64, epsilon: f64, step: &Step) -> RmspropFactors {
    let (inside, outside) = match place {
        EpsilonPlace::Tf => (epsilon as f32, 0.0),
        EpsilonPlace::Torch => (0.0, epsilon as f32),
    };
    RmspropFactors {
        keep: decay as f32,
        take: (1.0 - decay) as f32,
        scale: step.gradient_scale as f32,
        rate: (step.learning_rate * step.gradient_scale) as f32,
        inside,
        outside,
    }
}

/// The rule that both conventions share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rmsprop {
    place: EpsilonPlace,
    decay: f64,
    epsilon: f64,
}

struct Accumulate {
    decay: f64,
    gradient_scale: f64,
}

impl Kernel<1> for Accumulate {
    const NAME: &'static str = "rmsprop-accumulate";

    #[inline(always)]
    fn run<F: Real>(&self, second_moment: &mut [F], [gradient]: [&[F]; 1]) {
        rmsprop_accumulate(self.decay, self.gradient_scale, second_moment, gradient);
    }
}

struct Update {
    rule: Rmsprop,
    step: Step,
}

impl Kernel<2> for Update {
    const NAME: &'static str = "rmsprop-update";

    #[inline(always)]
    fn run<F: Real>(&self, parameter: &mut [F], [second_moment, gradient]: [&[F]; 2]) {
        rmsprop_update(self.rule.place, self.rule.epsilon, &self.step, parameter, second_moment, gradient);
    }
}

impl Rule for Rmsprop {
    fn moments(&self) -> &'static [(&'static str, f64)] {
        match self.place {
            EpsilonPlace::Tf => &[("second_moment", 1.0)],
            EpsilonPlace::Torch => &[("second_moment", 0.0)],
        }
    }

    fn update_in_place(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let accumulate = Accumulate { decay: self.decay, gradient_scale: step.gradient_scale };
        moments[0].inplace_op2(gradient, &InPlace(accumulate))?;
        parameter.inplace_op3(&moments[0], gradient, &InPlace(Update { rule: *self, step: *step }))
    }

    #[cfg(feature = "cuda")]
    fn update_on_device(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let places = (lock(parameter), lock(&moments[0]));
        let places =
            [Argument::Update(places.0.view()?), Argument::Update(places.1.view()?), Argument::Nothing];
        let factors = rmsprop_factors(self.place, self.decay, self.epsilon, step);
        rmsprop(places, &lock(gradient).view()?, factors)
    }

    fn update_composed(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: &Tensor,
    ) -> Result<()> {
        let gradient = (gradient * step.gradient_scale)?;
        moments[0] = ((&moments[0] * self.decay)? + (gradient.sqr()? * (1.0 - self.decay))?)?;
        let divisor = match self.place {
            EpsilonPlace::Tf => (&moments[0] + self.epsilon)?.sqrt()?,
            EpsilonPlace::Torch => (moments[0].sqrt()? + self.epsilon)?,
        };
        let change = ((gradient * step.learning_rate)? / divisor)?;
        parameter.set(&(parameter.as_detached_tensor() - change)?)
    }
}
