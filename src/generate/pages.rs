//! The pool of pages: fixed capacity, a free list, a count of references for each page.
//!
//! A page holds the keys and values of [`KEY_TILE`] positions of one sequence in all layers, as
//! [`PagedAttention`] lays them out. Sequences with a common beginning share full pages; who wants to write into a
//! shared page gets a copy first. Invariant: a page is free if and only if nobody refers to it.

use crate::ops::{KEY_TILE, PagedAttention};

/// A page of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageId(u32);

#[derive(Debug, Default)]
struct Page {
    /// `[layers, page_len]`; empty until the page is first used, so that a large pool costs nothing before.
    values: Vec<f32>,
    references: u32,
}

/// All pages.
#[derive(Debug)]
pub(super) struct PagePool {
    /// Values of a page in one layer.
    layer_len: usize,
    layers: usize,
    pages: Vec<Page>,
    free: Vec<PageId>,
}

impl PagePool {
    pub(super) fn new(count: usize, layers: usize, attention: &PagedAttention) -> Self {
        let pages = (0..count).map(|_| Page::default()).collect();
        // The lowest ids are used first.
        let free = (0..count as u32).rev().map(PageId).collect();
        Self { layer_len: attention.page_len(), layers, pages, free }
    }

    pub(super) fn capacity(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Values of a page.
    pub(super) fn page_len(&self) -> usize {
        self.layers * self.layer_len
    }

    /// A page of zeros with one reference, so that what a page holds is told by what was written into it.
    pub(super) fn allocate(&mut self) -> Option<PageId> {
        let id = self.free.pop()?;
        let len = self.page_len();
        let page = &mut self.pages[id.0 as usize];
        if page.values.is_empty() {
            page.values = vec![0.0; len];
        } else {
            page.values.fill(0.0);
        }
        page.references = 1;
        Some(id)
    }

    /// A page with the values of another.
    pub(super) fn copy(&mut self, from: PageId) -> Option<PageId> {
        let id = self.free.pop()?;
        let mut values = std::mem::take(&mut self.pages[id.0 as usize].values);
        values.clear();
        values.extend_from_slice(self.values(from));
        self.pages[id.0 as usize] = Page { values, references: 1 };
        Some(id)
    }

    pub(super) fn retain(&mut self, id: PageId) {
        self.pages[id.0 as usize].references += 1;
    }

    pub(super) fn release(&mut self, id: PageId) {
        let page = &mut self.pages[id.0 as usize];
        page.references -= 1;
        if page.references == 0 {
            self.free.push(id);
        }
    }

    pub(super) fn release_all(&mut self, pages: &mut Vec<PageId>) {
        // Backwards, so that the first page is the next to be used.
        for page in pages.drain(..).rev() {
            self.release(page);
        }
    }

    pub(super) fn is_shared(&self, id: PageId) -> bool {
        self.pages[id.0 as usize].references > 1
    }

    /// A page's values in all layers.
    pub(super) fn values(&self, id: PageId) -> &[f32] {
        &self.pages[id.0 as usize].values
    }

    pub(super) fn values_mut(&mut self, id: PageId) -> &mut [f32] {
        debug_assert!(!self.is_shared(id), "a shared page is not written");
        &mut self.pages[id.0 as usize].values
    }

    /// A page's values in one layer.
    pub(super) fn layer(&self, id: PageId, layer: usize) -> &[f32] {
        &self.values(id)[layer * self.layer_len..][..self.layer_len]
    }

    pub(super) fn layer_mut(&mut self, id: PageId, layer: usize) -> &mut [f32] {
        let len = self.layer_len;
        &mut self.values_mut(id)[layer * len..][..len]
    }

    /// The page in which `position` lies.
    pub(super) fn page_of(pages: &[PageId], position: usize) -> PageId {
        pages[position / KEY_TILE]
    }

    /// Compares the counts with the references that there are.
    #[cfg(test)]
    pub(super) fn check<'a>(&self, holders: impl Iterator<Item = &'a [PageId]>) {
        let mut counts = vec![0; self.pages.len()];
        holders.flatten().for_each(|page| counts[page.0 as usize] += 1);
        let expected: Vec<u32> = self.pages.iter().map(|page| page.references).collect();
        assert_eq!(counts, expected, "references");
        let mut free: Vec<u32> = self.free.iter().map(|page| page.0).collect();
        free.sort_unstable();
        let unused = (0..counts.len() as u32).filter(|&page| counts[page as usize] == 0);
        assert_eq!(free, unused.collect::<Vec<_>>(), "the free list");
    }
}
