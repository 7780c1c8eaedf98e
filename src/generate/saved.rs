//! Keys and values outside the pool, of a trajectory that was interrupted: in host memory, laid out in one way wherever
//! the pool's pages lie, so that it may go on on another device.

use candle_core::Result;
use serde::{Deserialize, Serialize};

use super::pages::{PageId, PagePool};
use super::request::pages_for;
use crate::ops::KEY_TILE;

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

    /// Of the first `positions` in `pages`.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn copy(pool: &mut PagePool, pages: &[PageId], positions: usize) -> Result<Self> {
        let pages = &pages[..pages_for(positions)];
        let mut values = Vec::with_capacity(pages.len() * pool.page_len());
        for (index, &page) in pages.iter().enumerate() {
            pool.save(page, positions - index * KEY_TILE, &mut values)?;
        }
        Ok(Self { positions, values })
    }

    /// What is wrong with it for a trajectory of `length` tokens, if anything is.
    pub(super) fn check(&self, pool: &PagePool, length: usize) -> std::result::Result<(), String> {
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
            pool.restore(page, values);
        }
    }
}
