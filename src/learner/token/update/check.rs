//! Whether what generation recorded is what the learner computes under the same version.

use super::TokenLearner;
use crate::learner::LearnerError;
use crate::ops::with_threads;
use crate::policy::Parameters;
use crate::trajectory::{Group, Version};

/// How far recorded log-probabilities are from those that are computed anew (nats, the greatest of a group).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogProbDifferences {
    /// Of tokens whose whole past was sampled or read under their own version.
    pub same_version: Option<f64>,
    /// Of tokens that follow tokens of an older version.
    pub mixed_versions: Option<f64>,
}

impl TokenLearner {
    /// Recomputes a group under the versions that sampled it, where those are at hand.
    ///
    /// # Errors
    /// When a computation fails.
    pub fn log_prob_differences(
        &self,
        group: &Group,
        kept: impl Fn(Version) -> Option<Parameters>,
    ) -> Result<LogProbDifferences, LearnerError> {
        let mut versions: Vec<Version> = group
            .members
            .iter()
            .flat_map(|member| member.actions().map(|index| member.versions[index]))
            .collect();
        versions.sort_unstable();
        versions.dedup();
        let mut found = LogProbDifferences::default();
        let packs = self.packing().pack(&[group])?;
        for version in versions {
            let Some(parameters) = kept(version) else { continue };
            let scored = with_threads(&self.threads, || self.scores(&parameters, &packs, &|| false))?;
            for (pack, scores) in packs.iter().zip(scored.unwrap_or_default()) {
                for (place, log_prob) in pack.places.iter().zip(&scores.log_probs) {
                    let member = &group.members[place.member];
                    if member.versions[place.token] != version {
                        continue;
                    }
                    let difference = f64::from((log_prob - member.log_probs[place.token]).abs());
                    let mixed = member.versions[..place.token].iter().any(|&before| before != version);
                    let slot = if mixed { &mut found.mixed_versions } else { &mut found.same_version };
                    *slot = Some(slot.unwrap_or(0.0).max(difference));
                }
            }
        }
        Ok(found)
    }
}
