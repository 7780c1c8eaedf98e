//! What an update rule is to the optimiser that owns its state.

use candle_core::{Result, Tensor, Var};

use super::OptimizerError;

/// What one update has in common for all parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Learning rate.
    pub learning_rate: f64,
    /// Factor that clips the gradient: what a rule sees is the gradient times this.
    pub gradient_scale: f64,
    /// Number of this update, from 1.
    pub update: u64,
}

/// An update rule. It has no state of its own; the moments of each parameter are handed to it.
pub(super) trait Rule: std::fmt::Debug + Send + Sync {
    /// Name and initial value of each moment that is kept for a parameter.
    fn moments(&self) -> &'static [(&'static str, f64)];

    /// Updates a parameter and its moments in place; contiguous tensors on the CPU.
    fn update_in_place(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()>;

    /// Updates a parameter and its moments in place by a kernel; f32 on a CUDA device.
    #[cfg(feature = "cuda")]
    fn update_on_device(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &[Tensor],
        gradient: &Tensor,
    ) -> Result<()>;

    /// The same in composed tensor operations, for any device; moments are replaced.
    fn update_composed(
        &self,
        step: &Step,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: &Tensor,
    ) -> Result<()>;
}

/// Refuses a setting outside [0, 1).
pub(super) fn check_fraction(name: &'static str, value: f64) -> std::result::Result<(), OptimizerError> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(OptimizerError::Setting { name, value, expected: "at least 0 and below 1" })
    }
}

/// Refuses a setting that is not a positive number.
pub(super) fn check_positive(name: &'static str, value: f64) -> std::result::Result<(), OptimizerError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(OptimizerError::Setting { name, value, expected: "positive" })
    }
}
