//! Prompts that several trajectories begin with: read once, their pages shared.
//!
//! The shared part of a prompt is all but its last token, which predicts the first token of each answer and so is a row
//! of each trajectory's own. A prompt is known by its tokens. It is kept exactly as long as a trajectory waits for it;
//! after that its pages are those of the trajectories.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pages::{PageId, PagePool};

/// The state of one prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    /// Trajectories that have not taken its pages yet.
    waiting: usize,
    /// Pages of the positions that were computed, and of those that the current step computes.
    pub(super) pages: Vec<PageId>,
    /// Positions that were computed.
    pub(super) computed: usize,
    /// Experts that ran, `[computed, layers, experts a token]`; empty when not recorded.
    pub(super) experts: Vec<u16>,
    /// Whether the current step works on it, so that its pages must stay.
    pub(super) in_step: bool,
}

impl Prompt {
    pub(super) fn drop_pages(&mut self, pool: &mut PagePool) {
        pool.release_all(&mut self.pages);
        self.computed = 0;
        self.experts.clear();
    }
}

/// All prompts that trajectories wait for.
#[derive(Debug, Default)]
pub(super) struct Prompts(BTreeMap<Arc<[u32]>, Prompt>);

impl Prompts {
    /// One more trajectory waits for a prompt.
    pub(super) fn expect(&mut self, prompt: &Arc<[u32]>) {
        self.0.entry(prompt.clone()).or_default().waiting += 1;
    }

    /// A trajectory waits no longer.
    pub(super) fn settle(&mut self, prompt: &Arc<[u32]>, pool: &mut PagePool) {
        let Some(state) = self.0.get_mut(prompt) else { return };
        state.waiting -= 1;
        if state.waiting == 0 {
            state.drop_pages(pool);
            self.0.remove(prompt);
        }
    }

    /// The state of a prompt that a trajectory waits for.
    pub(super) fn get_mut(&mut self, prompt: &[u32]) -> Option<&mut Prompt> {
        self.0.get_mut(prompt)
    }

    pub(super) fn get(&self, prompt: &[u32]) -> Option<&Prompt> {
        self.0.get(prompt)
    }

    /// Drops the pages of one prompt that the current step does not work on, with `owned` only of one that has a page
    /// which nobody shares; whether there was such a prompt.
    pub(super) fn reclaim(&mut self, pool: &mut PagePool, owned: bool) -> bool {
        let fits = |prompt: &&mut Prompt| {
            !prompt.in_step && prompt.pages.iter().any(|&page| !(owned && pool.is_shared(page)))
        };
        let Some(prompt) = self.0.values_mut().find(fits) else { return false };
        prompt.drop_pages(pool);
        true
    }

    /// Drops the pages of all prompts; trajectories wait on.
    pub(super) fn drop_pages(&mut self, pool: &mut PagePool) {
        self.0.values_mut().for_each(|prompt| prompt.drop_pages(pool));
    }

    /// A new step begins.
    pub(super) fn begin_step(&mut self) {
        self.0.values_mut().for_each(|prompt| prompt.in_step = false);
    }

    #[cfg(test)]
    pub(super) fn pages(&self) -> impl Iterator<Item = &[PageId]> {
        self.0.values().map(|prompt| prompt.pages.as_slice())
    }
}
