//! Which rows a step computes, and where their pages come from.
//!
//! Running sequences are gone through in the order in which they were admitted; then waiting ones are admitted, first
//! come first served, while the cache has room for what they have. Who needs a page and finds none takes it from, in
//! this order: sequences that are held for an observation, waiting sequences that kept pages, prompts that are not
//! being worked on, and running sequences that were admitted later, the last first. Who still finds none gives up its
//! own pages and waits. The oldest running sequence therefore always goes on.

use super::engine::Engine;
use super::forward::{Holder, Job};
use super::pages::PageId;
use super::request::pages_for;
use super::sequence::Sequence;
use crate::ops::KEY_TILE;

/// What becomes of a sequence in a step.
enum Planned {
    /// It has rows, or waits for the prompt's or for the next step.
    Stays,
    /// There was no page for it.
    NoPage,
}

impl Engine {
    /// Admits sequences and gives the rows of a step.
    pub(super) fn plan(&mut self) -> Vec<Job> {
        self.prompts.begin_step();
        let (mut jobs, mut prefill, mut index) = (Vec::new(), self.config.prefill_tokens, 0);
        loop {
            if index == self.running.len() && !(prefill > 0 && self.admit()) {
                return jobs;
            }
            match self.plan_sequence(index, &mut prefill, &mut jobs) {
                Planned::Stays => index += 1,
                Planned::NoPage => {
                    // Everyone younger gave up already, so this is the last one.
                    self.preempt_youngest();
                    return jobs;
                }
            }
        }
    }

    /// Moves the first waiting sequence to the running ones, if there is room.
    fn admit(&mut self) -> bool {
        if self.running.len() >= self.config.max_running || !self.fits() {
            return false;
        }
        let Some(sequence) = self.waiting.pop_front() else { return false };
        self.running.push(sequence);
        true
    }

