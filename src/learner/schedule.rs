//! The learning rate over the course of a run, as a pure function of how much of it is done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the learning rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// It stays.
    Constant,
    /// It falls in proportion to what is left of the run, to 0 at its end, by counts alone (updates, steps, tokens): a
    /// run that only time or a target ends keeps it.
    #[default]
    Linear,
}

/// The learning rate and its course.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Learning rate of the first update.
    pub learning_rate: f64,
    /// How it changes from there.
    pub kind: ScheduleKind,
    /// Updates over which it rises to its full height first: optimisers that divide by a second moment take steps of
    /// full length while they know that moment from a single gradient.
    pub ramp_updates: u64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self { learning_rate: 4.8e-4, kind: ScheduleKind::Linear, ramp_updates: 0 }
    }
}

impl ScheduleConfig {
    /// The learning rate of an update, given how many were made before it and how much of the run was done.
    #[must_use]
    pub fn at(&self, updates: u64, progress: Progress) -> f64 {
        let ramp = (updates + 1) as f64 / (self.ramp_updates + 1) as f64;
        let course = match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Linear => 1.0 - progress.fraction(),
        };
        self.learning_rate * ramp.min(1.0) * course
    }
}

/// How much of a run is done, in whatever it is measured: updates or environment steps. It is computed from counters
/// that a checkpoint holds, so a resumed run goes on where it stood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress(f64);

impl Progress {
    /// `done` out of `total`; a run without a known end (`total` = `None`) is always at its start.
    #[must_use]
    pub fn new(done: u64, total: Option<u64>) -> Self {
        match total {
            None => Self(0.0),
            Some(total) => Self((done as f64 / total.max(1) as f64).min(1.0)),
        }
    }

    /// The furthest of several measures: a run ends at whichever limit it meets first.
    #[must_use]
    pub fn furthest(measures: impl IntoIterator<Item = Self>) -> Self {
        Self(measures.into_iter().map(|measure| measure.0).fold(0.0, f64::max))
    }

    /// Between 0 and 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_falls_to_zero_at_the_end_and_stays_there() {
        let schedule = ScheduleConfig { learning_rate: 8.0, ..ScheduleConfig::default() };
        let at = |done| schedule.at(done, Progress::new(done, Some(4)));
        assert_eq!([at(0), at(1), at(4), at(5)], [8.0, 6.0, 0.0, 0.0]);
    }

    #[test]
    fn the_ramp_rises_to_the_full_height_and_lets_the_course_go_on_from_there() {
        let schedule = ScheduleConfig { learning_rate: 8.0, kind: ScheduleKind::Constant, ramp_updates: 3 };
        let at = |done| schedule.at(done, Progress::new(done, None));
        assert_eq!([at(0), at(1), at(3), at(9)], [2.0, 4.0, 8.0, 8.0]);
    }

    #[test]
    fn a_run_without_an_end_keeps_its_learning_rate() {
        let schedule = ScheduleConfig { learning_rate: 8.0, ..ScheduleConfig::default() };
        assert_eq!(schedule.at(1_000_000, Progress::new(1_000_000, None)), 8.0);
    }

    #[test]
    fn the_limit_nearest_to_being_met_decides() {
        let progress = Progress::furthest([
            Progress::new(1, Some(10)),
            Progress::new(3, Some(4)),
            Progress::new(9, None),
        ]);
        assert_eq!(progress.fraction(), 0.75);
    }
}
