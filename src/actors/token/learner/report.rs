//! What the token learner tells of each update: figures, samples, checks of exactness.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::TokenLearnerRole;
use crate::actors::role::RoleError;
use crate::actors::token::plane::{GroupCounts, ReadyGroup};
use crate::actors::token::run::{TokenFigures, TokenRun};
use crate::learner::token::{Figure, TokenApplied};
use crate::policy::BlockKind;
use crate::telemetry::{Sample, TokenRecord};
use crate::trajectory::{Group, Trajectory, Version};

/// Answers of a batch that are written to the samples.
pub(super) const SAMPLES: usize = 4;

/// What a run has come to so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    groups: GroupCounts,
    generate_seconds: f64,
    grade_seconds: f64,
}

impl Totals {
    fn of(run: &TokenRun) -> Self {
        Self {
            groups: run.plane.counts(),
            generate_seconds: run.generator_busy.total().as_secs_f64(),
            grade_seconds: run.grading.seconds(),
        }
    }
}

/// What sets the answers to one problem apart; nothing of single answers.
fn describe_groups(record: &mut TokenRecord, batch: &[ReadyGroup]) {
    let several = || batch.iter().filter(|ready| ready.group.members.len() > 1);
    let count = several().count() as f64;
    let mean = |of: fn(&ReadyGroup) -> f64| (count > 0.0).then(|| several().map(of).sum::<f64>() / count);
    record.distinct_answer_fraction = mean(|ready| distinct_fraction(&ready.group));
    record.group_length_spread = mean(|ready| length_spread(&ready.group));
    record.group_wait_seconds = mean(|ready| ready.waited.as_secs_f64());
}

/// Different answers of a group over its answers.
fn distinct_fraction(group: &Group) -> f64 {
    let answers: BTreeSet<&[u32]> = group.members.iter().map(|member| &member.tokens[..]).collect();
    answers.len() as f64 / group.members.len().max(1) as f64
}

/// Standard deviation of the lengths of a group's answers, tokens.
fn length_spread(group: &Group) -> f64 {
    let count = group.members.len().max(1) as f64;
    let lengths = || group.members.iter().map(|member| member.tokens.len() as f64);
    let mean = lengths().sum::<f64>() / count;
    (lengths().map(|length| (length - mean).powi(2)).sum::<f64>() / count).sqrt()
}

impl TokenLearnerRole {
    /// What the batch and its update have to tell.
    pub(super) fn describe(&mut self, batch: &[ReadyGroup], applied: &TokenApplied) {
        let members = || batch.iter().flat_map(|ready| &ready.group.members);
        // Of all answers, also of those that were not kept: what is kept says nothing of how good the policy is.
        let rewards: Vec<f64> = batch.iter().flat_map(ReadyGroup::rewards).flatten().collect();
        let count = rewards.len().max(1) as f64;
        let mean = rewards.iter().sum::<f64>() / count;
        self.journal.rewards.push(mean);
        self.journal.rewards.updated();
        let record = &mut self.record;
        record.reward_mean = Some(mean);
        record.reward_std =
            Some((rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / count).sqrt());
        record.solved = Some(rewards.iter().filter(|&&reward| reward >= 1.0).count() as f64 / count);
        record.groups = batch.len() as u64;
        for ready in batch {
            *record.sources.entry(Arc::clone(&ready.group.source)).or_default() += 1;
        }
        record.trajectories = members().count() as u64;
        record.answers = batch.iter().map(|ready| ready.answers() as u64).sum();
        record.passes = Some(applied.passes as f64);
        let all = record.trajectories.max(1) as f64;
        let lengths = || members().map(|member| member.tokens.len());
        record.response_length_mean = Some(lengths().sum::<usize>() as f64 / all);
        record.response_length_max = lengths().max().map(|length| length as u64);
        record.prompt_length_mean =
            Some(members().map(|member| member.prompt.len()).sum::<usize>() as f64 / all);
        let cut =
            members().filter(|member| member.finish.is_some_and(|finish| !finish.is_terminal())).count();
        record.truncated_fraction = Some(cut as f64 / all);
        let turns =
            |member: &Trajectory| member.is_action.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
        record.turns_mean = Some(members().map(turns).sum::<usize>() as f64 / all);
        describe_groups(record, batch);
        self.describe_rewards(applied);
        let record = &mut self.record;
        record.expert_disagreement = applied.expert_disagreement;
        record.loss = Some(applied.loss);
        record.policy_loss = (!applied.value_only).then_some(applied.policy_loss);
        record.value_loss = applied.value_loss;
        record.reference_kl = (applied.reference_kl != 0.0).then_some(applied.reference_kl);
        record.teacher_kl = applied.figure(Figure::ReverseKlK1);
        record.reference_divergence = applied.divergence;
        record.kl_coefficient = applied.kl_coefficient;
        record.reference_version = applied.reference_version.map(|version| version.0);
        record.entropy = applied.entropy;
        record.approx_kl = applied.figure(Figure::KlK3);
        record.gradient_norm = (!applied.value_only).then_some(applied.gradient_norm);
        record.value_gradient_norm = applied.value_gradient_norm;
        record.explained_variance = applied.explained_variance;
        record.explained_variance_updated = applied.explained_variance_updated;
        record.value_bias = applied.value_bias;
        if !applied.value_only && !self.journal.policy_updated {
            self.journal.policy_updated = true;
            self.journal.initial_explained_variance = applied.explained_variance;
        }
        record.advantage_mean = applied.advantage_mean;
        record.advantage_std = applied.advantage_deviation;
        record.advantage_min = applied.advantages.map(|(least, _)| least);
        record.advantage_max = applied.advantages.map(|(_, greatest)| greatest);
        self.journal.token_fates.merge(&applied.fates);
        self.describe_off_policy(applied);
        self.describe_gradient(applied);
    }

