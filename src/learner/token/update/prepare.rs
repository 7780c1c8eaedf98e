//! What a step needs before its first minibatch: scores of other policies, values, advantages.

use std::ops::Range;

use super::TokenLearner;
use crate::learner::LearnerError;
use crate::learner::advantage::{
    AdvantageError, SkipObservationGaeConfig, TokenRow, skip_observation_gae, token_vtrace,
};
use crate::learner::token::advantage::TokenAdvantageConfig;
use crate::learner::token::flat::{Flat, spread};
use crate::learner::token::group_rewards::{GroupRewards, RewardFigures};
use crate::learner::token::{Needs, reference_kl_rewards};
use crate::policy::{Pack, Parameters, Scores};
use crate::trajectory::Group;

impl TokenLearner {
    /// Fills in what an objective reads beside the current policy. False when it was abandoned.
    pub(super) fn prepare(
        &mut self,
        groups: &[&Group],
        rewards: &[GroupRewards],
        flat: &mut Flat,
        figures: &mut RewardFigures,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, LearnerError> {
        // A step that leaves the policy as it is asks less of the batch.
        let needs = if self.is_value_only() { Needs::default() } else { self.needs() };
        if needs.teacher {
            let Some(teacher) = self.teacher_scores(groups, flat, abandon)? else { return Ok(false) };
            flat.teacher = teacher;
        }
        let several_steps = self.config.epochs > 1 || self.config.minibatches > 1;
        // Without several steps the policy at the start of the step is the one that every pack is scored under.
        let with_proximal = (needs.proximal && several_steps) || self.config.advantage.needs_ratios();
        let with_values = self.config.has_shared_critic();
        let with_reference = needs.reference || self.config.reward_kl > 0.0;
        // A reference that is the policy at the start of the step needs no scores of its own.
        let is_current = self.is_reference_current();
        let with_own = with_proximal || with_values || (with_reference && is_current);
        if with_own || with_reference {
            let learned = |group, member| flat.is_learned(group, member);
            let packs = self.packing().pack_where(groups, learned)?;
            if let Some(reference) = self.reference.clone().filter(|_| with_reference && !is_current) {
                let Some(scores) = self.scores(&reference, &packs, abandon)? else { return Ok(false) };
                flat.reference = spread(flat, &packs, &scores, |scores| &scores.log_probs);
            }
            if with_own {
                let Some(scores) = self.scores(&self.parameters, &packs, abandon)? else { return Ok(false) };
                if with_proximal {
                    flat.proximal = spread(flat, &packs, &scores, |scores| &scores.log_probs);
                }
                if with_reference && is_current {
                    flat.reference = spread(flat, &packs, &scores, |scores| &scores.log_probs);
                }
                if with_values {
                    flat.values = spread(flat, &packs, &scores, |scores| &scores.values);
                }
            }
        }
        if let Some(critic) = &self.critic {
            let Some(values) = critic.values(groups, flat, abandon)? else { return Ok(false) };
            flat.values = values;
        }
        self.advantages(groups, rewards, flat, figures)?;
        Ok(true)
    }

    /// The rewards of each group after rubric and shaping.
    pub(super) fn group_rewards(&self, groups: &[&Group]) -> Result<Vec<GroupRewards>, LearnerError> {
        let rewards = groups.iter().map(|group| {
            let grading = self.state.pass_rates.grading(&self.config, &group.source);
            GroupRewards::of(&self.config, group, grading, self.state.version)
        });
        Ok(rewards.collect::<Result<_, _>>()?)
    }

    /// Scores of all packs under some parameters; `None` when it was abandoned.
    pub(super) fn scores(
        &self,
        parameters: &Parameters,
        packs: &[Pack],
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Scores>>, LearnerError> {
        let mut all = Vec::with_capacity(packs.len());
        for pack in packs {
            if abandon() {
                return Ok(None);
            }
            all.push(self.pass().evaluate(parameters, pack)?);
        }
        Ok(Some(all))
    }

    pub(super) fn advantages(
        &mut self,
        groups: &[&Group],
        of_groups: &[GroupRewards],
        flat: &mut Flat,
        figures: &mut RewardFigures,
    ) -> Result<(), LearnerError> {
        // What the divergence from the reference costs each token, where it is part of the reward.
        let mut token_rewards = vec![0.0_f32; flat.tokens()];
        if self.config.reward_kl > 0.0 {
            let estimator = self.config.loss.reference_kl().estimator;
            let (shape, sampled) = (flat.shape(), &flat.behaviour);
            token_rewards =
                reference_kl_rewards(self.config.reward_kl, estimator, &shape, sampled, &flat.reference)?;
        }
        let mut rewards = flat.rewards.clone();
        if !self.config.advantage.needs_values() {
            for (reward, row) in rewards.iter_mut().zip(&flat.rows) {
                let cost: f32 = token_rewards[row.clone()].iter().sum();
                *reward = reward.map(|reward| reward + f64::from(cost));
            }
        }
        let of_rows: Vec<f64> = match (&self.config.advantage, &mut self.state.baseline) {
            (TokenAdvantageConfig::SkipObservationGae(settings), _) => {
                let bootstrap = self.config.critic.bootstrap_truncated;
                return estimate(settings, bootstrap, groups, &token_rewards, flat);
            }
            (TokenAdvantageConfig::Vtrace(settings), _) => {
                let bootstrap = self.config.critic.bootstrap_truncated;
                let ratio = |(now, then): (&f32, &f32)| now - then;
                let log_ratios: Vec<f32> = flat.proximal.iter().zip(&flat.behaviour).map(ratio).collect();
                return each_row(bootstrap, groups, &token_rewards, flat, |tokens, row| {
                    let found = token_vtrace(settings, row, &log_ratios[tokens])?;
                    Ok((found.advantages, found.value_targets))
                });
            }
            (TokenAdvantageConfig::Reinforce(_), Some(baseline)) => baseline.advantages(&rewards),
            _ => {
                let mut advantages = Vec::with_capacity(rewards.len());
                for (group, of_group) in groups.iter().zip(of_groups) {
                    let own = advantages.len()..advantages.len() + group.members.len();
                    let found = of_group.compared(&self.config, &rewards[own])?.unwrap_or_default();
                    figures.add_compared(&found);
                    advantages.extend(found.advantages);
                }
                advantages
            }
        };
        flat.advantages = vec![0.0; flat.tokens()];
        for (advantage, row) in of_rows.into_iter().zip(&flat.rows) {
            flat.advantages[row.clone()].fill(advantage as f32);
        }
        Ok(())
    }
}

/// Advantages and value targets of all rows, from the values in `flat`. With `bootstrap` the last value of an answer that
/// was cut off stands for what might have followed.
pub(in crate::learner::token) fn estimate(
    settings: &SkipObservationGaeConfig,
    bootstrap: bool,
    groups: &[&Group],
    token_rewards: &[f32],
    flat: &mut Flat,
) -> Result<(), LearnerError> {
    each_row(bootstrap, groups, token_rewards, flat, |_, row| {
        let found = skip_observation_gae(settings, row)?;
        Ok((found.advantages_policy, found.value_targets))
    })
}

/// Advantages and value targets of one row of tokens.
type Estimates = (Vec<f32>, Vec<f32>);

/// Fills in what an estimator gives for each row, told which tokens of `flat` it is.
fn each_row(
    bootstrap: bool,
    groups: &[&Group],
    token_rewards: &[f32],
    flat: &mut Flat,
    estimator: impl Fn(Range<usize>, &TokenRow<'_, f32>) -> Result<Estimates, AdvantageError>,
) -> Result<(), LearnerError> {
    let mut targets = Vec::with_capacity(flat.tokens());
    let mut advantages = Vec::with_capacity(flat.tokens());
    let members = groups.iter().flat_map(|group| &group.members);
    for ((row, member), reward) in flat.rows.iter().zip(members).zip(&flat.rewards) {
        let cut_off = member.finish.is_some_and(|finish| !finish.is_terminal());
        let last = member.actions().last().map_or(0.0, |last| flat.values[row.start + last]);
        let tokens = TokenRow {
            token_rewards: &token_rewards[row.clone()],
            values: &flat.values[row.clone()],
            // Whatever their age: what a token leads to does not depend on what is learned from.
            action_mask: &flat.actions[row.clone()],
            terminal_reward: reward.unwrap_or(0.0) as f32,
            bootstrap: if cut_off && bootstrap { last } else { 0.0 },
        };
        let found = estimator(row.clone(), &tokens)?;
        advantages.extend(found.0);
        targets.extend(found.1);
    }
    flat.advantages = advantages;
    flat.value_targets = targets;
    Ok(())
}
