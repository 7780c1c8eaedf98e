//! One forward pass over rows of many sequences, against their pages.

use std::sync::Arc;

use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};

use super::pages::{PageId, PagePool};
use crate::ops::{PagedAttention, PagedQueries};
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
    pub(super) pool: &'a mut PagePool,
    pub(super) attention: PagedAttention,
    pub(super) jobs: &'a [Job],
}

impl Attend for PagedRows<'_> {
    fn attend(&mut self, layer: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let key_width = keys.dim(1)? * keys.dim(2)?;
        let width = queries.dim(1)? * queries.dim(2)?;
        {
            let (keys, values) = (keys.storage_and_layout(), values.storage_and_layout());
            self.write(layer, slice(&keys.0, keys.1)?, slice(&values.0, values.1)?, key_width)?;
        }
        let mut output = vec![0.0; queries.elem_count()];
        {
            let queries = queries.storage_and_layout();
            self.read(layer, slice(&queries.0, queries.1)?, width, &mut output)?;
        }
        Tensor::from_vec(output, queries.dims(), queries.device())
    }
}

impl PagedRows<'_> {
    fn write(&mut self, layer: usize, keys: &[f32], values: &[f32], width: usize) -> Result<()> {
        let mut row = 0;
        for job in self.jobs {
            let mut written = 0;
            while written < job.count {
                let position = job.first + written;
                let page = self.pool.layer_mut(PagePool::page_of(&job.pages, position), layer);
                let rows = (row + written) * width..(row + job.count) * width;
                written += self.attention.write(page, position, &keys[rows.clone()], &values[rows])?;
            }
            row += job.count;
        }
        Ok(())
    }

    fn read(&self, layer: usize, queries: &[f32], width: usize, output: &mut [f32]) -> Result<()> {
        let pages: Vec<&[f32]> =
            self.jobs.iter().flat_map(|job| &job.pages).map(|&page| self.pool.layer(page, layer)).collect();
        let (mut pages, mut queries, mut output) = (pages.as_slice(), queries, output);
        let mut requests = Vec::with_capacity(self.jobs.len());
        for job in self.jobs {
            let (own_pages, other_pages) = pages.split_at(job.pages.len());
            let (own_queries, other_queries) = queries.split_at(job.count * width);
            let (own_output, other_output) = output.split_at_mut(job.count * width);
            requests.push(PagedQueries {
                queries: own_queries,
                first_position: job.first,
                pages: own_pages,
                output: own_output,
            });
            (pages, queries, output) = (other_pages, other_queries, other_output);
        }
        self.attention.attend(&mut requests)
    }
}

/// The values of a contiguous `f32` tensor in host memory.
pub(super) fn slice<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(&values[start..end]),
        _ => Err(Error::Msg("generation works on contiguous f32 tensors in host memory".into())),
    }
}
