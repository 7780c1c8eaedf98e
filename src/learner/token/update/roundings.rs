//! Parameters that are computed with in bf16, beside the f32 ones that the optimiser updates.
//!
//! An update is often smaller than the distance of two neighbouring bf16 numbers: added to one of them it would be
//! lost, every time. The f32 parameters (masters) take it up, and what is computed with is their rounding, renewed
//! after each step. Invariant: a rounding is that of its master as it is, so that a checkpoint needs the masters alone.

use candle_core::{DType, Result, Var};

use crate::policy::Parameters;

/// Each variable of a learner and the rounding that is computed with; none where it computes in the variables' own
/// type.
#[derive(Debug, Default)]
pub(super) struct Roundings(Vec<(Var, Var)>);

impl Roundings {
    /// The parameters that are computed with in a float type, from `parameters` of which `masters` are the variables,
    /// in order. Those that are not trained are rounded once.
    ///
    /// # Errors
    /// When a device has no memory for them.
    pub(super) fn of(
        masters: &[(String, Var)],
        parameters: Parameters,
        dtype: DType,
    ) -> Result<(Parameters, Self)> {
        if parameters.iter().all(|(_, tensor)| tensor.dtype() == dtype) {
            return Ok((parameters, Self::default()));
        }
        let trained = |name: &str| masters.iter().any(|(master, _)| master == name);
        let (rounded, parameters) = parameters.to_dtype(dtype)?.to_variables_where(trained)?;
        let pairs =
            masters.iter().zip(rounded).map(|((_, master), (_, rounding))| (master.clone(), rounding));
        Ok((parameters, Self(pairs.collect())))
    }

    /// The masters have changed.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn renew(&self) -> Result<()> {
        for (master, rounding) in &self.0 {
            rounding.set(&master.as_detached_tensor().to_dtype(rounding.dtype())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::learner::optimizer::{AdamwConfig, Optimizer, OptimizerConfig};
    use crate::policy::{Decoder, DecoderConfig, Gradients};

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    fn parameters() -> Parameters {
        let config =
            DecoderConfig { width: 8, layers: 1, heads: 1, kv_heads: 1, head_size: 4, ..Default::default() };
        let layout = Decoder::new(config, &Device::Cpu).unwrap().layout().clone();
        layout.initialize(3, &Device::Cpu).unwrap()
    }

    #[test]
    fn in_the_variables_own_type_they_are_computed_with_themselves() {
        let (masters, given) = parameters().to_variables_where(|name| !name.contains("norm")).unwrap();
        let (parameters, roundings) = Roundings::of(&masters, given, DType::F32).unwrap();
        assert!(roundings.0.is_empty());
        let variables = parameters.iter().filter(|(_, tensor)| tensor.is_variable());
        assert!(variables.zip(&masters).all(|((_, tensor), (_, master))| tensor.id() == master.id()));
    }

    #[test]
    fn steps_too_small_for_bf16_add_up_in_the_masters_and_reach_what_is_computed_with() {
        let trained = |name: &str| name.ends_with("norm.weight");
        // Norms begin at 1, where bf16 has steps of 2^-7 upwards and 2^-8 downwards.
        let (masters, given) = parameters().to_variables_where(trained).unwrap();
        let (parameters, roundings) = Roundings::of(&masters, given, DType::BF16).unwrap();
        assert!(parameters.iter().all(|(_, tensor)| tensor.dtype() == DType::BF16));
        let gradients = Gradients::new(&parameters).unwrap();
        let config = AdamwConfig { weight_decay: 0.0, ..AdamwConfig::default() };
        let mut optimizer = Optimizer::new(&OptimizerConfig::Adamw(config), masters.clone()).unwrap();
        let ones = |tensor: &Tensor| Tensor::ones(tensor.shape(), DType::F32, &Device::Cpu).unwrap();
        let found: Vec<Tensor> = masters.iter().map(|(_, master)| ones(master.as_tensor())).collect();
        assert_eq!(gradients.tensors().unwrap()[0].dtype(), DType::F32);
        for step in 1..=40_u8 {
            // Adam's first steps are of the learning rate.
            optimizer.step_with(&found, 1e-4, f64::INFINITY).unwrap();
            roundings.renew().unwrap();
            let (_, master) = &masters[0];
            let expected = 1.0 - 1e-4 * f32::from(step);
            assert!(values(master.as_tensor()).iter().all(|value| (value - expected).abs() < 1e-5));
            let computed_with = parameters.iter().find(|(name, _)| *name == masters[0].0).unwrap().1;
            let rounded = master.as_tensor().to_dtype(DType::BF16).unwrap();
            assert_eq!(values(computed_with), values(&rounded));
            assert_eq!(values(computed_with)[0] < 1.0, step >= 20, "after step {step}");
        }
    }
}
