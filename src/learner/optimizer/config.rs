//! Which optimiser, and its settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{Rule, check_fraction, check_positive};
use super::{AdamwConfig, OptimizerError, RmspropTfConfig, RmspropTorchConfig};

/// Which optimiser, by `kind`, and its settings. The learning rate belongs to the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// RMSProp with epsilon inside the root and a second moment that starts at 1 (TensorFlow's convention).
    RmspropTf(RmspropTfConfig),
    /// RMSProp with epsilon outside the root and a second moment that starts at 0 (PyTorch's convention).
    RmspropTorch(RmspropTorchConfig),
    /// Adam with decoupled weight decay.
    Adamw(AdamwConfig),
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::RmspropTf(RmspropTfConfig::default())
    }
}

impl OptimizerConfig {
    /// Refuses decays outside [0, 1), an epsilon that is not positive and a negative weight decay.
    pub fn validate(&self) -> Result<(), OptimizerError> {
        match self {
            Self::RmspropTf(RmspropTfConfig { decay, epsilon })
            | Self::RmspropTorch(RmspropTorchConfig { decay, epsilon }) => {
                check_fraction("decay", *decay)?;
                check_positive("epsilon", *epsilon)
            }
            Self::Adamw(AdamwConfig { beta1, beta2, epsilon, weight_decay }) => {
                check_fraction("beta1", *beta1)?;
                check_fraction("beta2", *beta2)?;
                check_positive("epsilon", *epsilon)?;
                if weight_decay.is_finite() && *weight_decay >= 0.0 {
                    Ok(())
                } else {
                    let (name, value) = ("weight_decay", *weight_decay);
                    Err(OptimizerError::Setting { name, value, expected: "at least 0" })
                }
            }
        }
    }

    /// The update rule that these settings describe.
    pub(super) fn rule(&self) -> Box<dyn Rule> {
        match *self {
            Self::RmspropTf(config) => Box::new(config.rule()),
            Self::RmspropTorch(config) => Box::new(config.rule()),
            Self::Adamw(config) => Box::new(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_selects_the_settings_that_are_known() {
        let adamw: OptimizerConfig = toml::from_str("kind = 'adamw'\nbeta1 = 0.5").unwrap();
        assert_eq!(adamw, OptimizerConfig::Adamw(AdamwConfig { beta1: 0.5, ..Default::default() }));
        let error = toml::from_str::<OptimizerConfig>("kind = 'rmsprop_tf'\nbeta1 = 0.5").unwrap_err();
        assert!(error.to_string().contains("beta1"), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |config: OptimizerConfig| match config.validate() {
            Err(OptimizerError::Setting { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refused(OptimizerConfig::RmspropTf(RmspropTfConfig { decay: 1.0, ..Default::default() })),
            "decay"
        );
        assert_eq!(
            refused(OptimizerConfig::Adamw(AdamwConfig { epsilon: f64::NAN, ..Default::default() })),
            "epsilon"
        );
        assert_eq!(
            refused(OptimizerConfig::Adamw(AdamwConfig { weight_decay: -0.1, ..Default::default() })),
            "weight_decay"
        );
    }
}
