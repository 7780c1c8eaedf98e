//! Which problem a group gets.
//!
//! Without sources it is the next one. Where the schedule names sources, problems are drawn in the data's own order, and
//! those of other sources than the one wanted wait for their turn: of each source they are taken in that order, none is
//! left out and none comes twice. The scheduler is shown what comes next, unless a mixer chooses.

use super::{GroupKey, Plane, State};
use crate::env::task::{Problem, Split};
use crate::schedule::axes::Dispatch;
use crate::schedule::flow::FlowEvent;

/// Most problems in a row that may be of other sources than the one that is wanted.
const MOST_PASSED_OVER: usize = 1 << 16;
/// Batches that the scheduler is shown ahead.
const SHOWN_BATCHES: u64 = 2;

impl Plane {
    /// The next problem of a source, with its pass and index.
    pub(super) fn next_problem(&self, state: &mut State, source: u32) -> Result<(GroupKey, Problem), String> {
        if self.settings.sources.is_empty() {
            let key = state.prompts.next();
            return Ok((key, self.problem(key)?));
        }
        if let Some(key) = state.drawn[source as usize].pop_front() {
            return Ok((key, self.problem(key)?));
        }
        for _ in 0..MOST_PASSED_OVER {
            let (key, problem) = self.draw(state)?;
            let of = self.source_of(key, &problem)?;
            if of == source {
                return Ok((key, problem));
            }
            state.drawn[of as usize].push_back(key);
        }
        let name = &self.settings.sources[source as usize].name;
        Err(format!(
            "none of {MOST_PASSED_OVER} problems in a row is of source \"{name}\"; take it out of schedule.sources"
        ))
    }

    /// What the scheduler is to be shown of the problems to come, if it has not seen enough of them.
    pub(super) fn look_ahead(&self, state: &mut State) -> Option<FlowEvent> {
        let mixes = matches!(self.settings.dispatch, Dispatch::Mixer(_));
        if self.settings.sources.is_empty() || mixes || state.fatal.is_some() {
            return None;
        }
        let missing = (SHOWN_BATCHES * self.settings.batch).saturating_sub(state.scheduler.offered());
        let mut sources = Vec::new();
        for _ in 0..missing {
            let drawn = self.draw(state).and_then(|(key, problem)| Ok((key, self.source_of(key, &problem)?)));
            match drawn {
                Ok((key, source)) => {
                    state.drawn[source as usize].push_back(key);
                    sources.push(source);
                }
                Err(why) => {
                    state.fatal.get_or_insert(why);
                    return None;
                }
            }
        }
        (!sources.is_empty()).then_some(FlowEvent::Offered { sources })
    }

    fn draw(&self, state: &mut State) -> Result<(GroupKey, Problem), String> {
        let key = state.prompts.next();
        Ok((key, self.problem(key)?))
    }

    fn problem(&self, key: GroupKey) -> Result<Problem, String> {
        let made = self.task.problem(Split::Train, key.1);
        made.map_err(|error| format!("problem {} of the task: {error}", key.1))
    }

    fn source_of(&self, key: GroupKey, problem: &Problem) -> Result<u32, String> {
        let place = self.settings.sources.iter().position(|source| *source.name == *problem.source);
        place.map(|place| place as u32).ok_or_else(|| {
            format!(
                "problem {} of the task is of source \"{}\", which schedule.sources does not name; add it there",
                key.1, problem.source
            )
        })
    }
}
