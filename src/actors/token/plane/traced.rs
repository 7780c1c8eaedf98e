//! The run's trace: what was decided, and sums over engines and updates beside it.

use super::{Clock, Plane, State};
use crate::schedule::trace::{EngineStatistics, TraceError, TraceWriter, UpdateStatistics};

impl State {
    /// Writes to the trace, if there is one. A trace that cannot be written ends the run: half of one is of no use.
    pub(super) fn write(&mut self, line: impl FnOnce(&mut TraceWriter) -> Result<(), TraceError>) {
        let Some(trace) = &mut self.trace else { return };
        if let Err(error) = line(trace) {
            self.fatal.get_or_insert(error.to_string());
            self.trace = None;
        }
    }
}

impl Plane {
    /// What the scheduler's clock shows.
    pub(super) fn now(&self, state: &State) -> f64 {
        match self.clock {
            Clock::Wall { since, base } => base + since.elapsed().as_secs_f64(),
            Clock::Answers => state.answers,
        }
    }

    /// Whether a trace is written.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.lock().trace.is_some()
    }

    /// What an engine did since it was last told of here.
    pub fn trace_engine(&self, generator: usize, statistics: &EngineStatistics) {
        let mut state = self.lock();
        let now = self.now(&state);
        state.write(|trace| trace.engine(now, generator, statistics));
    }

    /// What an update learned from, and what it took.
    pub fn trace_update(&self, statistics: &UpdateStatistics) {
        let mut state = self.lock();
        let now = self.now(&state);
        state.write(|trace| trace.update(now, statistics));
    }
}
