//! What happens when, in order; what happens at once happens in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::engine::Moment;

/// What is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Planned {
    /// What an engine comes to next, unless the engine changed since.
    Engine { engine: usize, stamp: u64 },
    /// A group's grade.
    Grade { group: u64 },
    /// The end of the update in hand, unless its pace changed since.
    Update { stamp: u64 },
    /// A throttle is shown the engines.
    Observe,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    heap: BinaryHeap<Reverse<(Moment, u64, Planned)>>,
    next: u64,
}

impl Plan {
    pub fn add(&mut self, at: f64, what: Planned) {
        self.heap.push(Reverse((Moment(at), self.next, what)));
        self.next += 1;
    }

    pub fn next(&mut self) -> Option<(f64, Planned)> {
        self.heap.pop().map(|Reverse((Moment(at), _, what))| (at, what))
    }
}
