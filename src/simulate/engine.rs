//! One engine: sequences that decode in step, in a memory of so many tokens.
//!
//! All its sequences have written equally much since they began, so that the engine keeps one count of steps; a
//! sequence ends when the count reaches its own mark. The next end is on top of a heap, whatever the number of
//! sequences. Memory in use grows by one token a sequence and step; when it is full, the sequence that began last gives
//! its memory up and is the next to begin again, which computes its state anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::config::EngineModel;
use crate::schedule::flow::MemberId;
use crate::schedule::trace::EngineStatistics;

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
pub(super) struct Request {
    pub id: MemberId,
    /// Tokens that it asks for in all.
    pub tokens: u64,
    /// Of these, written already: not 0 for one that lost its memory.
    pub written: u64,
    /// Tokens whose state is in memory when it begins: its prompt and what it has written.
    pub context: u64,
    /// Of these, tokens whose state must be computed first.
    pub prefill: u64,
    /// Of these, tokens of a prompt that is computed for the first time.
    pub prompt: u64,
}

/// A sequence that decodes.
#[derive(Debug, Clone, Copy)]
struct Decoding {
    request: Request,
    /// Count of steps at which it began, and at which it ends.
    began: f64,
    end: f64,
    turn: u64,
}

impl Decoding {
    /// Tokens written since it was added, at a count of steps.
    fn written(&self, steps: f64) -> u64 {
        self.request.tokens - ((self.end - steps).max(0.0).ceil() as u64).min(self.request.tokens)
    }
}

/// What an engine comes to next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A sequence ends.
    End(MemberId),
    /// The memory is full.
    Full,
}

/// Sums since the report's figures began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// Seconds in which it worked, and of these for prefill.
    pub busy: f64,
    pub prefill: f64,
    /// Time integrals of the number of sequences that decode, and of the share of memory in use.
    pub occupancy: f64,
    pub kv_use: f64,
    /// Greatest share of memory in use.
    pub kv_most: f64,
    /// Sequences that lost their memory.
    pub preemptions: u64,
}

#[derive(Debug)]
pub(super) struct Engine {
    model: EngineModel,
    /// How many real engines it stands for; they have equally many sequences.
    machines: f64,
    /// Tokens that fit into its memory.
    capacity: f64,
    /// Factor of the time that everything takes.
    pace: f64,
    /// Whether it works beside the learner.
    beside: bool,
    steps: f64,
    at: f64,
    /// Seconds of other work before the next step, at a pace of 1.
    debt: f64,
    decoding: BTreeMap<MemberId, Decoding>,
    /// Those that decode, in the order in which they began.
    order: BTreeMap<u64, MemberId>,
    next_turn: u64,
    /// Σ (context − steps at which it began) of those that decode: memory in use is this and their number times steps.
    base: f64,
    ends: BinaryHeap<Reverse<(Moment, MemberId)>>,
    waiting: VecDeque<Request>,
    pub usage: Usage,
    /// What a trace tells of it, since its last line.
    pub statistics: EngineStatistics,
    /// Changes with whatever changes what it comes to next.
    pub stamp: u64,
}

impl Engine {
    pub fn new(model: EngineModel, machines: usize) -> Self {
        let machines = machines as f64;
        Self {
            model,
            machines,
            capacity: model.kv_tokens.map_or(f64::INFINITY, |tokens| tokens as f64 * machines),
            pace: 1.0,
            beside: false,
            steps: 0.0,
            at: 0.0,
            debt: 0.0,
            decoding: BTreeMap::new(),
            order: BTreeMap::new(),
            next_turn: 0,
            base: 0.0,
            ends: BinaryHeap::new(),
            waiting: VecDeque::new(),
            usage: Usage::default(),
            statistics: EngineStatistics::default(),
            stamp: 0,
        }
    }

    pub fn load(&self) -> usize {
        self.decoding.len() + self.waiting.len()
    }

    pub fn decoding(&self) -> usize {
        self.decoding.len()
    }

