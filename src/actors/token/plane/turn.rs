//! Whose turn it is: the learner's batch, and the memory that generators give back for it.
//!
//! A generator that gives its memory back has any only with leave from here, and none is given in the learner's turn:
//! from the moment a batch is formed until what follows from it is known, and before generation begins. The learner gets
//! the batch when all have given back what they had.

use std::sync::PoisonError;
use std::time::Duration;

use super::{Plane, ReadyGroup, State};

impl State {
    fn is_learners_turn(&self) -> bool {
        self.scheduler.is_learning() || self.scheduler.loaded().is_none()
    }
}

impl Plane {
    /// The batch that is to be learned from, once everything that was to stop for it has and memory was given back;
    /// waits for it no longer than `patience`.
    #[must_use]
    pub fn take_batch(&self, patience: Duration) -> Option<Vec<ReadyGroup>> {
        let waits =
            |state: &mut State| state.batch.is_none() || !state.pausing.is_empty() || !state.lent.is_empty();
        let state = self.changed.wait_timeout_while(self.lock(), patience, waits);
        let (mut state, timeout) = state.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { None } else { state.batch.take() }
    }

    /// Whether a generator may have memory and generate; if so it is expected to say when it has given the memory back.
    #[must_use]
    pub fn lend_memory(&self, generator: usize) -> bool {
        let mut state = self.lock();
        let lends = !state.is_learners_turn();
        if lends {
            state.lent.insert(generator);
        }
        lends
    }

    /// A generator has given its memory back.
    pub fn memory_returned(&self, generator: usize) {
        let mut state = self.lock();
        if state.lent.remove(&generator) {
            self.signal(&mut state);
        }
    }

    /// Whether the learner's batch waits for nothing but memory.
    #[must_use]
    pub fn awaits_memory(&self) -> bool {
        let state = self.lock();
        state.batch.is_some() && state.pausing.is_empty() && !state.lent.is_empty()
    }
}
