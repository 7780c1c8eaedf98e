//! Group-relative advantages: how much better an answer is than the others to the same prompt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// Default of `zero_tolerance`.
const ZERO_TOLERANCE: f64 = 1e-6;

/// The advantages of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupAdvantages {
    /// One for each member, 0 where it has no reward.
    pub advantages: Vec<f64>,
    /// Whether the rewards are all equal, up to the tolerance, or fewer than two.
    pub zero_variance: bool,
    /// Mean reward; `None` without rewards.
    pub mean: Option<f64>,
    /// Standard deviation of the rewards, in estimators that divide by it; `None` with too few rewards.
    pub standard_deviation: Option<f64>,
}

/// The members that have a reward, and their mean.
struct Rewards<'a> {
    all: &'a [Option<f64>],
    count: usize,
    mean: Option<f64>,
    zero_variance: bool,
}

impl<'a> Rewards<'a> {
    fn of(all: &'a [Option<f64>], zero_tolerance: f64) -> Self {
        let count = all.iter().flatten().count();
        let mean = (count > 0).then(|| all.iter().flatten().sum::<f64>() / count as f64);
        let spread = mean
            .map_or(0.0, |mean| all.iter().flatten().map(|reward| (reward - mean).abs()).fold(0.0, f64::max));
        Self { all, count, mean, zero_variance: count < 2 || spread < zero_tolerance }
    }

    /// `scale` (R − R̄), or zeros in a group of zero variance.
    fn centred(&self, scale: f64, standard_deviation: Option<f64>) -> GroupAdvantages {
        let centre = |reward: &Option<f64>| match (reward, self.mean) {
            (Some(reward), Some(mean)) if !self.zero_variance => scale * (reward - mean),
            _ => 0.0,
        };
        GroupAdvantages {
            advantages: self.all.iter().map(centre).collect(),
            zero_variance: self.zero_variance,
            mean: self.mean,
            standard_deviation,
        }
    }
}

fn check_tolerance(value: f64) -> Result<(), AdvantageError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(AdvantageError::Setting { name: "zero_tolerance", value, expected: "finite and at least 0" })
}

/// The normalised advantage:
///
/// ```text
/// A = (R − R̄)/(s + epsilon),   s the standard deviation with divisor k − ddof over the k rewards
/// ```
///
/// Source: Shao et al., "DeepSeekMath", 2024 (arXiv 2402.03300).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoAdvantageConfig {
    /// Added to the standard deviation.
    pub epsilon: f64,
    /// 1: sample standard deviation; 0: that of the population.
    pub ddof: u8,
    /// Rewards closer than this to their mean count as equal to it.
    pub zero_tolerance: f64,
}

impl Default for GrpoAdvantageConfig {
    fn default() -> Self {
        Self { epsilon: 1e-4, ddof: 1, zero_tolerance: ZERO_TOLERANCE }
    }
}

impl GrpoAdvantageConfig {
    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        check_tolerance(self.zero_tolerance)?;
        let refuse = |name, value, expected| Err(AdvantageError::Setting { name, value, expected });
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return refuse("epsilon", self.epsilon, "finite and at least 0");
        }
        if self.ddof > 1 {
            return refuse("ddof", f64::from(self.ddof), "0 or 1");
        }
        Ok(())
    }

    /// The advantages of a group.
    #[must_use]
    pub fn advantages(&self, rewards: &[Option<f64>]) -> GroupAdvantages {
        let group = Rewards::of(rewards, self.zero_tolerance);
        let divisor = group.count.saturating_sub(usize::from(self.ddof));
        let deviation = group.mean.filter(|_| divisor > 0).map(|mean| {
            let squares = rewards.iter().flatten().map(|reward| (reward - mean).powi(2));
            (squares.sum::<f64>() / divisor as f64).sqrt()
        });
        group.centred((deviation.unwrap_or(0.0) + self.epsilon).recip(), deviation)
    }
}

/// The distance from the mean of the group, R − R̄.
///
/// Sources: Liu et al., "Understanding R1-Zero-like training" (Dr. GRPO), 2025 (arXiv 2503.20783); Kimi team, "Kimi
/// k1.5", 2025 (arXiv 2501.12599).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeanBaselineConfig {
    /// Rewards closer than this to their mean count as equal to it.
    pub zero_tolerance: f64,
}

impl Default for MeanBaselineConfig {
    fn default() -> Self {
        Self { zero_tolerance: ZERO_TOLERANCE }
    }
}

impl MeanBaselineConfig {
    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        check_tolerance(self.zero_tolerance)
    }

    /// The advantages of a group.
    #[must_use]
    pub fn advantages(&self, rewards: &[Option<f64>]) -> GroupAdvantages {
        Rewards::of(rewards, self.zero_tolerance).centred(1.0, None)
    }
}

/// The distance from the group's mean in units of that mean, (R − R̄)/R̄, for rewards of at least 0.
///
/// With rewards 0 and 1 its expectation follows the gradient of log p, p the probability of a right answer, up to the
/// order that k samples can tell: problems that are seldom solved count for more than with [`GrpoAdvantageConfig`]. A
/// group whose mean is not positive says nothing.
///
/// Source: Tajwar et al., "Maximum likelihood reinforcement learning", 2026.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MaximumLikelihoodConfig {
    /// Rewards closer than this to their mean count as equal to it.
    pub zero_tolerance: f64,
}

impl Default for MaximumLikelihoodConfig {
    fn default() -> Self {
        Self { zero_tolerance: ZERO_TOLERANCE }
    }
}

impl MaximumLikelihoodConfig {
    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        check_tolerance(self.zero_tolerance)
    }

    /// The advantages of a group.
    #[must_use]
    pub fn advantages(&self, rewards: &[Option<f64>]) -> GroupAdvantages {
        let group = Rewards::of(rewards, self.zero_tolerance);
        let scale = group.mean.filter(|mean| *mean > self.zero_tolerance).map_or(0.0, f64::recip);
        group.centred(scale, None)
    }
}

/// The distance from the mean of the *other* rewards of the group, k/(k − 1) (R − R̄): an unbiased baseline.
///
/// Source: Ahmadian et al., "Back to basics", 2024 (arXiv 2402.14740), after Kool et al., 2019.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RlooAdvantageConfig {
    /// Rewards closer than this to their mean count as equal to it.
    pub zero_tolerance: f64,
}

impl Default for RlooAdvantageConfig {
    fn default() -> Self {
        Self { zero_tolerance: ZERO_TOLERANCE }
    }
}

impl RlooAdvantageConfig {
    /// Refuses settings out of range.
    pub fn validate(&self) -> Result<(), AdvantageError> {
        check_tolerance(self.zero_tolerance)
    }

    /// The advantages of a group.
    #[must_use]
    pub fn advantages(&self, rewards: &[Option<f64>]) -> GroupAdvantages {
        let group = Rewards::of(rewards, self.zero_tolerance);
        let count = group.count as f64;
        group.centred(if group.count > 1 { count / (count - 1.0) } else { 0.0 }, None)
    }
}