    /// Real engines that it stands for.
    pub fn machines(&self) -> f64 {
        self.machines
    }

    /// Share of its memory in use.
    pub fn kv_use(&self) -> f64 {
        self.memory() / self.capacity
    }

    fn memory(&self) -> f64 {
        self.base + self.decoding.len() as f64 * self.steps
    }

    fn step_seconds(&self) -> f64 {
        self.model.step_seconds + self.model.sequence_seconds * self.decoding.len() as f64 / self.machines
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        self.at = now;
        let count = self.decoding.len();
        let before = self.kv_use();
        let other = passed.min(self.debt * self.pace);
        self.debt = (self.debt - other / self.pace).max(0.0);
        let left = passed - other;
        self.usage.busy += other;
        if count == 0 {
            self.statistics.idle_seconds += left * self.machines;
        } else {
            self.usage.busy += left;
            let step = self.step_seconds() * self.pace;
            let from = self.steps;
            self.steps += left / step;
            self.note_steps((self.steps.floor() - from.floor()) as u64, step);
        }
        self.usage.occupancy += passed * count as f64;
        self.usage.kv_use += passed * f64::midpoint(before, self.kv_use());
        self.usage.kv_most = self.usage.kv_most.max(self.kv_use());
    }

    /// Whole steps, for the trace; each machine has its part of the sequences.
    fn note_steps(&mut self, steps: u64, seconds: f64) {
        let sequences = self.decoding.len() as u64;
        let of_each = sequences as f64 / self.machines;
        let machine_steps = steps as f64 * self.machines;
        let sums = if self.beside { &mut self.statistics.beside } else { &mut self.statistics.alone };
        sums.steps += machine_steps as u64;
        sums.sequences += steps * sequences;
        sums.squares += machine_steps * of_each * of_each;
        sums.seconds += machine_steps * seconds;
        sums.products += machine_steps * of_each * seconds;
        self.statistics.sampled += steps * sequences;
    }

    /// From now on everything takes so many times as long, beside the learner or not.
    pub fn set_pace(&mut self, pace: f64, beside: bool) {
        (self.pace, self.beside) = (pace, beside);
        self.stamp += 1;
    }

    /// It stands still for so long to take up weights.
    pub fn take_up_weights(&mut self, seconds: f64) {
        self.statistics.loads += self.machines as u64;
        self.statistics.load_seconds += seconds * self.pace * self.machines;
        self.stall(seconds);
    }

    fn stall(&mut self, seconds: f64) {
        self.debt += seconds;
        self.stamp += 1;
    }

    /// Tokens whose state must be computed before it goes on.
    pub fn prefill(&mut self, tokens: u64) {
        let seconds = tokens as f64 * self.model.prefill_seconds / self.machines;
        self.usage.prefill += seconds * self.pace;
        self.statistics.prefill_tokens += tokens;
        self.statistics.prefill_seconds += seconds * self.pace * self.machines;
        self.stall(seconds);
    }

