//! A baseline across prompts, for REINFORCE with single rollouts: the mean reward of the batch, or a running mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learner::advantage::AdvantageError;

/// What is subtracted from rewards.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum BaselineConfig {
    /// Nothing.
    None,
    /// The mean of the batch's rewards.
    #[default]
    Batch,
    /// An exponential mean of the batches before; the first batch is centred on its own mean.
    Running {
        /// How much of the mean a batch leaves as it was.
        decay: f64,
    },
}

impl BaselineConfig {
    /// Refuses a decay outside [0, 1).
    pub fn validate(&self) -> Result<(), AdvantageError> {
        match *self {
            Self::Running { decay } if !(0.0..1.0).contains(&decay) => Err(AdvantageError::Setting {
                name: "decay",
                value: decay,
                expected: "at least 0 and below 1",
            }),
            _ => Ok(()),
        }
    }
}

/// A baseline and what it remembers, all of which belongs in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RewardBaseline {
    kind: Kind,
    mean: Option<f64>,
}

/// [`BaselineConfig`] as a checkpoint's binary form can hold it, which reads no tagged tables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Kind {
    None,
    Batch,
    Running { decay: f64 },
}

impl From<BaselineConfig> for Kind {
    fn from(config: BaselineConfig) -> Self {
        match config {
            BaselineConfig::None => Self::None,
            BaselineConfig::Batch => Self::Batch,
            BaselineConfig::Running { decay } => Self::Running { decay },
        }
    }
}

impl RewardBaseline {
    /// A baseline that has seen nothing.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: BaselineConfig) -> Result<Self, AdvantageError> {
        config.validate()?;
        Ok(Self { kind: config.into(), mean: None })
    }

    /// A running mean; `None` before the first reward and for baselines that remember nothing.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// The advantages of one batch, 0 where there is no reward; then takes the batch into the running mean. A batch
    /// without any reward changes nothing.
    pub fn advantages(&mut self, rewards: &[Option<f64>]) -> Vec<f64> {
        let count = rewards.iter().flatten().count();
        let batch = rewards.iter().flatten().sum::<f64>() / count.max(1) as f64;
        let baseline = match self.kind {
            Kind::None => 0.0,
            Kind::Batch => batch,
            Kind::Running { .. } => self.mean.unwrap_or(batch),
        };
        if let (Kind::Running { decay }, true) = (self.kind, count > 0) {
            self.mean = Some(self.mean.map_or(batch, |mean| decay * mean + (1.0 - decay) * batch));
        }
        rewards.iter().map(|reward| reward.map_or(0.0, |reward| reward - baseline)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_running_baseline_uses_only_batches_before() {
        let mut baseline = RewardBaseline::new(BaselineConfig::Running { decay: 0.5 }).unwrap();
        assert_eq!(baseline.advantages(&[Some(1.0), Some(3.0), None]), [-1.0, 1.0, 0.0]);
        assert_eq!(baseline.advantages(&[None]), [0.0]);
        assert_eq!(baseline.advantages(&[Some(6.0)]), [4.0]);
        assert_eq!(baseline.mean(), Some(4.0));
    }

    #[test]
    fn a_saved_baseline_goes_on_where_it_stood() {
        let mut baseline = RewardBaseline::new(BaselineConfig::Running { decay: 0.9 }).unwrap();
        baseline.advantages(&[Some(0.25)]);
        let kind = codec::Kind::new(*b"TEST");
        let bytes = codec::encode(kind, &baseline).unwrap();
        let mut copy: RewardBaseline = codec::decode(kind, &bytes, 1024).unwrap();
        assert_eq!(copy.advantages(&[Some(1.0)]), baseline.advantages(&[Some(1.0)]));
    }

    #[test]
    fn a_decay_outside_its_range_is_refused() {
        assert!(RewardBaseline::new(BaselineConfig::Running { decay: 1.0 }).is_err());
    }
}
