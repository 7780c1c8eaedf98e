//! Checks of a token run's settings about what a step is made of: the reference policy, which answers are kept, and what
//! is chosen in the course of the run.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::learner::token::advantage::TokenAdvantageConfig;
use crate::learner::token::{Compare, Keep};
use crate::schedule::Automatic;

/// Most passes over a batch that are chosen: more of them learn little and leave the sampling policy far behind.
const MOST_EPOCHS: usize = 3;
/// Most answers to a problem that are chosen: the best of more is seldom much better.
const MOST_ANSWERS: usize = 8;

impl TokenConfig {
    /// Refuses a reference that is moved or held to without there being one.
    pub(super) fn check_reference(&self) -> Result<(), Contradiction> {
        const IN_LOSS: &str = "learner.loss.reference_kl.coefficient";
        const IN_REWARD: &str = "learner.reward_kl";
        let learner = &self.learner;
        if learner.reward_kl > 0.0 && !learner.loss.needs().advantages {
            return Err(refuse(
                &[IN_REWARD, "learner.loss.objective"],
                "this objective reads no advantages, so that a KL inside the reward changes nothing; take \
                 `learner.loss.reference_kl`, or another objective",
            ));
        }
        if let Some(control) = &learner.kl_control {
            control.validate().map_err(|error| refuse(&["learner.kl_control"], error.to_string()))?;
            match (learner.loss.reference_kl().is_on(), learner.reward_kl > 0.0) {
                (false, false) => {
                    return Err(refuse(
                        &["learner.kl_control", IN_LOSS, IN_REWARD],
                        "there is no reference KL whose coefficient could follow a target; set one of the two \
                         coefficients to where it begins",
                    ));
                }
                (true, true) => {
                    return Err(refuse(
                        &["learner.kl_control", IN_LOSS, IN_REWARD],
                        "one coefficient follows the target; set the other to 0",
                    ));
                }
                _ => {}
            }
        }
        match learner.refresh_reference {
            Some(0) => Err(refuse(
                &["learner.refresh_reference"],
                "must be at least 1; leave it out for a reference that stays",
            )),
            Some(_) if !learner.needs_reference() => Err(refuse(
                &["learner.refresh_reference", IN_LOSS, IN_REWARD],
                "nothing needs a reference policy; set one of the two coefficients, or take an objective with a \
                 reference",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to keep two answers where all of them are needed.
    pub(super) fn check_kept(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        if learner.keep == Keep::All {
            return Ok(());
        }
        if learner.group_size < 2 {
            return Err(refuse(
                &["learner.keep", "learner.group_size"],
                "the best and the worst are two answers; sample at least 2",
            ));
        }
        let reads_advantages = learner.loss.needs().advantages;
        let why = match &learner.advantage {
            TokenAdvantageConfig::Grpo(_)
            | TokenAdvantageConfig::MeanBaseline(_)
            | TokenAdvantageConfig::Rloo(_) => None,
            TokenAdvantageConfig::Rubric(_) => {
                Some("a rubric weighs all passes of a group against each other")
            }
            TokenAdvantageConfig::SkipObservationGae(_) | TokenAdvantageConfig::Vtrace(_) => {
                Some("values learned from the best and the worst answers are not those of the policy")
            }
            TokenAdvantageConfig::MaximumLikelihood(_) => reads_advantages
                .then_some("the mean of the best and the worst says nothing of how often answers are right"),
            TokenAdvantageConfig::Reinforce(_) => reads_advantages
                .then_some("a baseline over the best and the worst answers is not the policy's mean reward"),
        };
        if let Some(why) = why {
            return Err(refuse(
                &["learner.keep", "learner.advantage"],
                format!("{why}; take `rloo`, `mean_baseline` or `grpo`, which compare the two that are kept"),
            ));
        }
        if learner.shaping.length.is_some() {
            return Err(refuse(
                &["learner.keep", "learner.shaping.length"],
                "an answer is short or long for its whole group, of which only two are kept",
            ));
        }
        if !learner.efforts.is_empty() || learner.compare == Compare::Effort {
            return Err(refuse(
                &["learner.keep", "learner.efforts"],
                "the best and the worst would be of any effort, and some efforts never learned from",
            ));
        }
        Ok(())
    }

    /// Refuses to choose what cannot be chosen.
    pub(super) fn check_automatic(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        if learner.auto.is_empty() {
            return Ok(());
        }
        if self.flow()?.takes_turns() && learner.forced_lag.unwrap_or(0) == 0 {
            return Err(refuse(
                &["learner.auto", "schedule.kind"],
                "generation and learning take turns, so that neither has time to spare; take `one_step` or `async`, \
                 or set learner.epochs and learner.group_size yourself",
            ));
        }
        if learner.is_automatic(Automatic::Epochs) && !(2..=MOST_EPOCHS).contains(&learner.epochs) {
            return Err(refuse(
                &["learner.auto", "learner.epochs"],
                format!(
                    "the latter is the most passes that are chosen; it is {}, must be 2 to {MOST_EPOCHS}",
                    learner.epochs
                ),
            ));
        }
        if !learner.is_automatic(Automatic::GroupSize) {
            return Ok(());
        }
        if learner.keep == Keep::All {
            return Err(refuse(
                &["learner.auto", "learner.keep"],
                "more answers help a slow learner only where it does not learn from all of them; set \
                 learner.keep = \"best_and_worst\"",
            ));
        }
        let most = learner.group_size;
        if !(4..=MOST_ANSWERS).contains(&most) || !most.is_multiple_of(2) {
            return Err(refuse(
                &["learner.auto", "learner.group_size"],
                format!(
                    "the latter is the most answers that are chosen; it is {most}, must be an even number from 4 to \
                     {MOST_ANSWERS}"
                ),
            ));
        }
        Ok(())
    }
}