    /// A sequence waits for its place; [`Engine::admit`] gives it one.
    pub fn add(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Sequences that wait begin, in order, as far as there are places and memory for them and for a step of all.
    pub fn admit(&mut self) {
        let slots = self.model.slots.map_or(usize::MAX, |slots| slots * self.machines as usize);
        while let Some(request) = self.waiting.front().copied() {
            let count = self.decoding.len();
            let memory = self.memory() + (request.context + count as u64 + 1) as f64;
            if count >= slots || (count > 0 && memory > self.capacity) {
                break;
            }
            self.waiting.pop_front();
            if request.prefill > 0 {
                self.prefill(request.prefill);
            }
            self.statistics.prompt_tokens += request.prompt;
            self.statistics.began += u64::from(request.context == request.prompt);
            let end = self.steps + (request.tokens - request.written) as f64;
            let began = self.steps;
            self.base += request.context as f64 - began;
            self.order.insert(self.next_turn, request.id);
            self.decoding.insert(request.id, Decoding { request, began, end, turn: self.next_turn });
            self.next_turn += 1;
            self.ends.push(Reverse((Moment(end), request.id)));
        }
        self.stamp += 1;
    }

    fn leave(&mut self, id: MemberId) -> Option<Decoding> {
        let left = self.decoding.remove(&id)?;
        self.order.remove(&left.turn);
        self.base -= left.request.context as f64 - left.began;
        if self.decoding.is_empty() {
            // No rounding is carried on.
            self.base = 0.0;
        }
        Some(left)
    }

    /// Takes a sequence away; the tokens that it has written since it was added.
    pub fn remove(&mut self, id: MemberId) -> u64 {
        let written = self.written(id);
        if self.leave(id).is_none() {
            self.waiting.retain(|request| request.id != id);
        }
        self.stamp += 1;
        written
    }

    /// Tokens that a sequence has written since it was added.
    pub fn written(&self, id: MemberId) -> u64 {
        if let Some(decoding) = self.decoding.get(&id) {
            return decoding.written(self.steps);
        }
        // Only what lost its memory waits with tokens of this request.
        let waiting = self.capacity.is_finite().then(|| self.waiting.iter());
        waiting.into_iter().flatten().find(|request| request.id == id).map_or(0, |request| request.written)
    }

    /// Whether a sequence decodes, and does not wait for a place.
    pub fn has_begun(&self, id: MemberId) -> bool {
        self.decoding.contains_key(&id)
    }

    /// What it comes to next, and when.
    pub fn next(&mut self) -> Option<(f64, Next)> {
        let end = loop {
            let Reverse((Moment(end), id)) = self.ends.peek().copied()?;
            if self.decoding.get(&id).is_some_and(|own| own.end == end) {
                break (end, id);
            }
            self.ends.pop();
        };
        let count = self.decoding.len() as f64;
        let full = self.steps + (self.capacity - self.memory()) / count;
        let (mark, next) =
            if count > 1.0 && full < end.0 { (full, Next::Full) } else { (end.0, Next::End(end.1)) };
        let seconds = self.debt + (mark - self.steps).max(0.0) * self.step_seconds();
        Some((self.at + seconds * self.pace, next))
    }

    /// The sequence that ends now leaves.
    pub fn end(&mut self, id: MemberId) {
        if let Some(left) = self.leave(id) {
            // What is left of its last step is rounding.
            self.steps = self.steps.max(left.end);
        }
        self.stamp += 1;
    }

    /// The sequence that began last gives up its memory, and waits before all others to begin again.
    pub fn preempt(&mut self) {
        let Some(id) = self.order.last_key_value().map(|(_, id)| *id) else { return };
        let steps = self.steps;
        let Some(left) = self.leave(id) else { return };
        let written = left.written(steps);
        let context = left.request.context + written - left.request.written;
        let request = Request { written, context, prefill: context, prompt: 0, ..left.request };
        self.waiting.push_front(request);
        self.usage.preemptions += 1;
        self.stamp += 1;
    }

    /// What a trace tells of it since this was asked last.
    pub fn take_statistics(&mut self) -> EngineStatistics {
        std::mem::take(&mut self.statistics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_all_costs_nothing_for_those_that_never_began() {
        let mut engine = Engine::new(EngineModel { slots: Some(1), ..EngineModel::default() }, 1);
        let id = |member| MemberId { group: 0, member };
        for member in 0..3 {
            let request =
                Request { id: id(member), tokens: 10, written: 0, context: 5, prefill: 5, prompt: 0 };
            engine.add(request);
        }
        engine.admit();
        assert!(engine.has_begun(id(0)) && !engine.has_begun(id(1)));
        let charged = engine.usage.prefill;
        assert!(charged > 0.0);
        for member in 0..3 {
            engine.remove(id(member));
        }
        assert_eq!(engine.usage.prefill, charged, "no place that a pause frees is taken");
        assert_eq!((engine.load(), engine.kv_use()), (0, 0.0));
    }
}
