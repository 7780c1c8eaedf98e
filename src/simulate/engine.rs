//! One engine: sequences that decode in step.
//!
//! All its sequences have written equally much since they began, so that the engine keeps one count of steps; a
//! sequence ends when the count reaches its own mark. The next end is on top of a heap, whatever the number of
//! sequences.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::config::EngineModel;
use crate::schedule::flow::MemberId;

/// A moment, ordered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment(pub f64);

impl Eq for Moment {}
impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A sequence that asks for tokens.
#[derive(Debug, Clone, Copy)]
struct Request {
    id: MemberId,
    tokens: u64,
    /// Tokens to compute before the first.
    prefill: u64,
}

#[derive(Debug)]
pub(super) struct Engine {
    model: EngineModel,
    /// How many real engines it stands for; they have equally many sequences.
    machines: f64,
    steps: f64,
    at: f64,
    /// Seconds of other work before the next step.
    debt: f64,
    decoding: BTreeMap<MemberId, (f64, u64)>,
    ends: BinaryHeap<Reverse<(Moment, MemberId)>>,
    waiting: VecDeque<Request>,
    /// Seconds in which it worked, and of these for prefill.
    pub busy: f64,
    pub prefill: f64,
    /// Time integral of the number of sequences that decode.
    pub occupancy: f64,
    /// Changes with whatever changes its next end.
    pub stamp: u64,
}

impl Engine {
    pub fn new(model: EngineModel, machines: usize) -> Self {
        Self {
            model,
            machines: machines as f64,
            steps: 0.0,
            at: 0.0,
            debt: 0.0,
            decoding: BTreeMap::new(),
            ends: BinaryHeap::new(),
            waiting: VecDeque::new(),
            busy: 0.0,
            prefill: 0.0,
            occupancy: 0.0,
            stamp: 0,
        }
    }

    pub fn load(&self) -> usize {
        self.decoding.len() + self.waiting.len()
    }

    pub fn decoding(&self) -> usize {
        self.decoding.len()
    }

    fn step_seconds(&self) -> f64 {
        self.model.step_seconds + self.model.sequence_seconds * self.decoding.len() as f64 / self.machines
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        self.at = now;
        self.occupancy += passed * self.decoding.len() as f64;
        let other = passed.min(self.debt);
        self.debt -= other;
        let left = passed - other;
        self.busy += other;
        if !self.decoding.is_empty() {
            self.busy += left;
            self.steps += left / self.step_seconds();
        }
    }

    /// It stands still for so long.
    pub fn stall(&mut self, seconds: f64) {
        self.debt += seconds;
        self.stamp += 1;
    }

    /// Tokens whose state must be computed before it goes on.
    pub fn prefill(&mut self, tokens: u64) {
        let seconds = tokens as f64 * self.model.prefill_seconds / self.machines;
        self.prefill += seconds;
        self.stall(seconds);
    }

    pub fn add(&mut self, id: MemberId, tokens: u64, prefill: u64) {
        self.waiting.push_back(Request { id, tokens, prefill });
        self.admit();
    }

    fn admit(&mut self) {
        let slots = self.model.slots.map_or(usize::MAX, |slots| slots * self.machines as usize);
        while self.decoding.len() < slots {
            let Some(request) = self.waiting.pop_front() else { break };
            if request.prefill > 0 {
                self.prefill(request.prefill);
            }
            let end = self.steps + request.tokens as f64;
            self.decoding.insert(request.id, (end, request.tokens));
            self.ends.push(Reverse((Moment(end), request.id)));
        }
        self.stamp += 1;
    }

    /// Takes a sequence away; the tokens that it has written since it was added.
    pub fn remove(&mut self, id: MemberId) -> u64 {
        let written = self.written(id);
        if self.decoding.remove(&id).is_none() {
            self.waiting.retain(|request| request.id != id);
        }
        self.admit();
        written
    }

    /// Tokens that a sequence has written since it was added.
    pub fn written(&self, id: MemberId) -> u64 {
        self.decoding
            .get(&id)
            .map_or(0, |(end, tokens)| tokens - ((end - self.steps).max(0.0).ceil() as u64).min(*tokens))
    }

    /// Whether a sequence decodes, and does not wait for a place.
    pub fn has_begun(&self, id: MemberId) -> bool {
        self.decoding.contains_key(&id)
    }

    /// When the next sequence ends, and which.
    pub fn next_end(&mut self) -> Option<(f64, MemberId)> {
        while let Some(Reverse((Moment(end), id))) = self.ends.peek().copied() {
            if self.decoding.get(&id).is_some_and(|(own, _)| *own == end) {
                let steps = (end - self.steps).max(0.0);
                return Some((self.at + self.debt + steps * self.step_seconds(), id));
            }
            self.ends.pop();
        }
        None
    }

    /// The sequence that ends now leaves; another takes its place.
    pub fn end(&mut self, id: MemberId) {
        if let Some((end, _)) = self.decoding.remove(&id) {
            // What is left of its last step is rounding.
            self.steps = self.steps.max(end);
        }
        self.admit();
    }
}
