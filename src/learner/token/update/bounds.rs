//! The bounds of the objective's ratio, where a controller moves them: where they begin, and the move after an update.
//!
//! Invariant: the bounds in the learner's settings are those in its state, which is what a checkpoint keeps.

use super::{TokenLearner, TokenLearnerState};
use crate::learner::token::TokenObjectiveConfig;
use crate::learner::token::applied::Tally;

/// Puts the bounds that a checkpoint kept in place of those that are set, or remembers those that are set. A controller
/// that was turned off, on or another way since the checkpoint counts as it is now.
pub(super) fn begin(objective: &mut TokenObjectiveConfig, state: &mut TokenLearnerState) {
    let (control, kept) = (objective.bound_control(), state.bounds);
    state.bounds = control.map(|(control, begin)| kept.map_or(begin, |bounds| control.limited(bounds)));
    state.bounds.into_iter().for_each(|bounds| objective.set_bounds(bounds));
}

impl TokenLearner {
    /// Moves the bounds of the next update by the entropy of this one; updates of the value function alone have none.
    pub(super) fn control_bounds(&mut self, tally: &Tally) {
        let objective = &mut self.config.loss.objective;
        if let (Some((control, bounds)), Some(entropy)) = (objective.bound_control(), tally.entropy()) {
            let next = control.next(bounds, entropy);
            objective.set_bounds(next);
            self.state.bounds = Some(next);
        }
    }
}
