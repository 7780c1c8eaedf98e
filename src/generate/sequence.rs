//! One trajectory inside the engine.

use super::pages::{PageId, PagePool};
use super::prompts::Prompts;
use super::request::{Request, exhausted};
use super::saved::SavedKv;
use crate::trajectory::{Finish, TrajectoryId};

/// A trajectory and what is computed of it.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: Request,
    /// Its actions, counted.
    pub(super) actions: usize,
    /// Pages of its first positions.
    pub(super) pages: Vec<PageId>,
    /// Positions whose keys and values are in the pages.
    pub(super) computed: usize,
    /// Whether it waits for the shared part of its prompt; it has no pages then.
    pub(super) waits: bool,
    /// Whether a token was sampled against the keys and values that it has.
    pub(super) sampled: bool,
    /// Keys and values to restore before it goes on; it has no pages then.
    pub(super) saved: Option<SavedKv>,
}

impl Sequence {
    pub(super) fn new(mut request: Request, saved: Option<SavedKv>) -> Self {
        request.trajectory.finish = None;
        let actions = request.trajectory.action_count();
        Self { request, actions, pages: Vec::new(), computed: 0, waits: false, sampled: false, saved }
    }

    pub(super) fn id(&self) -> TrajectoryId {
        self.request.trajectory.id
    }

    /// Tokens that it has.
    pub(super) fn len(&self) -> usize {
        self.request.trajectory.len()
    }

    /// Tokens that have not gone through the model.
    pub(super) fn pending(&self) -> usize {
        self.len() - self.computed
    }

    /// Positions of its prompt that it can share with others.
    pub(super) fn shared_len(&self) -> usize {
        self.request.trajectory.prompt.len() - 1
    }

    /// Why it goes on no further, its last token aside.
    pub(super) fn exhausted(&self, context: usize) -> Option<Finish> {
        exhausted(self.len(), self.actions, self.request.max_new_tokens, context)
    }

    /// Whether it has all the actions that it may have for now.
    pub(super) fn has_paused(&self) -> bool {
        self.request.pause_at.is_some_and(|most| self.actions >= most)
    }

    /// Whether it has begun to repeat itself.
    pub(super) fn repeats(&self) -> bool {
        let tokens = || &self.request.trajectory.tokens;
        self.request.repetition.is_some_and(|rule| rule.repeats(tokens()))
    }

    /// Makes it wait for its prompt, when it has nothing yet and `shares`.
    pub(super) fn expect_prompt(&mut self, prompts: &mut Prompts, shares: bool) {
        if shares && !self.waits && self.computed == 0 && self.saved.is_none() && self.shared_len() > 0 {
            prompts.expect(&self.request.trajectory.prompt);
            self.waits = true;
        }
    }

    /// Makes it wait for its prompt no longer.
    pub(super) fn settle_prompt(&mut self, prompts: &mut Prompts, pool: &mut PagePool) {
        if std::mem::take(&mut self.waits) {
            prompts.settle(&self.request.trajectory.prompt, pool);
        }
    }

    /// Keys and values that it was sampled against, in host memory. A device that fails gives none: they are computed
    /// anew then, or the next step fails too.
    pub(super) fn take_saved(&mut self, pool: &mut PagePool) -> Option<SavedKv> {
        match self.saved.take() {
            None if self.sampled => SavedKv::copy(pool, &self.pages, self.computed).ok(),
            saved => saved,
        }
    }

    /// Gives up its keys and values; they are computed anew from its tokens.
    pub(super) fn drop_pages(&mut self, pool: &mut PagePool) {
        pool.release_all(&mut self.pages);
        self.computed = 0;
        self.sampled = false;
    }

    /// Adds the experts that ran for positions from `first` on to the record; those that are recorded stay.
    pub(super) fn record_experts(&mut self, first: usize, experts: &[u16], width: usize) {
        let record = &mut self.request.trajectory.experts;
        let start = (record.len() - (first * width).min(record.len())).min(experts.len());
        if first * width + start == record.len() {
            record.extend_from_slice(&experts[start..]);
        }
    }
}
