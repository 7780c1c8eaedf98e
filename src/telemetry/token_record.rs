//! What one learner update of a token run has to tell.
//!
//! A batch is made of groups of trajectories. Figures of rewards and lengths are over the consumed trajectories, and
//! records are merged in proportion to those; figures of the objective are means over updates.

use serde::{Deserialize, Serialize};

use super::lag::{LagHistogram, count_lag};
use super::merge::{Merge, present};
use super::record::Record;
use crate::trajectory::{DropReason, TokenFate, TokenFates};

/// One learner update, as the learner tells it. In brackets: the unit and the rule for merging.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenRecord {
    /// Policy version after the update (last).
    pub update: u64,
    /// Tokens generated since the run began, whatever became of them (last).
    pub tokens: u64,
    /// Time since the run began, earlier sessions of a resumed run included (seconds, last).
    pub wall_seconds: f64,
    /// Learning rate of the update (last).
    pub learning_rate: Option<f64>,
    /// Cross-entropy of a supervised warm-up update; other updates have none (nats a token, mean).
    pub warmup_loss: Option<f64>,

    /// Trajectories consumed (sum).
    pub trajectories: u64,
    /// Trajectories that were sampled for the consumed groups, consumed or not (sum).
    pub answers: u64,
    /// Passes that the update made over its batch (mean).
    pub passes: Option<f64>,
    /// Groups consumed (sum).
    pub groups: u64,
    /// Mean reward of the trajectories that were sampled for the consumed groups (mean, weighted by trajectories).
    pub reward_mean: Option<f64>,
    /// Standard deviation of the rewards of one batch (mean, weighted by trajectories).
    pub reward_std: Option<f64>,
    /// Mean of the rewards that were learned from, after rubric and shaping (mean, weighted by trajectories).
    pub shaped_reward_mean: Option<f64>,
    /// Mean absolute length reward (mean, weighted by trajectories).
    pub length_reward_mean: Option<f64>,
    /// Fraction of the consumed trajectories with an overlong penalty (mean, weighted by trajectories).
    pub overlong_fraction: Option<f64>,
    /// Fraction of the consumed trajectories over their effort's budget (mean, weighted by trajectories).
    pub over_budget_fraction: Option<f64>,
    /// Mean tracked pass rate of the sources that were seen so far (last).
    pub pass_rate: Option<f64>,
    /// Groups whose rewards were products of rubric scores, GRS (sum).
    pub grs_groups: u64,
    /// Groups whose passes were weighed by rubric scores, GAR (sum).
    pub gar_groups: u64,
    /// Mean factor that GAR brought passes back to their summed advantage with (mean).
    pub gar_lambda_mean: Option<f64>,
    /// Consumed trajectories that were confirmed to be hacks (sum).
    pub confirmed_hacks: u64,
    /// Consumed groups that lacked a rubric score and kept their plain advantages (sum).
    pub rubric_failures: u64,
    /// Fraction of the trajectories that were sampled for the consumed groups with the full reward (mean, weighted by trajectories).
    pub solved: Option<f64>,
    /// Mean reward of an evaluation that ended since the previous record (last); the accuracy, where right is 1 and wrong
    /// 0.
    pub eval_mean: Option<f64>,
    /// Groups whose members all had the same reward, from which nothing can be learned (sum).
    pub zero_variance_groups: u64,

    /// Mean length of the consumed responses (tokens; mean, weighted by trajectories).
    pub response_length_mean: Option<f64>,
    /// Greatest length of a consumed response (tokens, greatest).
    pub response_length_max: Option<u64>,
    /// Mean length of their prompts (tokens; mean, weighted by trajectories).
    pub prompt_length_mean: Option<f64>,
    /// Fraction of the consumed responses that were cut off (mean, weighted by trajectories).
    pub truncated_fraction: Option<f64>,
    /// Mean count of the model's turns (mean, weighted by trajectories).
    pub turns_mean: Option<f64>,

    /// Tokens consumed, by their lag (sum).
    pub lag: LagHistogram,
    /// Mean lag of the consumed tokens (updates; mean, weighted by tokens).
    pub lag_mean: Option<f64>,
    /// Greatest lag of a consumed token (updates, greatest).
    pub lag_max: Option<u64>,
    /// Trajectories in the queue when the batch was drawn (mean).
    pub queue_depth: Option<f64>,
    /// Mean time that the batch's trajectories stood in the queue (seconds, mean).
    pub queue_wait_seconds: Option<f64>,

    /// Time that generation computed since the previous record (seconds, sum).
    pub generate_seconds: f64,
    /// Time that grading took since the previous record, all graders together (seconds, sum).
    pub grade_seconds: f64,
    /// Time spent computing the update (seconds, sum).
    pub update_seconds: f64,
    /// Running mean of the time that generation computes for the least work of a step, where `learner.auto` chooses
    /// (seconds, last).
    pub generate_estimate_seconds: Option<f64>,
    /// The same of the time that an update takes (seconds, last).
    pub train_estimate_seconds: Option<f64>,
    /// Time the learner waited for trajectories (seconds, sum).
    pub starved_seconds: f64,
    /// Time generation waited for room in the queue since the previous record (seconds, sum).
    pub blocked_seconds: f64,

    /// Trajectories that could not be graded since the previous record (sum).
    pub grading_errors: u64,
    /// Groups that a grader of groups could not grade since the previous record (sum).
    pub group_grading_errors: u64,
    /// Consumed trajectories that were sampled under more than one version (sum).
    pub interrupted: u64,
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
    /// Divergence from the reference policy (nats, mean).
    pub reference_kl: Option<f64>,
    /// Divergence of the policy from its teachers, estimated on the policy's own tokens (nats, mean).
    pub teacher_kl: Option<f64>,
    /// Mean divergence of the policy that sampled from the reference, before any coefficient (nats a token, mean).
    pub reference_divergence: Option<f64>,
    /// Coefficient of the reference KL where a controller moves it (last).
    pub kl_coefficient: Option<f64>,
    /// Version that was the reference policy (last).
    pub reference_version: Option<u64>,
    /// Entropy of the policy (nats, mean).
    pub entropy: Option<f64>,
    /// Approximate divergence of the current from the behaviour policy (nats, mean).
    pub approx_kl: Option<f64>,
    /// Norm of the gradient before clipping (mean).
    pub gradient_norm: Option<f64>,
    /// Mean importance ratio (mean).
    pub ratio_mean: Option<f64>,
    /// Greatest importance ratio (greatest).
    pub ratio_max: Option<f64>,
    /// Fraction of tokens whose ratio was cut off at the lower threshold (mean).
    pub clip_fraction_low: Option<f64>,
    /// Fraction of tokens whose ratio was cut off at the upper threshold (mean).
    pub clip_fraction_high: Option<f64>,
    /// Fraction of tokens masked for being too far off-policy (mean).
    pub masked_fraction: Option<f64>,
    /// Fraction of the value targets' variance that the values explain, at most 1, before anything is learned from the
    /// batch (mean).
    pub explained_variance: Option<f64>,
    /// The same after a separate critic learned from the batch, of the values that the advantages are made of (mean).
    pub explained_variance_updated: Option<f64>,
    /// Norm of the gradient of a separate critic before clipping (mean).
    pub value_gradient_norm: Option<f64>,
    /// Mean advantage (mean).
    pub advantage_mean: Option<f64>,
    /// Standard deviation of the advantages (mean).
    pub advantage_std: Option<f64>,
    /// Greatest absolute difference between a log-probability recorded while sampling and the one that the learner
    /// computes under the same version (nats, greatest).
    pub log_prob_difference: Option<f64>,
    /// The same for tokens whose KV cache was kept over a weight update, where a difference is to be expected
    /// (nats, greatest).
    pub kept_kv_log_prob_difference: Option<f64>,

    /// Least importance ratio (least).
    pub ratio_min: Option<f64>,
    /// Fraction of tokens that the second clip, of negative advantages, acted on (mean).
    pub dual_clip_fraction: Option<f64>,
    /// Fraction of tokens masked below the objective's lower bound (mean).
    pub masked_fraction_low: Option<f64>,
    /// Fraction of tokens masked above the objective's upper bound (mean).
    pub masked_fraction_high: Option<f64>,
    /// Mean weight for the behaviour policy, before its cap or mask (mean).
    pub weight_mean: Option<f64>,
    /// Fraction of tokens whose weight for the behaviour policy was above its cap (mean).
    pub weight_clamped_fraction: Option<f64>,
    /// Mean margin of the preference pairs over the reference policy (nats, mean).
    pub pair_margin_mean: Option<f64>,
    /// Fraction of the preference pairs with a positive margin (mean).
    pub pair_accuracy: Option<f64>,
    /// Smallest ratio with advantages of at least 0, where a controller moves it (last).
    pub bound_pos_low: Option<f64>,
    /// Largest ratio with advantages of at least 0, where a controller moves it (last).
    pub bound_pos_high: Option<f64>,
    /// Smallest ratio with negative advantages, where a controller moves it (last).
    pub bound_neg_low: Option<f64>,
    /// Largest ratio with negative advantages, where a controller moves it (last).
    pub bound_neg_high: Option<f64>,
    /// Mean of value minus value target before anything is learned from the batch (mean).
    pub value_bias: Option<f64>,
    /// Least advantage (least).
    pub advantage_min: Option<f64>,
    /// Greatest advantage (greatest).
    pub advantage_max: Option<f64>,
    /// Fraction of the groups, dropped ones included, whose members all had the same reward; only where answers are
    /// compared within their group (mean, weighted by groups).
    pub zero_variance_fraction: Option<f64>,
    /// Norm of the gradient of the token embedding before clipping, of the head too where the two are tied (mean).
    pub gradient_norm_embedding: Option<f64>,
    /// The same of attention (mean).
    pub gradient_norm_attention: Option<f64>,
    /// The same of feed-forward networks or experts (mean).
    pub gradient_norm_feed_forward: Option<f64>,
    /// The same of routers (mean).
    pub gradient_norm_router: Option<f64>,
    /// The same of norms (mean).
    pub gradient_norm_norm: Option<f64>,
    /// The same of a head for the vocabulary of its own (mean).
    pub gradient_norm_head: Option<f64>,
    /// The same of a value head on the policy's layers (mean).
    pub gradient_norm_value_head: Option<f64>,
    /// Tokens after the prompts by what became of them in each pass over a batch: learned from, or left out for a reason
    /// (sum).
    pub token_fates: TokenFates,
}