    /// How far from the sampling policy the tokens were, and what the objective made of that.
    fn describe_off_policy(&mut self, applied: &TokenApplied) {
        let record = &mut self.record;
        record.ratio_mean = applied.figure(Figure::RatioMean);
        record.ratio_min = applied.ratios.map(|(least, _)| least);
        record.ratio_max = applied.ratios.map(|(_, greatest)| greatest);
        record.mismatch_mean = applied.mismatch.mean();
        record.mismatch_max = applied.mismatch.greatest();
        record.clip_fraction_low = applied.figure(Figure::ClipFracLow);
        record.clip_fraction_high = applied.figure(Figure::ClipFracHigh);
        record.dual_clip_fraction = applied.figure(Figure::DualClipFrac);
        record.masked_fraction = applied.figure(Figure::MaskedFrac);
        record.masked_fraction_low = applied.figure(Figure::MaskedFracLow);
        record.masked_fraction_high = applied.figure(Figure::MaskedFracHigh);
        record.weight_mean = applied.figure(Figure::WeightMeanRaw);
        record.weight_clamped_fraction = applied.figure(Figure::WeightClampedFrac);
        record.pair_margin_mean = applied.figure(Figure::MarginMean);
        record.pair_accuracy = applied.figure(Figure::Accuracy);
        record.bound_pos_low = applied.bounds.map(|bounds| bounds.pos_low);
        record.bound_pos_high = applied.bounds.map(|bounds| bounds.pos_high);
        record.bound_neg_low = applied.bounds.map(|bounds| bounds.neg_low);
        record.bound_neg_high = applied.bounds.map(|bounds| bounds.neg_high);
        record.token_fates = applied.fates.clone();
    }

    /// Norms of the gradient, as a whole and by kind of block.
    fn describe_gradient(&mut self, applied: &TokenApplied) {
        let (record, norms) = (&mut self.record, &applied.block_norms);
        record.gradient_norm_embedding = norms.get(BlockKind::Embedding);
        record.gradient_norm_attention = norms.get(BlockKind::Attention);
        record.gradient_norm_feed_forward = norms.get(BlockKind::FeedForward);
        record.gradient_norm_router = norms.get(BlockKind::Router);
        record.gradient_norm_norm = norms.get(BlockKind::Norm);
        record.gradient_norm_head = norms.get(BlockKind::Head);
        record.gradient_norm_value_head = norms.get(BlockKind::ValueHead);
    }

    /// What rubric and shaping did; nothing is told of what is not set.
    fn describe_rewards(&mut self, applied: &TokenApplied) {
        let (config, found) = (&self.run.config.learner, &applied.rewards);
        let record = &mut self.record;
        let rubric = config.advantage.rubric().is_some();
        let share = |set: bool, sum: f64| if set { found.share(sum) } else { None };
        record.shaped_reward_mean = share(rubric || !config.shaping.is_off(), found.shaped);
        record.length_reward_mean = share(config.shaping.length.is_some(), found.length_rewards);
        record.overlong_fraction = share(config.shaping.overlong.is_some(), found.overlong as f64);
        record.over_budget_fraction = share(config.shaping.effort_budget.is_some(), found.over_budget as f64);
        record.grs_groups = found.grs_groups;
        record.gar_groups = found.gar_groups;
        record.gar_lambda_mean = found.lambda_mean();
        record.confirmed_hacks = found.hacks;
        record.rubric_failures = found.rubric_failures;
        let rates = &self.learner.state().pass_rates;
        record.pass_rate = rates.mean();
        rates.iter().for_each(|(source, rate)| self.run.metrics.record_pass_rate(source, rate));
        self.alike = config.advantage.is_group_relative().then_some(found.alike_groups);
    }

    pub(super) fn note_lag(&mut self, group: &Group, version: Version) {
        for member in &group.members {
            for index in member.actions() {
                let lag = version.lag_of(member.versions[index]);
                self.journal.lags.consumed(lag, 1);
                self.record.add_lag(lag, 1);
            }
        }
    }

