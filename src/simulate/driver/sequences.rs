//! Answers: where they are, what they have written under which version, and what an interruption costs them.

use super::Simulation;
use crate::schedule::axes::{Interrupt, RoundEnd};
use crate::schedule::flow::{FlowEvent, MemberId, Stretch};
use crate::simulate::config::{Placement, SimulateError};
use crate::simulate::engine::Request;

/// An answer on its way.
pub(super) struct Sequence {
    source: u32,
    engine: Option<usize>,
    length: u64,
    /// Tokens by version, up to the last time it was added to an engine or the weights changed.
    stretches: Vec<Stretch>,
    /// Tokens written before it was added to its engine.
    before: u64,
    /// Version under which its state was computed, if it has any.
    state_of: Option<u64>,
    /// Version that samples its next token.
    sampled_by: u64,
}

impl Sequence {
    fn tokens(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.tokens).sum()
    }

    /// Books what it has written since it was added to its engine.
    fn note(&mut self, written: u64) {
        let version = self.sampled_by;
        let fresh = self.before + written - self.tokens();
        match self.stretches.last_mut() {
            Some(last) if last.version == version => last.tokens += fresh,
            _ if fresh > 0 => self.stretches.push(Stretch { version, tokens: fresh }),
            _ => {}
        }
    }
}

/// A group whose members end.
#[derive(Default)]
pub(super) struct Ending {
    pub source: u32,
    /// When each ended, with its tokens.
    pub members: Vec<(f64, Vec<Stretch>)>,
}

impl Simulation<'_> {
    pub(super) fn launch(&mut self, group: u64, source: u32, members: u32) {
        self.endings.insert(group, Ending { source, ..Ending::default() });
        for member in 0..members {
            let id = MemberId { group, member };
            let sequence = Sequence {
                source,
                engine: None,
                length: self.lengths.tokens(source, group, member),
                stretches: Vec::new(),
                before: 0,
                state_of: None,
                sampled_by: 0,
            };
            self.sequences.insert(id, sequence);
            self.place(id);
        }
    }

    /// An answer goes to an engine.
    pub(super) fn place(&mut self, id: MemberId) {
        let engine = match self.config.devices.placement {
            Placement::Balanced => 0,
            Placement::LeastLoaded => {
                let loads = self.engines.iter().enumerate();
                loads.min_by_key(|(_, engine)| engine.load()).map_or(0, |(index, _)| index)
            }
            Placement::Hashed => {
                (id.group.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % self.engines.len()
            }
        };
        let settings = self.scheduler.settings();
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let tokens = sequence.tokens();
        let cached =
            sequence.state_of.is_some_and(|version| settings.resume.keeps_kv(version != self.version));
        let prompt = self.config.lengths.prompt_tokens;
        let context = prompt + tokens;
        let mut asked = sequence.length - tokens;
        if let RoundEnd::Budget { tokens } = settings.round_end {
            asked = asked.min(tokens);
        }
        sequence.engine = Some(engine);
        sequence.before = tokens;
        sequence.state_of = Some(self.version);
        sequence.sampled_by = self.version;
        self.engines[engine].advance(self.now);
        self.engines[engine].add(Request {
            id,
            tokens: asked,
            written: 0,
            context,
            prefill: if cached { 0 } else { context },
            prompt: if tokens == 0 && !cached { prompt } else { 0 },
        });
        self.touched.push(engine);
    }

    /// An answer leaves its engine and keeps what it has.
    pub(super) fn take_off(&mut self, id: MemberId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let Some(engine) = sequence.engine.take() else { return };
        self.engines[engine].advance(self.now);
        if !self.engines[engine].has_begun(id) {
            // Its state was never computed, or was lost.
            sequence.state_of = None;
        }
        let written = self.engines[engine].remove(id);
        sequence.note(written);
        self.touched.push(engine);
    }

    /// An answer has nothing of before.
    pub(super) fn forget(&mut self, id: MemberId) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            (sequence.before, sequence.state_of) = (0, None);
            sequence.stretches.clear();
        }
    }

    pub(super) fn give_up(&mut self, group: u64) {
        let (first, last) = (MemberId { group, member: 0 }, MemberId { group, member: u32::MAX });
        let ids: Vec<MemberId> = self.sequences.range(first..=last).map(|(id, _)| *id).collect();
        for id in ids {
            self.take_off(id);
            self.sequences.remove(&id);
        }
        self.endings.remove(&group);
    }

    /// Engines take up weights; what they decode goes on with its state or without.
    pub(super) fn load(&mut self, version: u64) {
        let before = std::mem::replace(&mut self.version, version);
        let interrupts = self.scheduler.settings().interrupt == Interrupt::Token;
        let keeps = self.scheduler.settings().resume.keeps_kv(true);
        for (index, engine) in self.engines.iter_mut().enumerate() {
            engine.advance(self.now);
            if before != version {
                engine.take_up_weights(self.config.costs.sync_seconds);
            }
            self.touched.push(index);
        }
        if !interrupts {
            return;
        }
        for (id, sequence) in &mut self.sequences {
            let Some(engine) = sequence.engine else { continue };
            let own = &mut self.engines[engine];
            let written = own.written(*id);
            sequence.note(written);
            sequence.sampled_by = version;
            if keeps {
                continue;
            }
            sequence.state_of = Some(version);
            if own.has_begun(*id) {
                own.prefill(self.config.lengths.prompt_tokens + sequence.tokens());
            }
        }
    }

    /// An answer has written all that it asked for.
    pub(super) fn ended(&mut self, id: MemberId) -> Result<(), SimulateError> {
        let Some(sequence) = self.sequences.get_mut(&id) else { return Ok(()) };
        sequence.engine = None;
        let asked = match self.scheduler.settings().round_end {
            RoundEnd::Budget { tokens } => (sequence.length - sequence.before).min(tokens),
            _ => sequence.length - sequence.before,
        };
        sequence.note(asked);
        if sequence.tokens() < sequence.length {
            return self.tell(FlowEvent::Exhausted { id });
        }
        let Some(sequence) = self.sequences.remove(&id) else { return Ok(()) };
        if let Some(ending) = self.endings.get_mut(&id.group) {
            ending.source = sequence.source;
            ending.members.push((self.now, sequence.stretches.clone()));
        }
        self.tell(FlowEvent::Finished { id, stretches: sequence.stretches })
    }
}
