//! Keys and values outside the pool, of a trajectory that was interrupted.

use serde::{Deserialize, Serialize};

use super::pages::{PageId, PagePool};
use super::request::pages_for;

/// Keys and values of a trajectory's first positions; they are restored bit for bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedKv {
    /// How many positions.
    positions: usize,
    /// The pages that hold them, one after another; unwritten places are zero.
    values: Vec<f32>,
}

impl SavedKv {
    /// How many positions it covers.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    pub(super) fn copy(pool: &PagePool, pages: &[PageId], positions: usize) -> Self {
        let mut values = Vec::with_capacity(pages.len() * pool.page_len());
        pages[..pages_for(positions)].iter().for_each(|&page| values.extend_from_slice(pool.values(page)));
        Self { positions, values }
    }

    /// What is wrong with it for a trajectory of `length` tokens, if anything is.
    pub(super) fn check(&self, pool: &PagePool, length: usize) -> Result<(), String> {
        if self.positions >= length {
            return Err(format!("saved keys and values of {} positions for {length} tokens", self.positions));
        }
        let expected = pages_for(self.positions) * pool.page_len();
        if self.values.len() != expected {
            return Err(format!(
                "{} saved keys and values where this model has {expected}: they are another model's",
                self.values.len()
            ));
        }
        Ok(())
    }

    /// Writes them into pages that nobody shares.
    pub(super) fn restore(&self, pool: &mut PagePool, pages: &[PageId]) {
        for (&page, values) in pages.iter().zip(self.values.chunks_exact(pool.page_len())) {
            pool.values_mut(page).copy_from_slice(values);
        }
    }
}
