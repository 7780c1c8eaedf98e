//! Taking trajectories out in the middle, and weights that change in the middle.

use super::engine::Engine;
use super::request::Request;
use super::saved::SavedKv;
use super::sequence::Sequence;
use super::weights::{ResumeMode, Weights};
use crate::trajectory::TrajectoryId;

/// Which trajectories.
#[derive(Debug, Clone, Copy)]
pub enum Interrupt<'a> {
    /// All that run or wait.
    All,
    /// Those of these that run or wait.
    Only(&'a [TrajectoryId]),
}

impl Interrupt<'_> {
    fn takes(self, id: TrajectoryId) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&id),
        }
    }
}

/// A trajectory that was taken out in the middle.
#[derive(Debug, Clone)]
pub struct Paused {
    /// What was asked for, with what there is of it by now: submit it to go on.
    pub request: Request,
    /// Its keys and values, when they were asked for and had been sampled from: with them
    /// [`Engine::resume`] goes on without reading the trajectory anew.
    pub kv: Option<SavedKv>,
}

impl Engine {
    /// Takes trajectories out, those that run first, each in its order, optionally with a copy of their keys and
    /// values. Unknown ids are passed over.
    pub fn interrupt(&mut self, which: Interrupt, save_kv: bool) -> Vec<Paused> {
        let all = std::mem::take(&mut self.running).into_iter().map(|sequence| (true, sequence));
        let all: Vec<_> = all
            .chain(std::mem::take(&mut self.waiting).into_iter().map(|sequence| (false, sequence)))
            .collect();
        let mut paused = Vec::new();
        for (running, sequence) in all {
            if which.takes(sequence.id()) {
                paused.push(self.take_out(sequence, save_kv));
            } else if running {
                self.running.push(sequence);
            } else {
                self.waiting.push_back(sequence);
            }
        }
        paused
    }

    /// Takes out those that have all the actions that they may have for now, in the order in which they came to that.
    pub fn take_paused(&mut self, save_kv: bool) -> Vec<Paused> {
        let paused = std::mem::take(&mut self.paused);
        paused.into_iter().map(|sequence| self.take_out(sequence, save_kv)).collect()
    }

    fn take_out(&mut self, mut sequence: Sequence, save_kv: bool) -> Paused {
        let kv = if save_kv { sequence.take_saved(&mut self.pool) } else { None };
        Paused { request: self.forget(sequence), kv }
    }

    /// Gives everything back that a sequence has in the engine.
    pub(super) fn forget(&mut self, mut sequence: Sequence) -> Request {
        sequence.settle_prompt(&mut self.prompts, &mut self.pool);
        sequence.drop_pages(&mut self.pool);
        self.ids.remove(&sequence.id());
        sequence.request
    }

    /// Goes on with other weights. Tokens sampled from now on carry their version.
    pub fn swap(&mut self, weights: Weights, mode: ResumeMode) {
        self.weights = weights;
        // Prompts that nobody has taken yet are read under the weights that will sample.
        self.prompts.drop_pages(&mut self.pool);
        for sequence in self.running.iter_mut().chain(&mut self.waiting).chain(&mut self.held) {
            if mode == ResumeMode::Reprefill {
                sequence.saved = None;
            }
            if mode == ResumeMode::Reprefill || !sequence.sampled {
                sequence.drop_pages(&mut self.pool);
            }
        }
        self.expect_prompts();
    }

    /// Makes those that have nothing any more wait for their prompts.
    pub(super) fn expect_prompts(&mut self) {
        let sharing: Vec<bool> =
            self.running.iter().chain(&self.waiting).map(|s| self.shares_prompt(s)).collect();
        for (sequence, shares) in self.running.iter_mut().chain(&mut self.waiting).zip(sharing) {
            sequence.expect_prompt(&mut self.prompts, shares);
        }
    }
}
