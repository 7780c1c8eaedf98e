//! What one learner update of a token run has to tell.
//!
//! A batch is made of groups of trajectories. Figures of rewards and lengths are over the consumed trajectories, and
//! records are merged in proportion to those; figures of the objective are means over updates.

mod as_record;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::lag::{LagHistogram, count_lag};
use crate::trajectory::{TokenFate, TokenFates};

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
    /// Of these, those of each source of problems that has any (sum).
    pub sources: BTreeMap<Arc<str>, u64>,
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
    /// Answers that differ from all before them in their group, as a fraction of its answers: mean over the consumed
    /// groups of several (mean, weighted by groups).
    pub distinct_answer_fraction: Option<f64>,
    /// Standard deviation of the lengths of a group's responses: mean over the consumed groups of several (tokens; mean,
    /// weighted by groups).
    pub group_length_spread: Option<f64>,
    /// Time from the first ended answer of a group until the whole of it was graded: mean over the consumed groups of
    /// several (seconds; mean, weighted by groups).
    pub group_wait_seconds: Option<f64>,

    /// Tokens consumed, by their lag (sum).
    pub lag: LagHistogram,
    /// Mean lag of the consumed tokens (updates; mean, weighted by tokens).
    pub lag_mean: Option<f64>,
    /// Greatest lag of a consumed token (updates, greatest).
    pub lag_max: Option<u64>,
    /// Fraction of the consumed tokens that were sampled by an older version than the one that learned from them (mean,
    /// weighted by tokens).
    pub old_token_fraction: Option<f64>,
    /// Answers that are being generated or wait for a generator, paused ones excepted (last).
    pub live: Option<u64>,
    /// Answers that were stopped and go on later (last).
    pub paused: Option<u64>,
    /// Answers of complete groups that wait for the learner (last).
    pub ready: Option<u64>,
    /// Greatest number of answers that were begun and had not ended since the previous record (greatest).
    pub in_flight_max: Option<u64>,
    /// Free places of the pool, where there is one; negative beyond it (answers, last).
    pub credit: Option<i64>,
    /// Most answers that may be generated at once, where there is a limit (last).
    pub concurrency: Option<u64>,
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
    /// How far recorded log-probabilities are from the learner's before its first step, over answers of the version that
    /// learns: what sets generation and training apart, without any lag (nats, mean).
    pub mismatch_mean: Option<f64>,
    /// The same (nats, greatest).
    pub mismatch_max: Option<f64>,

    /// Experts that generation used and that the routers would not choose under the version that learns, as a fraction of
    /// those used, over a micro-batch; only where experts are replayed (mean).
    pub expert_disagreement: Option<f64>,

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
        self.old_token_fraction = self.lag.old_fraction();
    }

    /// Fraction of the model's tokens in consumed answers that were learned from; `None` without any.
    #[must_use]
    pub fn learned_fraction(&self) -> Option<f64> {
        let own = self.token_fates.total() - self.token_fates.get(TokenFate::Observation);
        (own > 0).then(|| self.token_fates.get(TokenFate::Learned) as f64 / own as f64)
    }
}

#[cfg(test)]
#[path = "token_record_tests.rs"]
mod tests;
