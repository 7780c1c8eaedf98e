//! Which advantage estimator a run uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BaselineConfig, GroupAdvantages, GrpoAdvantageConfig, MaximumLikelihoodConfig, MeanBaselineConfig,
    RlooAdvantageConfig, RubricConfig,
};
use crate::learner::advantage::{AdvantageError, SkipObservationGaeConfig, TokenVtraceConfig};

/// Settings of the REINFORCE baseline.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReinforceBaselineConfig {
    /// What is subtracted.
    pub baseline: BaselineConfig,
}

/// How rewards become advantages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TokenAdvantageConfig {
    /// Distance from the group's mean over its standard deviation.
    Grpo(GrpoAdvantageConfig),
    /// Distance from the group's mean.
    MeanBaseline(MeanBaselineConfig),
    /// Distance from the mean of the others in the group.
    Rloo(RlooAdvantageConfig),
    /// Distance from the group's mean in units of that mean: follows log p of a right answer.
    MaximumLikelihood(MaximumLikelihoodConfig),
    /// Distance from the group's mean with rubric scores beside the tests: products of scores (GRS), or advantages of
    /// passes weighed by them (GAR), as the pass rate of the problem's source says.
    Rubric(RubricConfig),
    /// Distance from a baseline across prompts; works with single rollouts.
    Reinforce(ReinforceBaselineConfig),
    /// Generalised advantage estimation over action tokens with a value function; works with single rollouts.
    SkipObservationGae(SkipObservationGaeConfig),
    /// V-trace over action tokens with a value function: off-policy corrected value targets and advantages; works with
    /// single rollouts.
    Vtrace(TokenVtraceConfig),
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
        !matches!(self, Self::Reinforce(_) | Self::SkipObservationGae(_) | Self::Vtrace(_))
    }

    /// Whether it needs a value function.
    #[must_use]
    pub fn needs_values(&self) -> bool {
        matches!(self, Self::SkipObservationGae(_) | Self::Vtrace(_))
    }

    /// Whether it needs log-probabilities of the policy at the start of the step.
    #[must_use]
    pub fn needs_ratios(&self) -> bool {
        matches!(self, Self::Vtrace(_))
    }

    /// Whether its advantages carry an importance ratio in front.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        matches!(self, Self::Vtrace(TokenVtraceConfig { weighted: true, .. }))
    }

    /// How value targets are made of answers that the policy itself has just given: those of stored answers. `None`
    /// without values.
    #[must_use]
    pub fn on_policy_values(&self) -> Option<SkipObservationGaeConfig> {
        match self {
            Self::SkipObservationGae(settings) => Some(*settings),
            Self::Vtrace(TokenVtraceConfig { gamma, .. }) => {
                Some(SkipObservationGaeConfig { gamma: *gamma, ..SkipObservationGaeConfig::default() })
            }
            _ => None,
        }
    }

    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        match self {
            Self::Grpo(settings) => settings.validate(),
            Self::MeanBaseline(settings) => settings.validate(),
            Self::Rloo(settings) => settings.validate(),
            Self::MaximumLikelihood(settings) => settings.validate(),
            Self::Rubric(settings) => settings.validate(),
            Self::Reinforce(settings) => settings.baseline.validate(),
            Self::SkipObservationGae(settings) => {
                AdvantageError::check_fraction("gamma", settings.gamma)?;
                AdvantageError::check_fraction("lambda_policy", settings.lambda_policy.unwrap_or(1.0))?;
                let (name, value, expected) = ("alpha", settings.alpha, "positive");
                if value > 0.0 { Ok(()) } else { Err(AdvantageError::Setting { name, value, expected }) }
            }
            Self::Vtrace(settings) => settings.validate(),
        }
    }

    /// The rubric's settings, where there is one.
    #[must_use]
    pub fn rubric(&self) -> Option<&RubricConfig> {
        match self {
            Self::Rubric(settings) => Some(settings),
            _ => None,
        }
    }

    /// The advantages of one group from its rewards alone, with a rubric those of a group without scores; `None` for
    /// estimators that are not group-relative.
    #[must_use]
    pub fn group(&self, rewards: &[Option<f64>]) -> Option<GroupAdvantages> {
        match self {
            Self::Grpo(settings) => Some(settings.advantages(rewards)),
            Self::MeanBaseline(settings) => Some(settings.advantages(rewards)),
            Self::Rloo(settings) => Some(settings.advantages(rewards)),
            Self::MaximumLikelihood(settings) => Some(settings.advantages(rewards)),
            Self::Rubric(RubricConfig { zero_tolerance, .. }) => {
                Some(MeanBaselineConfig { zero_tolerance: *zero_tolerance }.advantages(rewards))
            }
            Self::Reinforce(_) | Self::SkipObservationGae(_) | Self::Vtrace(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenAdvantageConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn absent_settings_are_the_defaults_and_unknown_ones_are_refused() {
        assert_eq!(parse("kind = 'grpo'").unwrap(), TokenAdvantageConfig::default());
        assert!(parse("kind = 'grpo'\ndof = 1").is_err());
        let running = parse("kind = 'reinforce'\nbaseline = { kind = 'running', decay = 0.9 }").unwrap();
        assert!(!running.is_group_relative() && running.group(&[Some(1.0)]).is_none());
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        for (text, name) in [
            ("kind = 'grpo'\nddof = 2", "ddof"),
            ("kind = 'grpo'\nepsilon = -1.0", "epsilon"),
            ("kind = 'rloo'\nzero_tolerance = nan", "zero_tolerance"),
            ("kind = 'reinforce'\nbaseline = { kind = 'running', decay = 1.5 }", "decay"),
            ("kind = 'rubric'\nlambda_max = 0.0", "lambda_max"),
            ("kind = 'skip_observation_gae'\ngamma = 1.5", "gamma"),
            ("kind = 'skip_observation_gae'\nalpha = 0.0", "alpha"),
            ("kind = 'vtrace'\nrho_bar = 0.5", "rho_bar"),
        ] {
            let error = parse(text).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_group_in_which_nothing_was_graded_has_no_advantages() {
        for kind in ["grpo", "mean_baseline", "rloo", "maximum_likelihood", "rubric"] {
            let group = parse(&format!("kind = '{kind}'")).unwrap().group(&[None, None]).unwrap();
            assert_eq!(group.advantages, [0.0, 0.0]);
            assert!(group.zero_variance && group.mean.is_none());
        }
    }

    #[test]
    fn seldom_solved_problems_count_for_more_where_the_likelihood_is_followed() {
        let kind = parse("kind = 'maximum_likelihood'").unwrap();
        let group = kind.group(&[Some(1.0), Some(0.0), Some(0.0), None, Some(0.0)]).unwrap();
        assert_eq!(group.advantages, [3.0, -1.0, -1.0, 0.0, -1.0]);
        let group = kind.group(&[Some(1.0), Some(1.0), Some(1.0), Some(0.0)]).unwrap();
        assert!((group.advantages[0] - 1.0 / 3.0).abs() < 1e-12 && group.advantages[3] == -1.0);
        // Nothing was right, or rewards are of the wrong kind.
        assert_eq!(kind.group(&[Some(0.0), Some(0.0)]).unwrap().advantages, [0.0, 0.0]);
        assert_eq!(kind.group(&[Some(-3.0), Some(1.0)]).unwrap().advantages, [0.0, 0.0]);
    }
}