impl TokenRecord {
    /// Counts `tokens` tokens consumed `lag` updates after they were sampled.
    pub fn add_lag(&mut self, lag: u64, tokens: u64) {
        count_lag((&mut self.lag, &mut self.lag_mean, &mut self.lag_max), lag, tokens);
    }

    /// Fraction of the model's tokens in consumed answers that were learned from; `None` without any.
    #[must_use]
    pub fn learned_fraction(&self) -> Option<f64> {
        let own = self.token_fates.total() - self.token_fates.get(TokenFate::Observation);
        (own > 0).then(|| self.token_fates.get(TokenFate::Learned) as f64 / own as f64)
    }
}

impl Record for TokenRecord {
    const RATE: &'static str = "tokens_per_second";
    const PRODUCED: &'static str = "tokens";

    fn update(&self) -> u64 {
        self.update
    }

    fn produced(&self) -> u64 {
        self.tokens
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
            generate_seconds: 0.0,
            grade_seconds: 0.0,
            update_seconds: 0.0,
            generate_estimate_seconds: None,
            train_estimate_seconds: None,
            starved_seconds: 0.0,
            blocked_seconds: 0.0,
            ..self.clone()
        }
    }

    fn merge(records: &[Self]) -> Option<Self> {
        let latest = records.last()?;
        let of = Merge(records);
        let trajectories = |r: &Self| r.trajectories as f64;
        Some(Self {
            update: latest.update,
            tokens: latest.tokens,
            wall_seconds: latest.wall_seconds,
            learning_rate: of.last(|r| r.learning_rate),
            warmup_loss: of.mean(|r| r.warmup_loss),
            trajectories: of.count(|r| r.trajectories),
            answers: of.count(|r| r.answers),
            passes: of.mean(|r| r.passes),
            groups: of.count(|r| r.groups),
            reward_mean: of.weighted_mean(|r| r.reward_mean, trajectories),
            reward_std: of.weighted_mean(|r| r.reward_std, trajectories),
            shaped_reward_mean: of.weighted_mean(|r| r.shaped_reward_mean, trajectories),
            length_reward_mean: of.weighted_mean(|r| r.length_reward_mean, trajectories),
            overlong_fraction: of.weighted_mean(|r| r.overlong_fraction, trajectories),
            over_budget_fraction: of.weighted_mean(|r| r.over_budget_fraction, trajectories),
            pass_rate: of.last(|r| r.pass_rate),
            grs_groups: of.count(|r| r.grs_groups),
            gar_groups: of.count(|r| r.gar_groups),
            gar_lambda_mean: of.mean(|r| r.gar_lambda_mean),
            confirmed_hacks: of.count(|r| r.confirmed_hacks),
            rubric_failures: of.count(|r| r.rubric_failures),
            solved: of.weighted_mean(|r| r.solved, trajectories),
            eval_mean: of.last(|r| r.eval_mean),
            zero_variance_groups: of.count(|r| r.zero_variance_groups),
            response_length_mean: of.weighted_mean(|r| r.response_length_mean, trajectories),
            response_length_max: of.greatest_count(|r| r.response_length_max),
            prompt_length_mean: of.weighted_mean(|r| r.prompt_length_mean, trajectories),
            truncated_fraction: of.weighted_mean(|r| r.truncated_fraction, trajectories),
            turns_mean: of.weighted_mean(|r| r.turns_mean, trajectories),
            lag: of.lag(|r| &r.lag),
            lag_mean: of.weighted_mean(|r| r.lag_mean, |r| r.lag.total() as f64),
            lag_max: of.greatest_count(|r| r.lag_max),
            queue_depth: of.mean(|r| r.queue_depth),
            queue_wait_seconds: of.mean(|r| r.queue_wait_seconds),
            generate_seconds: of.sum(|r| r.generate_seconds),
            grade_seconds: of.sum(|r| r.grade_seconds),
            update_seconds: of.sum(|r| r.update_seconds),
            generate_estimate_seconds: of.last(|r| r.generate_estimate_seconds),
            train_estimate_seconds: of.last(|r| r.train_estimate_seconds),
            starved_seconds: of.sum(|r| r.starved_seconds),
            blocked_seconds: of.sum(|r| r.blocked_seconds),
            grading_errors: of.count(|r| r.grading_errors),
            group_grading_errors: of.count(|r| r.group_grading_errors),
            interrupted: of.count(|r| r.interrupted),
            skipped_non_finite: of.count(|r| r.skipped_non_finite),
            skipped_masked: of.count(|r| r.skipped_masked),
            loss: of.mean(|r| r.loss),
            policy_loss: of.mean(|r| r.policy_loss),
            value_loss: of.mean(|r| r.value_loss),
            reference_kl: of.mean(|r| r.reference_kl),
            teacher_kl: of.mean(|r| r.teacher_kl),
            reference_divergence: of.mean(|r| r.reference_divergence),
            kl_coefficient: of.last(|r| r.kl_coefficient),
            reference_version: of.greatest_count(|r| r.reference_version),
            entropy: of.mean(|r| r.entropy),
            approx_kl: of.mean(|r| r.approx_kl),
            gradient_norm: of.mean(|r| r.gradient_norm),
            ratio_mean: of.mean(|r| r.ratio_mean),
            ratio_max: of.greatest(|r| r.ratio_max),
            clip_fraction_low: of.mean(|r| r.clip_fraction_low),
            clip_fraction_high: of.mean(|r| r.clip_fraction_high),
            masked_fraction: of.mean(|r| r.masked_fraction),
            explained_variance: of.mean(|r| r.explained_variance),
            explained_variance_updated: of.mean(|r| r.explained_variance_updated),
            value_gradient_norm: of.mean(|r| r.value_gradient_norm),
            advantage_mean: of.mean(|r| r.advantage_mean),
            advantage_std: of.mean(|r| r.advantage_std),
            log_prob_difference: of.greatest(|r| r.log_prob_difference),
            kept_kv_log_prob_difference: of.greatest(|r| r.kept_kv_log_prob_difference),
            ratio_min: of.least(|r| r.ratio_min),
            dual_clip_fraction: of.mean(|r| r.dual_clip_fraction),
            masked_fraction_low: of.mean(|r| r.masked_fraction_low),
            masked_fraction_high: of.mean(|r| r.masked_fraction_high),
            weight_mean: of.mean(|r| r.weight_mean),
            weight_clamped_fraction: of.mean(|r| r.weight_clamped_fraction),
            pair_margin_mean: of.mean(|r| r.pair_margin_mean),
            pair_accuracy: of.mean(|r| r.pair_accuracy),
            bound_pos_low: of.last(|r| r.bound_pos_low),
            bound_pos_high: of.last(|r| r.bound_pos_high),
            bound_neg_low: of.last(|r| r.bound_neg_low),
            bound_neg_high: of.last(|r| r.bound_neg_high),
            value_bias: of.mean(|r| r.value_bias),
            advantage_min: of.least(|r| r.advantage_min),
            advantage_max: of.greatest(|r| r.advantage_max),
            zero_variance_fraction: of.weighted_mean(|r| r.zero_variance_fraction, |r| r.groups as f64),
            gradient_norm_embedding: of.mean(|r| r.gradient_norm_embedding),
            gradient_norm_attention: of.mean(|r| r.gradient_norm_attention),
            gradient_norm_feed_forward: of.mean(|r| r.gradient_norm_feed_forward),
            gradient_norm_router: of.mean(|r| r.gradient_norm_router),
            gradient_norm_norm: of.mean(|r| r.gradient_norm_norm),
            gradient_norm_head: of.mean(|r| r.gradient_norm_head),
            gradient_norm_value_head: of.mean(|r| r.gradient_norm_value_head),
            token_fates: of.fates(|r| &r.token_fates),
        })
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        let count = |count: u64| Some(count as f64);
        present([
            ("reward/mean", self.reward_mean),
            ("reward/std", self.reward_std),
            ("reward/solved", self.solved),
            ("reward/shaped", self.shaped_reward_mean),
            ("reward/length", self.length_reward_mean),
            ("reward/overlong_fraction", self.overlong_fraction),
            ("reward/over_budget_fraction", self.over_budget_fraction),
            ("rubric/pass_rate", self.pass_rate),
            ("rubric/grs_groups", count(self.grs_groups)),
            ("rubric/gar_groups", count(self.gar_groups)),
            ("rubric/gar_lambda_mean", self.gar_lambda_mean),
            ("rubric/confirmed_hacks", count(self.confirmed_hacks)),
            ("rubric/failures", count(self.rubric_failures)),
            ("reward/evaluation", self.eval_mean),
            ("reward/zero_variance_groups", count(self.zero_variance_groups)),
            ("response/length_mean", self.response_length_mean),
            ("response/length_max", self.response_length_max.and_then(count)),
            ("response/truncated_fraction", self.truncated_fraction),
            ("response/turns_mean", self.turns_mean),
            ("prompt/length_mean", self.prompt_length_mean),
            ("step/passes", self.passes),
            ("step/answers", count(self.answers)),
            ("step/generate_estimate_seconds", self.generate_estimate_seconds),
            ("step/train_estimate_seconds", self.train_estimate_seconds),
            ("loss/total", self.loss),
            ("loss/policy", self.policy_loss),
            ("loss/value", self.value_loss),
            ("loss/warmup", self.warmup_loss),
            ("policy/entropy", self.entropy),
            ("policy/approx_kl", self.approx_kl),
            ("policy/reference_kl", self.reference_kl),
            ("policy/teacher_kl", self.teacher_kl),
            ("policy/reference_divergence", self.reference_divergence),
            ("policy/kl_coefficient", self.kl_coefficient),
            ("policy/ratio_mean", self.ratio_mean),
            ("policy/ratio_max", self.ratio_max),
            ("policy/clip_fraction_low", self.clip_fraction_low),
            ("policy/clip_fraction_high", self.clip_fraction_high),
            ("policy/masked_fraction", self.masked_fraction),
            ("policy/log_prob_difference", self.log_prob_difference),
            ("policy/kept_kv_log_prob_difference", self.kept_kv_log_prob_difference),
            ("value/explained_variance", self.explained_variance),
            ("value/explained_variance_updated", self.explained_variance_updated),
            ("value/gradient_norm", self.value_gradient_norm),
            ("advantage/mean", self.advantage_mean),
            ("advantage/std", self.advantage_std),
            ("optimiser/gradient_norm", self.gradient_norm),
            ("optimiser/learning_rate", self.learning_rate),
            ("lag/mean", self.lag_mean),
            ("lag/max", self.lag_max.and_then(count)),
            ("queue/depth", self.queue_depth),
            ("queue/wait_seconds", self.queue_wait_seconds),
            ("generation/interrupted", count(self.interrupted)),
            ("grading/errors", count(self.grading_errors)),
            ("grading/group_errors", count(self.group_grading_errors)),
            ("time/generate_seconds", Some(self.generate_seconds)),
            ("time/grade_seconds", Some(self.grade_seconds)),
            ("time/update_seconds", Some(self.update_seconds)),
            ("time/starved_seconds", Some(self.starved_seconds)),
            ("time/blocked_seconds", Some(self.blocked_seconds)),
            ("policy/ratio_min", self.ratio_min),
            ("policy/dual_clip_fraction", self.dual_clip_fraction),
            ("policy/masked_fraction_low", self.masked_fraction_low),
            ("policy/masked_fraction_high", self.masked_fraction_high),
            ("policy/weight_mean", self.weight_mean),
            ("policy/weight_clamped_fraction", self.weight_clamped_fraction),
            ("policy/pair_margin_mean", self.pair_margin_mean),
            ("policy/pair_accuracy", self.pair_accuracy),
            ("bounds/pos_low", self.bound_pos_low),
            ("bounds/pos_high", self.bound_pos_high),
            ("bounds/neg_low", self.bound_neg_low),
            ("bounds/neg_high", self.bound_neg_high),
            ("value/bias", self.value_bias),
            ("advantage/min", self.advantage_min),
            ("advantage/max", self.advantage_max),
            ("reward/zero_variance_fraction", self.zero_variance_fraction),
            ("optimiser/gradient_norm_embedding", self.gradient_norm_embedding),
            ("optimiser/gradient_norm_attention", self.gradient_norm_attention),
            ("optimiser/gradient_norm_feed_forward", self.gradient_norm_feed_forward),
            ("optimiser/gradient_norm_router", self.gradient_norm_router),
            ("optimiser/gradient_norm_norm", self.gradient_norm_norm),
            ("optimiser/gradient_norm_head", self.gradient_norm_head),
            ("optimiser/gradient_norm_value_head", self.gradient_norm_value_head),
            ("tokens/learned_fraction", self.learned_fraction()),
        ])
    }
}

#[cfg(test)]
#[path = "token_record_tests.rs"]
mod tests;
