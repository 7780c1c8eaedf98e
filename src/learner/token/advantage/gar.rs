//! GAR: group advantages in which a pass counts by how well it was done.
//!
//! ```text
//! A = R − R̄, with R = 0 for confirmed hacks, which are no passes
//! lambda = min(lambda_max, Σ_P A / Σ_P f A) over the passes P; lambda_max where Σ_P f A ≤ 0
//! A′ = lambda f A for passes, A for failures; then minus the mean of A′ over the group
//! ```
//!
//! A group keeps A where its quality grader failed, where all passed, or where none did. Without a cap, Σ_P is kept, so
//! that quality only moves credit between passes. Source: Xiaomi, "MiMo-V2.6", 2026.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// Settings of [`gar`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GarConfig {
    /// Largest factor lambda; absent: no bound.
    pub lambda_max: Option<f64>,
}

impl GarConfig {
    /// Refuses a bound that is not positive.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        match self.lambda_max {
            Some(value) if value.is_nan() || value <= 0.0 => {
                Err(AdvantageError::Setting { name: "lambda_max", value, expected: "positive, or absent" })
            }
            _ => Ok(()),
        }
    }
}

/// One graded answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GarMember {
    /// Its reward.
    pub reward: f64,
    /// Whether it passed the tests.
    pub passed: bool,
    /// How well it was done (f), usually between 0 and 1; read only for passes.
    pub factor: f64,
    /// Whether it was confirmed to have got its pass by a hack.
    pub hacked: bool,
}

/// What [`gar`] gives for a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GarGroup {
    /// Rewards after hacks were set to 0.
    pub rewards: Vec<f64>,
    /// The factor that was used; `None` where the group keeps its plain advantages.
    pub lambda: Option<f64>,
    /// Advantages.
    pub advantages: Vec<f64>,
}

/// The advantages of one group; `grader_failed` tells that its factors are missing.
///
/// # Errors
/// When a setting is out of range, or no bound is set and the factors of all passes are 0, so that lambda is infinite.
pub fn gar(
    config: &GarConfig,
    members: &[GarMember],
    grader_failed: bool,
) -> Result<GarGroup, AdvantageError> {
    config.validate()?;
    let rewards: Vec<f64> =
        members.iter().map(|member| if member.hacked { 0.0 } else { member.reward }).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let baseline = mean(&rewards);
    let mut advantages: Vec<f64> = rewards.iter().map(|reward| reward - baseline).collect();
    let passes: Vec<usize> =
        (0..members.len()).filter(|&index| members[index].passed && !members[index].hacked).collect();
    if grader_failed || passes.is_empty() || passes.len() == members.len() {
        return Ok(GarGroup { rewards, lambda: None, advantages });
    }
    let plain: f64 = passes.iter().map(|&index| advantages[index]).sum();
    let weighed: f64 = passes.iter().map(|&index| members[index].factor * advantages[index]).sum();
    let bound = config.lambda_max.unwrap_or(f64::INFINITY);
    let lambda = if weighed > 0.0 { bound.min(plain / weighed) } else { bound };
    if lambda.is_infinite() {
        let (name, expected) =
            ("lambda_max", "set, since the factors of the passes leave lambda without bound");
        return Err(AdvantageError::Setting { name, value: lambda, expected });
    }
    for &index in &passes {
        advantages[index] *= lambda * members[index].factor;
    }
    let centre = mean(&advantages);
    advantages.iter_mut().for_each(|advantage| *advantage -= centre);
    Ok(GarGroup { rewards, lambda: Some(lambda), advantages })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(reward: f64, factor: f64) -> GarMember {
        GarMember { reward, passed: reward > 0.0, factor, hacked: false }
    }

    #[test]
    fn without_a_cap_the_passes_keep_their_summed_advantage() {
        let members = [member(1.0, 0.9), member(1.0, 0.3), member(0.0, f64::NAN), member(0.0, f64::NAN)];
        let group = gar(&GarConfig::default(), &members, false).unwrap();
        assert!((group.advantages[0] + group.advantages[1] - 1.0).abs() < 1e-12);
        assert!(group.advantages.iter().sum::<f64>().abs() < 1e-12);
        assert!((group.advantages[0] / group.advantages[1] - 3.0).abs() < 1e-12);
    }

    #[test]
    fn factors_that_are_all_0_need_a_bound() {
        let members = [member(1.0, 0.0), member(0.0, 0.0)];
        let refused = gar(&GarConfig::default(), &members, false);
        assert!(matches!(refused, Err(AdvantageError::Setting { name: "lambda_max", .. })));
        let bounded = gar(&GarConfig { lambda_max: Some(2.0) }, &members, false).unwrap();
        assert_eq!(bounded.lambda, Some(2.0));
    }
}
