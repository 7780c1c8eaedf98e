//! What one learner update of a control run has to tell.

use serde::{Deserialize, Serialize};

use super::lag::{LagHistogram, count_lag};
use super::merge::{Merge, present};
use super::record::Record;
use crate::trajectory::DropReason;

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
    /// Fraction of the entries whose ratio was above the objective's interval while the advantage was positive, so that they
    /// carried no gradient (mean).
    pub clip_fraction_high: Option<f64>,
    /// The same below it while the advantage was negative (mean).
    pub clip_fraction_low: Option<f64>,
    /// Ratio of the current to the behaviour policy (mean).
    pub ratio_mean: Option<f64>,
    /// Mean advantage (mean).
    pub advantage_mean: Option<f64>,
    /// Standard deviation of the advantages (mean).
    pub advantage_std: Option<f64>,
    /// Fraction of the value targets' variance that the values explain, at most 1 (mean).
    pub explained_variance: Option<f64>,
    /// Greatest absolute difference between a log-probability recorded while sampling and the one that the learner
    /// computes under the same version (nats, greatest).
    pub log_prob_difference: Option<f64>,
}

impl UpdateRecord {
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
        count_lag((&mut self.lag, &mut self.lag_mean, &mut self.lag_max), lag, steps);
    }
}

impl Record for UpdateRecord {
    const RATE: &'static str = "steps_per_second";
    const PRODUCED: &'static str = "env_steps";

    fn update(&self) -> u64 {
        self.update
    }

    fn produced(&self) -> u64 {
        self.env_steps
    }

    fn wall_seconds(&self) -> f64 {
        self.wall_seconds
    }

    fn update_seconds(&self) -> f64 {
        self.update_seconds
    }

    fn starved_seconds(&self) -> f64 {
        self.starved_seconds
    }

    fn queue_wait_seconds(&self) -> Option<f64> {
        self.queue_wait_seconds
    }

    fn skipped(&self) -> [(DropReason, u64); 2] {
        [(DropReason::NonFinite, self.skipped_non_finite), (DropReason::Masked, self.skipped_masked)]
    }

    fn lag(&self) -> &LagHistogram {
        &self.lag
    }

    fn without_clock(&self) -> Self {
        Self {
            wall_seconds: 0.0,
            queue_wait_seconds: None,
            update_seconds: 0.0,
            starved_seconds: 0.0,
            blocked_seconds: 0.0,
            ..self.clone()
        }
    }

    fn merge(records: &[Self]) -> Option<Self> {
        let latest = records.last()?;
        let of = Merge(records);
        let episodes = |r: &Self| r.episodes as f64;
        Some(Self {
            update: latest.update,
            env_steps: latest.env_steps,
            wall_seconds: latest.wall_seconds,
            learning_rate: of.last(|r| r.learning_rate),
            return_mean: of.last(|r| r.return_mean),
            eval_mean: of.last(|r| r.eval_mean),
            episodes: of.count(|r| r.episodes),
            episode_return_mean: of.weighted_mean(|r| r.episode_return_mean, episodes),
            episode_return_min: of.least(|r| r.episode_return_min),
            episode_return_max: of.greatest(|r| r.episode_return_max),
            episode_length_mean: of.weighted_mean(|r| r.episode_length_mean, episodes),
            lag: of.lag(|r| &r.lag),
            lag_mean: of.weighted_mean(|r| r.lag_mean, |r| r.lag.total() as f64),
            lag_max: of.greatest_count(|r| r.lag_max),
            queue_depth: of.mean(|r| r.queue_depth),
            queue_wait_seconds: of.mean(|r| r.queue_wait_seconds),
            update_seconds: of.sum(|r| r.update_seconds),
            starved_seconds: of.sum(|r| r.starved_seconds),
            blocked_seconds: of.sum(|r| r.blocked_seconds),
            skipped_non_finite: of.count(|r| r.skipped_non_finite),
            skipped_masked: of.count(|r| r.skipped_masked),
            loss: of.mean(|r| r.loss),
            policy_loss: of.mean(|r| r.policy_loss),
            value_loss: of.mean(|r| r.value_loss),
            entropy: of.mean(|r| r.entropy),
            approx_kl: of.mean(|r| r.approx_kl),
            gradient_norm: of.mean(|r| r.gradient_norm),
            rho_clip_fraction: of.mean(|r| r.rho_clip_fraction),
            c_clip_fraction: of.mean(|r| r.c_clip_fraction),
            clip_fraction_high: of.mean(|r| r.clip_fraction_high),
            clip_fraction_low: of.mean(|r| r.clip_fraction_low),
            ratio_mean: of.mean(|r| r.ratio_mean),
            advantage_mean: of.mean(|r| r.advantage_mean),
            advantage_std: of.mean(|r| r.advantage_std),
            explained_variance: of.mean(|r| r.explained_variance),
            log_prob_difference: of.greatest(|r| r.log_prob_difference),
        })
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        present([
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
            ("policy/clip_fraction_high", self.clip_fraction_high),
            ("policy/clip_fraction_low", self.clip_fraction_low),
            ("policy/ratio_mean", self.ratio_mean),
            ("policy/advantage_mean", self.advantage_mean),
            ("policy/advantage_std", self.advantage_std),
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
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::MetricsLine;

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
        let line = MetricsLine { record, merged_updates: 1, per_second: Some(1e5) };
        let json = line.to_json();
        assert!(json.starts_with("{\"update\":7,"), "{json}");
        assert_eq!(serde_json::from_str::<MetricsLine>(&json).unwrap(), line);
    }
}
