//! The optimiser: an ordered list of named parameters, the moments of each, and the number of updates made.

use std::collections::{HashMap, HashSet};

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};

use super::rule::{Rule, Step};
use super::{OptimizerConfig, OptimizerError, clip_scale, norm_of, squares};
#[cfg(feature = "cuda")]
use crate::ops::cuda::has_kernel;

/// Name of the update count in the saved state.
const UPDATES: &str = "updates";

/// Owns everything that updates depend on beside the parameters and their gradients.
#[derive(Debug)]
pub struct Optimizer {
    rule: Box<dyn Rule>,
    slots: Vec<Slot>,
    updates: u64,
}

/// One parameter and its moments.
#[derive(Debug)]
struct Slot {
    name: String,
    parameter: Var,
    moments: Vec<Tensor>,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// What it is made of: the sum of squares of each parameter's gradient, in the order of the parameters.
    pub squares: Vec<f64>,
    /// Factor that clipped it; 1 when it was short enough.
    pub gradient_scale: f64,
}

impl Optimizer {
    /// An optimiser that has made no update yet, for named f32 or f64 parameters. Their order is the order in which
    /// norms are summed and the state is listed.
    ///
    /// # Errors
    /// When a setting is out of range, a name occurs twice or a parameter's type is not supported.
    pub fn new(config: &OptimizerConfig, parameters: Vec<(String, Var)>) -> Result<Self, OptimizerError> {
        config.validate()?;
        let rule = config.rule();
        let mut names = HashSet::new();
        let mut slots = Vec::with_capacity(parameters.len());
        for (name, parameter) in parameters {
            if !names.insert(name.clone()) {
                return Err(OptimizerError::DuplicateName { name });
            }
            if !matches!(parameter.dtype(), DType::F32 | DType::F64) {
                return Err(OptimizerError::Type { name, dtype: parameter.dtype() });
            }
            let moments = rule
                .moments()
                .iter()
                .map(|(_, initial)| {
                    Tensor::full(*initial, parameter.shape(), parameter.device())?
                        .to_dtype(parameter.dtype())?
                        // `full` repeats one element; an update needs one for each entry.
                        .contiguous()
                })
                .collect::<candle_core::Result<_>>()?;
            slots.push(Slot { name, parameter, moments });
        }
        Ok(Self { rule, slots, updates: 0 })
    }

    /// Names of the parameters, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Number of updates made.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Clips the gradient to `max_norm` (infinite: not at all) and updates every parameter.
    ///
    /// # Errors
    /// When a gradient is missing or not finite; then neither parameters nor state have changed. When a device fails.
    pub fn step(
        &mut self,
        gradients: &GradStore,
        learning_rate: f64,
        max_norm: f64,
    ) -> Result<StepReport, OptimizerError> {
        let find = |slot: &Slot| {
            let missing = || OptimizerError::MissingGradient { name: slot.name.clone() };
            gradients.get(&slot.parameter).cloned().ok_or_else(missing)
        };
        let found: Vec<Tensor> = self.slots.iter().map(find).collect::<Result<_, _>>()?;
        self.step_with(&found, learning_rate, max_norm)
    }

