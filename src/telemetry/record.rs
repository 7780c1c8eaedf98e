//! What one learner update has to tell, and how several updates become one line of `metrics.jsonl`.
//!
//! Each field has one merging rule: *last* (the latest value), *sum*, *mean* over the updates that have a value,
//! *least* and *greatest*. Non-finite numbers count as absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many environment steps were consumed at which lag (in updates).
///
/// Lags below 32 are kept exactly, greater ones under the power of two below them, so the size stays bounded.
/// Written as a list of (lag, steps).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct LagHistogram(BTreeMap<u64, u64>);

impl From<Vec<(u64, u64)>> for LagHistogram {
    fn from(buckets: Vec<(u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (lag, steps) in buckets {
            histogram.add(lag, steps);
        }
        histogram
    }
}

impl From<LagHistogram> for Vec<(u64, u64)> {
    fn from(histogram: LagHistogram) -> Self {
        histogram.0.into_iter().collect()
    }
}

impl LagHistogram {
    /// Counts `steps` environment steps that were consumed `lag` updates after they were taken.
    pub fn add(&mut self, lag: u64, steps: u64) {
        let bucket = if lag < 32 { lag } else { 1 << lag.ilog2() };
        *self.0.entry(bucket).or_default() += steps;
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (&bucket, &steps) in &other.0 {
            *self.0.entry(bucket).or_default() += steps;
        }
    }

    /// Steps counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The least lag of each non-empty bucket and the steps in it, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&lag, &steps)| (lag, steps))
    }
}

/// One learner update, as the learner tells it. In brackets: the unit and the rule for merging.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateRecord {
    /// Policy version after the update (last).
    pub update: u64,
    /// Environment steps taken by all actors since the run began (last).
    pub env_steps: u64,
    /// Time since the run began, earlier sessions of a resumed run included (seconds, last).
    pub wall_seconds: f64,
    /// Learning rate of the update (last).
    pub learning_rate: Option<f64>,
    /// Mean undiscounted return of the last 100 episodes (last).
    pub return_mean: Option<f64>,
    /// Mean return of a greedy evaluation that ended since the previous record (last).
    pub eval_mean: Option<f64>,

    /// Episodes that ended since the previous record (sum).
    pub episodes: u64,
    /// Mean return of those episodes (mean, weighted by episodes).
    pub episode_return_mean: Option<f64>,
    /// Least return of those episodes (least).
    pub episode_return_min: Option<f64>,
    /// Greatest return of those episodes (greatest).
    pub episode_return_max: Option<f64>,
    /// Mean length of those episodes (steps; mean, weighted by episodes).
    pub episode_length_mean: Option<f64>,

    /// Environment steps consumed, by their lag (sum).
    pub lag: LagHistogram,
    /// Mean lag of the consumed steps (updates; mean, weighted by steps).
    pub lag_mean: Option<f64>,
    /// Greatest lag of a consumed step (updates, greatest).
    pub lag_max: Option<u64>,
    /// Unrolls in the queue when the batch was drawn (mean).
    pub queue_depth: Option<f64>,
    /// Mean time that the batch's unrolls stood in the queue (seconds, mean).
    pub queue_wait_seconds: Option<f64>,

    /// Time spent computing the update (seconds, sum).
    pub update_seconds: f64,
    /// Time the learner waited for experience (seconds, sum).
    pub starved_seconds: f64,
    /// Time the actors waited for room in the queue since the previous record, all actors together (seconds, sum).
    pub blocked_seconds: f64,

    /// Updates skipped because a loss or gradient was not finite (sum).
    pub skipped_non_finite: u64,
    /// Updates skipped because nothing of the batch was left after masking (sum).
    pub skipped_masked: u64,

    /// Total loss (mean).
    pub loss: Option<f64>,
    /// Policy-gradient loss (mean).
    pub policy_loss: Option<f64>,
    /// Value loss (mean).
    pub value_loss: Option<f64>,
    /// Entropy of the policy (nats, mean).
    pub entropy: Option<f64>,
    /// Approximate divergence of the current from the behaviour policy (nats, mean).
    pub approx_kl: Option<f64>,
    /// Norm of the gradient before clipping (mean).
    pub gradient_norm: Option<f64>,
    /// Fraction of importance ratios cut off at the rho threshold (mean).
    pub rho_clip_fraction: Option<f64>,
    /// Fraction of importance ratios cut off at the c threshold (mean).
    pub c_clip_fraction: Option<f64>,
    /// Fraction of the value targets' variance that the values explain, at most 1 (mean).
    pub explained_variance: Option<f64>,
    /// Greatest absolute difference between a log-probability recorded while sampling and the one that the learner
    /// computes under the same version (nats, greatest).
    pub log_prob_difference: Option<f64>,
}

