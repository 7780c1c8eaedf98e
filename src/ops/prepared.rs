//! Weights that no longer change, laid out once for all the products of many forward passes.
//!
//! Actors run one small batch after another under the same published parameters; for so few rows, laying a weight out
//! costs as much as the product. Results are the same bits with and without.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::GradientSum;
use super::product::PackedWeight;
use super::storage::values;

/// A weight laid out for the forward products of [`super::linear`], [`super::conv2d`] and [`super::lstm_unroll`].
#[derive(Clone)]
pub struct PreparedWeight(Arc<PackedWeight<f32>>);

impl std::fmt::Debug for PreparedWeight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedWeight").finish_non_exhaustive()
    }
}

impl PreparedWeight {
    /// Copies a weight `[O, ...]`. Nothing when the own kernels do not serve its device or type.
    pub fn new(weight: &Tensor) -> Result<Option<Self>> {
        if !(weight.device().is_cpu() && weight.dtype() == DType::F32) {
            return Ok(None);
        }
        let outputs = weight.dims().first().copied().unwrap_or(1);
        let inputs = weight.elem_count().checked_div(outputs).unwrap_or(0);
        let weight = weight.contiguous()?;
        Ok(Some(Self(Arc::new(PackedWeight::new(values(&weight)?.slice()?, outputs, inputs)))))
    }

    pub(super) fn packed(&self) -> &PackedWeight<f32> {
        &self.0
    }
}

/// A weight given to an operator, with its prepared form and the sum of its gradients where there are such.
///
/// Tensor and prepared form must be of the same values. A gradient goes to the tensor, by automatic
/// differentiation, or where there is a sum, to that alone: by operators that say so, on the CPU.
#[derive(Debug, Clone, Copy)]
pub struct WeightRef<'a> {
    /// The weight.
    pub tensor: &'a Tensor,
    /// The same, laid out.
    pub prepared: Option<&'a PreparedWeight>,
    /// Where its gradients are added up.
    pub gradients: Option<&'a GradientSum>,
}

impl<'a> From<&'a Tensor> for WeightRef<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self { tensor, prepared: None, gradients: None }
    }
}

impl<'a> From<&'a candle_core::Var> for WeightRef<'a> {
    fn from(variable: &'a candle_core::Var) -> Self {
        variable.as_tensor().into()
    }
}
