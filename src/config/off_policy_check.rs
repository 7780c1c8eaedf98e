//! Checks of settings that correct for the age of tokens: none twice, and none of parts of what is judged as a whole.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::learner::token::TokenObjectiveConfig;
use crate::schedule::ScheduleConfig;

impl TokenConfig {
    /// Refuses corrections of the policy lag that do not fit the objective or the schedule.
    pub(super) fn check_off_policy(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        let (objective, advantage) = (&learner.loss.objective, &learner.advantage);
        if advantage.is_weighted() && objective.corrects_lag() {
            return Err(refuse(
                &["learner.advantage.weighted", "learner.loss.objective"],
                format!(
                    "V-trace puts the importance ratio in front of its advantages, and {} weighs or clips by one too: the \
                     lag would be corrected twice; set weighted = false, or take objective `reinforce`",
                    objective.kind()
                ),
            ));
        }
        if advantage.needs_values() && objective.takes_one_advantage_a_sequence() {
            return Err(refuse(
                &["learner.advantage", "learner.loss.objective"],
                format!(
                    "{} takes one advantage for a whole sequence, and a critic gives each token its own",
                    objective.kind()
                ),
            ));
        }
        // How late every batch is, where the settings say so.
        let late = match (&self.schedule, learner.forced_lag) {
            (_, Some(forced)) => Some(("learner.forced_lag", forced)),
            (ScheduleConfig::OneStep, None) => Some(("schedule.kind", 1)),
            _ => None,
        };
        // Otherwise nothing of a batch would ever be left, and nothing learned.
        let hopeless = |field, most| match late {
            Some((other, late)) if most < late => Err(refuse(
                &[field, other],
                format!("every batch is {late} updates late, so that no token would be young enough"),
            )),
            _ => Ok(()),
        };
        if let TokenObjectiveConfig::LagMask(settings) = objective {
            hopeless("learner.loss.objective.max_lag", settings.max_lag)?;
        }
        let Some(most) = learner.max_token_age else { return Ok(()) };
        if objective.takes_whole_sequences() {
            return Err(refuse(
                &["learner.max_token_age", "learner.loss.objective"],
                format!(
                    "{} weighs or compares whole sequences, of which no token may be missing; take `learner.max_lag`, \
                     which drops them as a whole",
                    objective.kind()
                ),
            ));
        }
        hopeless("learner.max_token_age", most)
    }
}