impl UpdateRecord {
    /// The record without the figures that depend on the clock.
    #[must_use]
    pub fn without_clock(&self) -> Self {
        Self {
            wall_seconds: 0.0,
            queue_wait_seconds: None,
            update_seconds: 0.0,
            starved_seconds: 0.0,
            blocked_seconds: 0.0,
            ..self.clone()
        }
    }

    /// Counts an episode that ended since the previous record. `length` is in steps.
    pub fn add_episode(&mut self, episode_return: f64, length: u32) {
        let before = self.episodes as f64;
        let running =
            |mean: Option<f64>, value: f64| Some(mean.map_or(value, |m| m + (value - m) / (before + 1.0)));
        self.episodes += 1;
        self.episode_return_mean = running(self.episode_return_mean, episode_return);
        self.episode_length_mean = running(self.episode_length_mean, f64::from(length));
        self.episode_return_min =
            Some(self.episode_return_min.map_or(episode_return, |m| m.min(episode_return)));
        self.episode_return_max =
            Some(self.episode_return_max.map_or(episode_return, |m| m.max(episode_return)));
    }

    /// Counts `steps` environment steps consumed `lag` updates after they were taken.
    pub fn add_lag(&mut self, lag: u64, steps: u64) {
        if steps == 0 {
            return;
        }
        let before = self.lag.total() as f64;
        let mean = self.lag_mean.unwrap_or_default();
        self.lag_mean = Some(mean + (lag as f64 - mean) * steps as f64 / (before + steps as f64));
        self.lag_max = self.lag_max.max(Some(lag));
        self.lag.add(lag, steps);
    }

    /// Several consecutive records as one, each field by its own rule; `None` of none.
    #[must_use]
    pub fn merge(records: &[Self]) -> Option<Self> {
        let latest = records.last()?;
        let over = |field: Field| records.iter().filter_map(field).filter(|value| value.is_finite());
        let mean = |field: Field| weighted_mean(over(field).map(|value| (value, 1.0)));
        let per_episode = |field: Field| {
            weighted_mean(records.iter().filter_map(|r| Some((finite(field(r))?, r.episodes as f64))))
        };
        let sum = |field: fn(&Self) -> f64| records.iter().map(field).filter(|value| value.is_finite()).sum();
        let count = |field: fn(&Self) -> u64| records.iter().map(field).sum();
        let mut lag = LagHistogram::default();
        for record in records {
            lag.merge(&record.lag);
        }
        Some(Self {
            update: latest.update,
            env_steps: latest.env_steps,
            wall_seconds: latest.wall_seconds,
            learning_rate: over(|r| r.learning_rate).next_back(),
            return_mean: over(|r| r.return_mean).next_back(),
            eval_mean: over(|r| r.eval_mean).next_back(),
            episodes: count(|r| r.episodes),
            episode_return_mean: per_episode(|r| r.episode_return_mean),
            episode_return_min: over(|r| r.episode_return_min).reduce(f64::min),
            episode_return_max: over(|r| r.episode_return_max).reduce(f64::max),
            episode_length_mean: per_episode(|r| r.episode_length_mean),
            lag_mean: weighted_mean(
                records.iter().filter_map(|r| Some((finite(r.lag_mean)?, r.lag.total() as f64))),
            ),
            lag_max: records.iter().filter_map(|r| r.lag_max).max(),
            lag,
            queue_depth: mean(|r| r.queue_depth),
            queue_wait_seconds: mean(|r| r.queue_wait_seconds),
            update_seconds: sum(|r| r.update_seconds),
            starved_seconds: sum(|r| r.starved_seconds),
            blocked_seconds: sum(|r| r.blocked_seconds),
            skipped_non_finite: count(|r| r.skipped_non_finite),
            skipped_masked: count(|r| r.skipped_masked),
            loss: mean(|r| r.loss),
            policy_loss: mean(|r| r.policy_loss),
            value_loss: mean(|r| r.value_loss),
            entropy: mean(|r| r.entropy),
            approx_kl: mean(|r| r.approx_kl),
            gradient_norm: mean(|r| r.gradient_norm),
            rho_clip_fraction: mean(|r| r.rho_clip_fraction),
            c_clip_fraction: mean(|r| r.c_clip_fraction),
            explained_variance: mean(|r| r.explained_variance),
            log_prob_difference: over(|r| r.log_prob_difference).reduce(f64::max),
        })
    }

