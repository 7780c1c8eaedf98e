//! One forward pass over rows of many sequences, against their pages.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::pages::{PageId, PagePool};
use crate::policy::Attend;

/// Whose rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// The running sequence of this index.
    Sequence(usize),
    /// The shared part of a prompt.
    Prompt(Arc<[u32]>),
}

/// Rows of one holder that a step computes.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) holder: Holder,
    /// Position of the first row.
    pub(super) first: usize,
    /// Rows.
    pub(super) count: usize,
    /// Pages of all positions up to the last row's; those of the rows are not shared.
    pub(super) pages: Vec<PageId>,
    /// Whether recorded experts run.
    pub(super) forced: bool,
}

/// Attention of the rows of jobs, one after another, whose new keys and values it writes into their pages.
pub(super) struct PagedRows<'a> {
    pool: &'a mut PagePool,
    jobs: &'a [Job],
}

impl<'a> PagedRows<'a> {
    /// Attention in one forward pass.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn new(pool: &'a mut PagePool, jobs: &'a [Job]) -> Result<Self> {
        pool.begin_pass(jobs)?;
        Ok(Self { pool, jobs })
    }
}

impl Attend for PagedRows<'_> {
    fn attend(&mut self, layer: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        self.pool.attend(layer, self.jobs, [queries, keys, values])
    }
}
