//! The schedule of a token run, as one point of the space of schedules.

use super::TokenConfig;
use crate::schedule::axes::{ConsumeFilter, TokenMask};
use crate::schedule::flow::FlowSettings;

impl TokenConfig {
    /// What `schedule`, the sizes of a batch and the bounds on age come to.
    #[must_use]
    pub fn flow(&self) -> FlowSettings {
        let learner = &self.learner;
        let (batch, group_size) = (learner.prompts as u64, learner.group_size as u32);
        let settings = FlowSettings::of_kind(&self.schedule, batch, group_size, learner.forced_lag);
        let mask = learner.max_token_age.map_or(TokenMask::None, |lag| TokenMask::LagAbove { lag });
        let consume = ConsumeFilter {
            max_head_lag: learner.max_lag,
            mask,
            zero_advantage: learner.drop_zero_variance,
            ..settings.consume
        };
        FlowSettings { consume, ..settings }
    }
}