    /// The values worth a curve, each under its TensorBoard tag; absent ones are left out.
    #[must_use]
    pub fn scalars(&self) -> Vec<(&'static str, f64)> {
        [
            ("return/mean_of_100", self.return_mean),
            ("return/evaluation", self.eval_mean),
            ("return/episode_mean", self.episode_return_mean),
            ("return/episode_min", self.episode_return_min),
            ("return/episode_max", self.episode_return_max),
            ("return/episode_length", self.episode_length_mean),
            ("loss/total", self.loss),
            ("loss/policy", self.policy_loss),
            ("loss/value", self.value_loss),
            ("policy/entropy", self.entropy),
            ("policy/approx_kl", self.approx_kl),
            ("policy/rho_clip_fraction", self.rho_clip_fraction),
            ("policy/c_clip_fraction", self.c_clip_fraction),
            ("policy/log_prob_difference", self.log_prob_difference),
            ("value/explained_variance", self.explained_variance),
            ("optimiser/gradient_norm", self.gradient_norm),
            ("optimiser/learning_rate", self.learning_rate),
            ("lag/mean", self.lag_mean),
            ("lag/max", self.lag_max.map(|lag| lag as f64)),
            ("queue/depth", self.queue_depth),
            ("queue/wait_seconds", self.queue_wait_seconds),
            ("time/update_seconds", Some(self.update_seconds)),
            ("time/starved_seconds", Some(self.starved_seconds)),
            ("time/blocked_seconds", Some(self.blocked_seconds)),
        ]
        .into_iter()
        .filter_map(|(tag, value)| Some((tag, finite(value)?)))
        .collect()
    }
}

/// Reads one optional number of a record.
pub(super) type Field = fn(&UpdateRecord) -> Option<f64>;

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// Mean of (value, weight); `None` when the weights sum to zero.
fn weighted_mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, total), (value, w)| (sum + value * w, total + w));
    (weight > 0.0).then(|| sum / weight)
}

/// One line of `metrics.jsonl`: the updates since the previous line, merged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricsLine {
    /// The merged updates.
    #[serde(flatten)]
    pub record: UpdateRecord,
    /// How many updates this line stands for.
    pub merged_updates: u64,
    /// Environment steps taken in a second since the previous line.
    pub steps_per_second: Option<f64>,
}

impl MetricsLine {
    /// As one line of JSON without the newline; absent values are left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|_, field| !field.is_null());
        }
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_follows_each_fields_own_rule() {
        let mut first =
            UpdateRecord { update: 1, loss: Some(2.0), update_seconds: 0.5, ..Default::default() };
        first.add_episode(10.0, 10);
        first.add_lag(0, 30);
        let mut second =
            UpdateRecord { update: 2, loss: Some(4.0), update_seconds: 0.25, ..Default::default() };
        for episode_return in [20.0, 40.0, 60.0] {
            second.add_episode(episode_return, 20);
        }
        second.add_lag(4, 10);
        let merged = UpdateRecord::merge(&[first, second]).unwrap();
        assert_eq!((merged.update, merged.loss, merged.update_seconds), (2, Some(3.0), 0.75));
        assert_eq!((merged.episodes, merged.episode_return_mean), (4, Some(32.5)));
        assert_eq!((merged.episode_return_min, merged.episode_return_max), (Some(10.0), Some(60.0)));
        assert_eq!((merged.lag_mean, merged.lag_max), (Some(1.0), Some(4)));
        assert_eq!(merged.lag.buckets().collect::<Vec<_>>(), [(0, 30), (4, 10)]);
    }

    #[test]
    fn a_value_that_is_missing_or_not_finite_is_left_out_of_means_and_lines() {
        let records = [Some(1.0), None, Some(f64::NAN), Some(3.0)]
            .map(|loss| UpdateRecord { loss, ..Default::default() });
        assert_eq!(UpdateRecord::merge(&records).unwrap().loss, Some(2.0));
        let line = MetricsLine { record: UpdateRecord::merge(&records[1..3]).unwrap(), ..Default::default() };
        let json = line.to_json();
        assert!(
            !json.contains("\"loss\"") && !json.contains("null") && !json.contains("return_mean"),
            "{json}"
        );
    }

    #[test]
    fn a_line_reads_back_and_starts_with_the_update() {
        let mut record = UpdateRecord { update: 7, entropy: Some(0.1 + 0.2), ..Default::default() };
        record.add_lag(40, 5);
        let line = MetricsLine { record, merged_updates: 1, steps_per_second: Some(1e5) };
        let json = line.to_json();
        assert!(json.starts_with("{\"update\":7,"), "{json}");
        assert_eq!(serde_json::from_str::<MetricsLine>(&json).unwrap(), line);
    }

    #[test]
    fn great_lags_share_buckets() {
        let mut lag = LagHistogram::default();
        for value in [31, 32, 63, 64, u64::MAX] {
            lag.add(value, 1);
        }
        assert_eq!(lag.buckets().collect::<Vec<_>>(), [(31, 1), (32, 2), (64, 1), (1 << 63, 1)]);
    }
}
