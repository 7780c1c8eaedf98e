//! When checkpoints are taken and how many are kept, as the user sets it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CheckpointPolicy;

/// Saving of the whole run, to be continued with `--resume`. A checkpoint is always taken when the run ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Learner updates from one checkpoint to the next; unset or 0: never because of the number of updates.
    pub every: Option<u64>,
    /// Seconds from one checkpoint to the next, taken at the first update after; 0: never because of the time.
    #[schemars(range(min = 0.0))]
    pub every_seconds: Option<f64>,
    /// How many of the newest are kept; older ones are deleted.
    #[schemars(range(min = 1))]
    pub keep: usize,
    /// Whether the newest one taken while the latest evaluation (without evaluations: the mean return) was the best
    /// so far is kept besides.
    pub best: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: None, every_seconds: Some(60.0), keep: 3, best: true }
    }
}

impl CheckpointConfig {
    /// Whether a checkpoint is due this many updates and seconds after the last one. Never right after one.
    #[must_use]
    pub fn is_due(&self, updates: u64, seconds: f64) -> bool {
        let by_updates = self.every.is_some_and(|every| every > 0 && updates >= every);
        let by_time = self.every_seconds.is_some_and(|every| every > 0.0 && seconds >= every);
        updates > 0 && (by_updates || by_time)
    }

    /// What a store has to know.
    #[must_use]
    pub fn policy(&self) -> CheckpointPolicy {
        CheckpointPolicy { keep: self.keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_updates_or_by_time_whichever_is_first() {
        let config = CheckpointConfig { every: Some(10), every_seconds: Some(5.0), ..Default::default() };
        assert!(!config.is_due(9, 4.9));
        assert!(config.is_due(10, 0.0));
        assert!(config.is_due(1, 5.0));
        assert!(!config.is_due(0, 100.0));
    }

    #[test]
    fn zero_and_unset_mean_never() {
        for (every, every_seconds) in [(None, None), (Some(0), Some(0.0)), (None, Some(0.0)), (Some(0), None)]
        {
            let config = CheckpointConfig { every, every_seconds, ..Default::default() };
            assert!(!config.is_due(u64::MAX, 1e9));
        }
    }

    #[test]
    fn the_default_reads_back_from_toml() {
        let text = toml::to_string(&CheckpointConfig::default()).unwrap();
        assert_eq!(toml::from_str::<CheckpointConfig>(&text).unwrap(), CheckpointConfig::default());
        assert!(toml::from_str::<CheckpointConfig>("evry = 3").is_err());
    }
}
