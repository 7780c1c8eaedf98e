//! Which advantage estimator a run uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BaselineConfig, GroupAdvantages, GrpoAdvantageConfig, MeanBaselineConfig, RlooAdvantageConfig};
use crate::learner::advantage::{AdvantageError, SkipObservationGaeConfig};

/// Settings of the REINFORCE baseline.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReinforceBaselineConfig {
    /// What is subtracted.
    pub baseline: BaselineConfig,
}

/// How rewards become advantages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TokenAdvantageConfig {
    /// Distance from the group's mean over its standard deviation.
    Grpo(GrpoAdvantageConfig),
    /// Distance from the group's mean.
    MeanBaseline(MeanBaselineConfig),
    /// Distance from the mean of the others in the group.
    Rloo(RlooAdvantageConfig),
    /// Distance from a baseline across prompts; works with single rollouts.
    Reinforce(ReinforceBaselineConfig),
    /// Generalised advantage estimation over action tokens with a value function; works with single rollouts.
    SkipObservationGae(SkipObservationGaeConfig),
}

impl Default for TokenAdvantageConfig {
    fn default() -> Self {
        Self::Grpo(GrpoAdvantageConfig::default())
    }
}

impl TokenAdvantageConfig {
    /// Whether it compares the members of a group, so that groups of one teach nothing.
    #[must_use]
    pub fn is_group_relative(&self) -> bool {
        matches!(self, Self::Grpo(_) | Self::MeanBaseline(_) | Self::Rloo(_))
    }

    /// Whether it needs a value function.
    #[must_use]
    pub fn needs_values(&self) -> bool {
        matches!(self, Self::SkipObservationGae(_))
    }

    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        match self {
            Self::Grpo(settings) => settings.validate(),
            Self::MeanBaseline(settings) => settings.validate(),
            Self::Rloo(settings) => settings.validate(),
            Self::Reinforce(settings) => settings.baseline.validate(),
            Self::SkipObservationGae(settings) => {
                let fraction = |name, value: f64| {
                    let expected = "between 0 and 1";
                    let fine = (0.0..=1.0).contains(&value);
                    if fine { Ok(()) } else { Err(AdvantageError::Setting { name, value, expected }) }
                };
                fraction("gamma", settings.gamma)?;
                settings.lambda_policy.map_or(Ok(()), |lambda| fraction("lambda_policy", lambda))?;
                let (name, value, expected) = ("alpha", settings.alpha, "positive");
                let fine = value > 0.0;
                if fine { Ok(()) } else { Err(AdvantageError::Setting { name, value, expected }) }
            }
        }
    }

    /// The advantages of one group; `None` for estimators that are not group-relative.
    #[must_use]
    pub fn group(&self, rewards: &[Option<f64>]) -> Option<GroupAdvantages> {
        match self {
            Self::Grpo(settings) => Some(settings.advantages(rewards)),
            Self::MeanBaseline(settings) => Some(settings.advantages(rewards)),
            Self::Rloo(settings) => Some(settings.advantages(rewards)),
            Self::Reinforce(_) | Self::SkipObservationGae(_) => None,
        }
    }
}
