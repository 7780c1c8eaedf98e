//! Pages in host memory.

use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};

use super::{KvShape, PageId, PagePool};
use crate::generate::forward::Job;
use crate::ops::{PagedAttention, PagedQueries};

/// The values of all pages, each as [`PagedAttention`] lays out a layer's.
#[derive(Debug)]
pub(super) struct HostPages {
    attention: PagedAttention,
    layers: usize,
    /// `[layers, page_len]` each; empty until the page is first used, so that a large pool costs nothing before.
    pages: Vec<Vec<f32>>,
    /// Those that are not empty.
    made: usize,
}

impl HostPages {
    pub(super) fn new(count: usize, shape: KvShape) -> Result<Self> {
        Ok(Self {
            attention: shape.attention()?,
            layers: shape.layers,
            pages: vec![Vec::new(); count],
            made: 0,
        })
    }

    /// Bytes of the pages that were used.
    pub(super) fn bytes(&self) -> usize {
        self.made * self.layers * self.attention.page_len() * size_of::<f32>()
    }

    /// Gives their memory back; pages take it again when they are used.
    pub(super) fn give_back(&mut self) {
        self.pages.fill(Vec::new());
        self.made = 0;
    }

    /// Zeros, so that what a page holds is told by what was written into it.
    pub(super) fn clear(&mut self, page: PageId) {
        let len = self.layers * self.attention.page_len();
        let values = &mut self.pages[page.0 as usize];
        if values.is_empty() {
            *values = vec![0.0; len];
            self.made += 1;
        } else {
            values.fill(0.0);
        }
    }

    pub(super) fn copy(&mut self, from: PageId, to: PageId) {
        let mut values = std::mem::take(&mut self.pages[to.0 as usize]);
        self.made += usize::from(values.is_empty());
        values.clear();
        values.extend_from_slice(self.values(from));
        self.pages[to.0 as usize] = values;
    }

    /// A page's values in all layers.
    pub(super) fn values(&self, page: PageId) -> &[f32] {
        &self.pages[page.0 as usize]
    }

    pub(super) fn values_mut(&mut self, page: PageId) -> &mut [f32] {
        &mut self.pages[page.0 as usize]
    }

    /// A page's values in one layer.
    fn layer(&self, page: PageId, layer: usize) -> &[f32] {
        let len = self.attention.page_len();
        &self.values(page)[layer * len..][..len]
    }

    fn layer_mut(&mut self, page: PageId, layer: usize) -> &mut [f32] {
        let len = self.attention.page_len();
        &mut self.values_mut(page)[layer * len..][..len]
    }

    /// Writes the new keys and values of the rows of jobs, one after another.
    pub(super) fn write(&mut self, layer: usize, jobs: &[Job], keys: &Tensor, values: &Tensor) -> Result<()> {
        let width = keys.dim(1)? * keys.dim(2)?;
        let (keys, values) = (keys.storage_and_layout(), values.storage_and_layout());
        let (keys, values) = (slice(&keys.0, keys.1)?, slice(&values.0, values.1)?);
        let (attention, mut row) = (self.attention, 0);
        for job in jobs {
            let mut written = 0;
            while written < job.count {
                let position = job.first + written;
                let page = self.layer_mut(PagePool::page_of(&job.pages, position), layer);
                let rows = (row + written) * width..(row + job.count) * width;
                written += attention.write(page, position, &keys[rows.clone()], &values[rows])?;
            }
            row += job.count;
        }
        Ok(())
    }

    /// Attention of the queries of those rows, `[N, H, D]`.
    pub(super) fn attend(&self, layer: usize, jobs: &[Job], queries: &Tensor) -> Result<Tensor> {
        let width = queries.dim(1)? * queries.dim(2)?;
        let mut output = vec![0.0; queries.elem_count()];
        {
            let queries = queries.storage_and_layout();
            self.read(layer, jobs, slice(&queries.0, queries.1)?, width, &mut output)?;
        }
        Tensor::from_vec(output, queries.dims(), queries.device())
    }

    fn read(
        &self,
        layer: usize,
        jobs: &[Job],
        queries: &[f32],
        width: usize,
        output: &mut [f32],
    ) -> Result<()> {
        let pages: Vec<&[f32]> =
            jobs.iter().flat_map(|job| &job.pages).map(|&page| self.layer(page, layer)).collect();
        let (mut pages, mut queries, mut output) = (pages.as_slice(), queries, output);
        let mut requests = Vec::with_capacity(jobs.len());
        for job in jobs {
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
pub(in crate::generate) fn slice<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(&values[start..end]),
        _ => Err(Error::Msg("generation on the CPU works on contiguous f32 tensors".into())),
    }
}