    /// Whether the cache has room for all that the first waiting sequence has, beside what running ones still need.
    fn fits(&self) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        if self.running.is_empty() {
            return true;
        }
        let free = self.pool.free() + self.held.iter().map(|held| held.pages.len()).sum::<usize>();
        let needed = |sequence: &Sequence| {
            // Whole pages of the prompt are there for all who wait for it.
            let prompt =
                sequence.waits.then(|| self.prompts.get(&sequence.request.trajectory.prompt)).flatten();
            let shared = prompt.map_or(0, |prompt| prompt.computed / KEY_TILE);
            pages_for(sequence.len()).saturating_sub(sequence.pages.len() + shared)
        };
        self.running.iter().chain([first]).map(needed).sum::<usize>() <= free
    }

    fn plan_sequence(&mut self, index: usize, prefill: &mut usize, jobs: &mut Vec<Job>) -> Planned {
        if !self.restore(index) {
            return Planned::NoPage;
        }
        if self.running[index].waits {
            let prompt = self.running[index].request.trajectory.prompt.clone();
            let shared = prompt.len() - 1;
            let computed = self.prompts.get(&prompt).map_or(0, |state| state.computed);
            if computed < shared {
                return self.plan_prompt(index, computed, prefill, jobs);
            }
            self.take_prompt(index);
        }
        let sequence = &self.running[index];
        let (first, pending) = (sequence.computed, sequence.pending());
        let mut count = if pending == 1 { 1 } else { pending.min(*prefill) };
        let forced = self.forced_positions(sequence).saturating_sub(first);
        if forced > 0 {
            count = count.min(forced);
        }
        if count == 0 {
            return Planned::Stays;
        }
        let mut pages = std::mem::take(&mut self.running[index].pages);
        let enough = self.reserve(index, &mut pages, first, count);
        let job_pages = pages.clone();
        self.running[index].pages = pages;
        if !enough {
            return Planned::NoPage;
        }
        if pending > 1 {
            *prefill -= count;
        }
        jobs.push(Job {
            holder: Holder::Sequence(index),
            first,
            count,
            pages: job_pages,
            forced: forced > 0,
        });
        Planned::Stays
    }

    /// Rows of the prompt that a running sequence waits for, unless the step has some already.
    fn plan_prompt(
        &mut self,
        index: usize,
        first: usize,
        prefill: &mut usize,
        jobs: &mut Vec<Job>,
    ) -> Planned {
        let prompt = self.running[index].request.trajectory.prompt.clone();
        let count = (prompt.len() - 1 - first).min(*prefill);
        let Some(state) = self.prompts.get_mut(&prompt) else { return Planned::Stays };
        if state.in_step || count == 0 {
            return Planned::Stays;
        }
        state.in_step = true;
        let mut pages = std::mem::take(&mut state.pages);
        let enough = self.reserve(index, &mut pages, first, count);
        let job_pages = pages.clone();
        if let Some(state) = self.prompts.get_mut(&prompt) {
            state.pages = pages;
            state.in_step = enough;
        }
        if !enough {
            return Planned::NoPage;
        }
        *prefill -= count;
        jobs.push(Job { holder: Holder::Prompt(prompt), first, count, pages: job_pages, forced: false });
        Planned::Stays
    }

    /// Gives a running sequence the pages of its prompt.
    fn take_prompt(&mut self, index: usize) {
        let sequence = &mut self.running[index];
        if let Some(prompt) = self.prompts.get(&sequence.request.trajectory.prompt) {
            prompt.pages.iter().for_each(|&page| self.pool.retain(page));
            sequence.pages.clone_from(&prompt.pages);
            sequence.computed = prompt.computed;
            sequence.record_experts(0, &prompt.experts, self.decoder.experts_per_row());
            self.totals.shared_tokens += prompt.computed as u64;
        }
        sequence.settle_prompt(&mut self.prompts, &mut self.pool);
    }

    /// Brings saved keys and values back; whether there were pages for it.
    fn restore(&mut self, index: usize) -> bool {
        let Some(saved) = self.running[index].saved.take() else { return true };
        let mut pages = Vec::new();
        let enough = self.reserve(index, &mut pages, 0, saved.positions());
        let sequence = &mut self.running[index];
        sequence.pages = pages;
        if enough {
            saved.restore(&mut self.pool, &sequence.pages);
            (sequence.computed, sequence.sampled) = (saved.positions(), true);
            self.totals.loads += 1;
        } else {
            sequence.drop_pages(&mut self.pool);
            sequence.saved = Some(saved);
        }
        enough
    }

    /// Makes sure that `pages` cover `count` positions from `first` on and that those can be written.
    fn reserve(&mut self, index: usize, pages: &mut Vec<PageId>, first: usize, count: usize) -> bool {
        if let Some(page) = pages.get_mut(first / KEY_TILE) {
            // Whoever shares it may be among those that give up their pages.
            while self.pool.is_shared(*page) {
                if let Some(copy) = self.pool.copy(*page) {
                    self.pool.release(std::mem::replace(page, copy));
                } else if !self.reclaim(index) {
                    return false;
                }
            }
        }
        while pages.len() < pages_for(first + count) {
            match self.pool.allocate() {
                Some(page) => pages.push(page),
                None if self.reclaim(index) => {}
                None => return false,
            }
        }
        true
    }

    /// Takes pages from someone who is less urgent than the running sequence `index`; whether there was anyone.
    fn reclaim(&mut self, index: usize) -> bool {
        let pool = &mut self.pool;
        if let Some(held) = self.held.iter_mut().rev().find(|sequence| !sequence.pages.is_empty()) {
            held.drop_pages(pool);
            return true;
        }
        if let Some(place) = self.waiting.iter().rposition(|sequence| !sequence.pages.is_empty()) {
            self.waiting[place].drop_pages(pool);
            let shares = self.shares_prompt(&self.waiting[place]);
            self.waiting[place].expect_prompt(&mut self.prompts, shares);
            return true;
        }
        if self.prompts.reclaim(pool, true) {
            return true;
        }
        if self.running.len() > index + 1 {
            self.preempt_youngest();
            return true;
        }
        // Nothing of it is free then, but a page of the sequence's own is no longer shared.
        self.prompts.reclaim(&mut self.pool, false)
    }

    /// The running sequence that was admitted last gives up its pages and waits for its turn.
    fn preempt_youngest(&mut self) {
        let Some(mut sequence) = self.running.pop() else { return };
        self.totals.preempted += 1;
        sequence.drop_pages(&mut self.pool);
        let shares = self.shares_prompt(&sequence);
        sequence.expect_prompt(&mut self.prompts, shares);
        self.waiting.push_front(sequence);
    }

    /// Whether a sequence that has no pages begins with the pages of its prompt. One that is to run recorded experts
    /// does not: they are its own.
    pub(super) fn shares_prompt(&self, sequence: &Sequence) -> bool {
        self.forced_positions(sequence) == 0
    }

    /// Positions from the first on for which recorded experts run.
    fn forced_positions(&self, sequence: &Sequence) -> usize {
        if !self.config.force_experts {
            return 0;
        }
        sequence.request.trajectory.experts.len().checked_div(self.decoder.experts_per_row()).unwrap_or(0)
    }
}