    /// Recomputes one group now and then under the versions that sampled it.
    pub(super) fn check_log_probs(&mut self, groups: &[&Group]) -> Result<(), RoleError> {
        let every = self.run.config.learner.check_every;
        if every == 0 || !self.journal.attempts.is_multiple_of(every) {
            return Ok(());
        }
        let versions = &self.versions;
        let kept = |version: Version| {
            versions.iter().find(|published| published.version == version).map(|p| p.parameters.clone())
        };
        let Some(group) = groups.first() else { return Ok(()) };
        let found = self.learner.log_prob_differences(group, kept)?;
        self.record.log_prob_difference = found.same_version;
        self.record.kept_kv_log_prob_difference = found.mixed_versions;
        Ok(())
    }

    pub(super) fn write_samples(&mut self, groups: &[&Group]) -> Result<(), RoleError> {
        let tokenizer = &self.run.tokenizer;
        for group in groups.iter().take(SAMPLES) {
            let Some(member) = group.members.first() else { continue };
            let sample = Sample {
                update: self.learner.version().0,
                split: Some("train".into()),
                prompt: tokenizer.decode(&member.prompt),
                completion: tokenizer.decode(&member.tokens),
                reward: member.reward.as_ref().map(|reward| reward.value),
                answer: self
                    .run
                    .task
                    .problem(crate::env::task::Split::Train, group.prompt)
                    .ok()
                    .map(|p| p.answer),
                finish: member.finish,
                tokens: member.tokens.len() as u64,
            };
            self.samples.write(&sample).map_err(|error| RoleError::Files(error.to_string()))?;
        }
        Ok(())
    }

    pub(super) fn report(&mut self) -> Result<(), RoleError> {
        let mut record = std::mem::take(&mut self.record);
        record.update = self.learner.version().0;
        record.tokens = self.run.ledger.submitted_steps();
        let now = Totals::of(&self.run);
        let before = std::mem::replace(&mut self.seen, now);
        record.zero_variance_groups = now.groups.zero_variance - before.groups.zero_variance;
        // Of those that were dropped, and of those that were not.
        let (dropped, alike) = (record.zero_variance_groups, self.alike.take());
        record.zero_variance_fraction = alike
            .filter(|_| record.groups + dropped > 0)
            .map(|alike| (alike + dropped) as f64 / (record.groups + dropped) as f64);
        record.grading_errors = now.groups.grading_errors - before.groups.grading_errors;
        record.group_grading_errors = now.groups.group_grading_errors - before.groups.group_grading_errors;
        record.generate_seconds = now.generate_seconds - before.generate_seconds;
        record.grade_seconds = now.grade_seconds - before.grade_seconds;
        let flight = self.run.plane.flight();
        if self.begun {
            record.live = Some(flight.live);
            record.paused = Some(flight.paused);
            record.ready = Some(flight.ready);
            record.in_flight_max = Some(flight.most);
            record.credit = flight.credit;
            record.concurrency = flight.limit;
        }
        self.run.set_figures(TokenFigures {
            version: self.learner.version(),
            warmup_loss: record.warmup_loss,
            solved: record.solved,
            response_length_mean: record.response_length_mean,
            reward_mean: self.journal.rewards.mean(),
            eval_mean: self.journal.rewards.evaluation(),
            lag_mean: record.lag_mean,
        });
        record.wall_seconds = self.recorder.wall_seconds();
        self.run.metrics.record_update(&record);
        self.recorder.record(record).map_err(|error| RoleError::Files(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::trajectory::TrajectoryId;

    fn ready(answers: &[&[u32]], waited: u64) -> ReadyGroup {
        let member = |(member, answer): (u16, &&[u32])| {
            let id = TrajectoryId { epoch: 0, prompt: 0, member, attempt: 0 };
            Trajectory { tokens: answer.to_vec(), ..Trajectory::new(id, vec![1].into()) }
        };
        ReadyGroup {
            group: Group {
                epoch: 0,
                prompt: 0,
                source: "all".into(),
                budget: None,
                members: (0..).zip(answers).map(member).collect(),
            },
            tickets: Vec::new(),
            others: Vec::new(),
            ready_under: Version(0),
            ready_at: Instant::now(),
            waited: Duration::from_secs(waited),
        }
    }

    #[test]
    fn groups_of_several_tell_how_their_answers_differ_and_single_answers_tell_nothing() {
        let mut record = TokenRecord::default();
        describe_groups(&mut record, &[ready(&[&[1, 2]], 9)]);
        assert_eq!(record, TokenRecord::default());
        let groups = [
            ready(&[&[1, 2], &[1, 2], &[2, 1], &[1, 2]], 1),
            ready(&[&[3], &[3, 3, 3]], 3),
            ready(&[&[1]], 7),
        ];
        describe_groups(&mut record, &groups);
        assert_eq!(record.distinct_answer_fraction, Some(0.75));
        assert_eq!(record.group_length_spread, Some(0.5));
        assert_eq!(record.group_wait_seconds, Some(2.0));
    }
}
