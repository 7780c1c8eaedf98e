//! Schedules that contradict themselves, refused with the fields concerned and the reason.
//!
//! What a schedule means also depends on what is learned and with which engine; [`ScheduleContext`] says that much.
//! Rules that concern objectives alone are the learner's own.

mod admission;
mod carrying;
mod numbers;
mod rounds;
#[cfg(test)]
mod tests;

use super::flow::FlowSettings;

/// Settings of a schedule that can never work, or not together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}`: {why}", fields.join("`, `"))]
pub struct ScheduleContradiction {
    /// Paths of all fields concerned, within the schedule; those of other tables begin with `learner.`, `model.` or
    /// `generate.`.
    pub fields: Vec<&'static str>,
    /// What is wrong and what would be right.
    pub why: String,
}

/// What a schedule has to get along with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleContext {
    /// Whether it is only simulated.
    pub simulated: bool,
    /// Whether the engine can store what a sequence has beside its tokens.
    pub state_store: bool,
    /// Whether the model has experts, and which are chosen is recorded.
    pub records_experts: bool,
    /// Whether the objective compares or weighs whole answers (pairs, sequence ratios, mirror descent over whole
    /// answers).
    pub whole_answers: bool,
    /// Whether advantages compare the members of a group.
    pub group_relative: bool,
}

impl Default for ScheduleContext {
    /// A token objective with advantages by group, and an engine that can store and record everything.
    fn default() -> Self {
        Self {
            simulated: false,
            state_store: true,
            records_experts: true,
            whole_answers: false,
            group_relative: true,
        }
    }
}

type Refusal = Result<(), ScheduleContradiction>;

fn refuse(fields: &[&'static str], why: impl Into<String>) -> Refusal {
    Err(ScheduleContradiction { fields: fields.to_vec(), why: why.into() })
}

impl FlowSettings {
    /// Refuses a schedule that contradicts itself or what it is used with; the first contradiction is named.
    ///
    /// # Errors
    /// The contradiction, with all fields concerned.
    pub fn check(&self, context: ScheduleContext) -> Result<(), ScheduleContradiction> {
        numbers::check(self)?;
        admission::check(self, context)?;
        rounds::check(self)?;
        carrying::check(self, context)
    }
}