    /// [`Optimizer::step`] with the gradients in the order of the parameters.
    ///
    /// # Errors
    /// As [`Optimizer::step`].
    ///
    /// # Panics
    /// When there are not as many gradients as parameters, or one has another shape or type than its parameter.
    pub fn step_with(
        &mut self,
        gradients: &[Tensor],
        learning_rate: f64,
        max_norm: f64,
    ) -> Result<StepReport, OptimizerError> {
        assert_eq!(gradients.len(), self.slots.len(), "one gradient for each parameter");
        // Views are copied into rows one after another, which is what the rules walk over.
        let gradients: Vec<Tensor> =
            gradients.iter().map(Tensor::contiguous).collect::<candle_core::Result<_>>()?;
        for (slot, gradient) in self.slots.iter().zip(&gradients) {
            let (needed, got) = (&slot.parameter, gradient);
            assert_eq!(
                (got.dtype(), got.shape()),
                (needed.dtype(), needed.shape()),
                "gradient of {}",
                slot.name
            );
        }
        let names = self.slots.iter().map(|slot| slot.name.as_str());
        let squares = squares(names.zip(&gradients))?;
        let gradient_norm = norm_of(&squares);
        let gradient_scale = clip_scale(gradient_norm, max_norm);
        let step = Step { learning_rate, gradient_scale, update: self.updates + 1 };
        for (slot, gradient) in self.slots.iter_mut().zip(&gradients) {
            if slot.parameter.device().is_cpu() {
                self.rule.update_in_place(&step, &slot.parameter, &slot.moments, gradient)?;
                continue;
            }
            #[cfg(feature = "cuda")]
            if has_kernel(&slot.parameter) && slot.parameter.dtype() == DType::F32 {
                self.rule.update_on_device(&step, &slot.parameter, &slot.moments, gradient)?;
                continue;
            }
            self.rule.update_composed(&step, &slot.parameter, &mut slot.moments, gradient)?;
        }
        self.updates += 1;
        Ok(StepReport { gradient_norm, squares, gradient_scale })
    }

    /// A copy of everything the next update depends on, as named tensors in a fixed order: `updates`, then
    /// `<parameter>.<moment>`.
    ///
    /// # Errors
    /// When a device fails.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>, OptimizerError> {
        let mut state = vec![(UPDATES.to_owned(), Tensor::new(self.updates.cast_signed(), &Device::Cpu)?)];
        for slot in &self.slots {
            for ((moment, _), tensor) in self.rule.moments().iter().zip(&slot.moments) {
                // A copy, because the optimiser goes on writing into its own.
                state.push((format!("{}.{moment}", slot.name), tensor.copy()?));
            }
        }
        Ok(state)
    }

    /// Continues from what [`Optimizer::state`] gave.
    ///
    /// # Errors
    /// When an entry is missing, unknown, or of another shape or type; then nothing has changed.
    pub fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<(), OptimizerError> {
        let refuse = |name: &str, why: String| OptimizerError::State { name: name.to_owned(), why };
        let mut entries: HashMap<&str, &Tensor> =
            state.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let updates = entries.remove(UPDATES).ok_or_else(|| refuse(UPDATES, "it is missing".into()))?;
        let updates = updates.to_scalar::<i64>().map_err(|error| refuse(UPDATES, error.to_string()))?;
        let updates = u64::try_from(updates).map_err(|_| refuse(UPDATES, "it is negative".into()))?;
        let mut loaded = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let mut moments = Vec::with_capacity(slot.moments.len());
            for ((moment, _), own) in self.rule.moments().iter().zip(&slot.moments) {
                let name = format!("{}.{moment}", slot.name);
                let tensor =
                    entries.remove(name.as_str()).ok_or_else(|| refuse(&name, "it is missing".into()))?;
                if (tensor.dtype(), tensor.shape()) != (own.dtype(), own.shape()) {
                    let why = format!(
                        "it is {:?} {:?} where {:?} {:?} is needed",
                        tensor.dtype(),
                        tensor.shape(),
                        own.dtype(),
                        own.shape()
                    );
                    return Err(refuse(&name, why));
                }
                moments.push(tensor.to_device(own.device())?.contiguous()?.copy()?);
            }
            loaded.push(moments);
        }
        if let Some(name) = entries.keys().min() {
            return Err(refuse(name, "no such entry is known".into()));
        }
        for (slot, moments) in self.slots.iter_mut().zip(loaded) {
            slot.moments = moments;
        }
        self.updates = updates;
        Ok(())
    }
}

#[cfg(test)]
#[path = "stepper_tests.rs"]
mod tests;
