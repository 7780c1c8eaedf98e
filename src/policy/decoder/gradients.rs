//! The gradient of a decoder: one sum for each parameter that is trained, in the order of the layout.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use crate::ops::GradientSum;
use crate::policy::parameters::Parameters;

/// Sums of gradients over micro-batches. A parameter that is used twice, such as a tied embedding, has one sum.
#[derive(Debug, Clone)]
pub struct Gradients {
    /// One for each parameter; none for frozen ones.
    sums: Arc<[Option<GradientSum>]>,
}

impl Gradients {
    /// Zero, for those of `parameters` that are variables ([`Parameters::to_variables_where`]).
    ///
    /// # Errors
    /// When a device has no memory for them.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let sums = parameters
            .iter()
            .map(|(_, tensor)| tensor.is_variable().then(|| GradientSum::new(tensor)).transpose())
            .collect::<Result<_>>()?;
        Ok(Self { sums })
    }

    /// Back to zero, for the next update; the memory is kept.
    pub fn clear(&self) {
        self.sums.iter().flatten().for_each(GradientSum::clear);
    }

    /// The gradients of the variables, in their order: what an optimiser takes. They share the memory of the sums, so
    /// they are to be used before anything is added.
    ///
    /// # Errors
    /// When a device fails.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        self.sums.iter().flatten().map(GradientSum::tensor).collect()
    }

    /// For operators that add to them directly.
    pub(super) fn sums(&self) -> Arc<[Option<GradientSum>]> {
        self.sums.clone()
    }

    /// Adds what differentiation `found` for `parameters` and the operators have not added already.
    pub(super) fn add(
        &self,
        parameters: &Parameters,
        mut found: impl FnMut(&Tensor) -> Option<Tensor>,
    ) -> Result<()> {
        for ((_, parameter), sum) in parameters.iter().zip(&*self.sums) {
            if let Some(sum) = sum
                && let Some(gradient) = found(parameter)
            {
                sum.add(&gradient)?;
            }
        }
        Ok(())
    }
}
