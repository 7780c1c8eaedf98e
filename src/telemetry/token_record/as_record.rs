//! How the figures of token updates are merged into a line, and which of them TensorBoard shows.

use super::TokenRecord;
use crate::telemetry::lag::LagHistogram;
use crate::telemetry::merge::{Merge, present};
use crate::telemetry::record::Record;
use crate::trajectory::DropReason;

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
            group_wait_seconds: None,
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

    #[expect(clippy::too_many_lines, reason = "a line a field, and nothing else")]
    fn merge(records: &[Self]) -> Option<Self> {
        let latest = records.last()?;
        let of = Merge(records);
        let trajectories = |r: &Self| r.trajectories as f64;
        let groups = |r: &Self| r.groups as f64;
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
            sources: of.counts(|r| &r.sources),
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
            distinct_answer_fraction: of.weighted_mean(|r| r.distinct_answer_fraction, groups),
            group_length_spread: of.weighted_mean(|r| r.group_length_spread, groups),
            group_wait_seconds: of.weighted_mean(|r| r.group_wait_seconds, groups),
            lag: of.lag(|r| &r.lag),
            lag_mean: of.weighted_mean(|r| r.lag_mean, |r| r.lag.total() as f64),
            lag_max: of.greatest_count(|r| r.lag_max),
            old_token_fraction: of.weighted_mean(|r| r.old_token_fraction, |r| r.lag.total() as f64),
            live: latest.live,
            paused: latest.paused,
            ready: latest.ready,
            in_flight_max: of.greatest_count(|r| r.in_flight_max),
            credit: latest.credit,
            concurrency: latest.concurrency,
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
            mismatch_mean: of.mean(|r| r.mismatch_mean),
            mismatch_max: of.greatest(|r| r.mismatch_max),
            expert_disagreement: of.mean(|r| r.expert_disagreement),
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
            zero_variance_fraction: of.weighted_mean(|r| r.zero_variance_fraction, groups),
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
            ("group/distinct_answer_fraction", self.distinct_answer_fraction),
            ("group/length_spread", self.group_length_spread),
            ("group/wait_seconds", self.group_wait_seconds),
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
            ("policy/mismatch_mean", self.mismatch_mean),
            ("policy/mismatch_max", self.mismatch_max),
            ("value/explained_variance", self.explained_variance),
            ("value/explained_variance_updated", self.explained_variance_updated),
            ("value/gradient_norm", self.value_gradient_norm),
            ("advantage/mean", self.advantage_mean),
            ("advantage/std", self.advantage_std),
            ("optimiser/gradient_norm", self.gradient_norm),
            ("optimiser/learning_rate", self.learning_rate),
            ("lag/mean", self.lag_mean),
            ("lag/max", self.lag_max.and_then(count)),
            ("lag/old_token_fraction", self.old_token_fraction),
            ("flight/live", self.live.and_then(count)),
            ("flight/paused", self.paused.and_then(count)),
            ("flight/ready", self.ready.and_then(count)),
            ("flight/in_flight_max", self.in_flight_max.and_then(count)),
            ("flight/credit", self.credit.map(|places| places as f64)),
            ("flight/concurrency", self.concurrency.and_then(count)),
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
            ("policy/expert_disagreement", self.expert_disagreement),
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
