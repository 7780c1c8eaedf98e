//! Pages in host memory.

use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};

use super::{KvShape, PageId};
use crate::generate::forward::Job;
use crate::ops::{KEY_TILE, Page, PagedAttention, PagedRows};

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

    /// Writes the new keys and values of the rows of jobs, one after another, `[N, G, D]`; attention of their queries
    /// `[N, H, D]`.
    pub(super) fn attend(
        &mut self,
        layer: usize,
        jobs: &[Job],
        [queries, keys, values]: [&Tensor; 3],
    ) -> Result<Tensor> {
        let mut output = vec![0.0; queries.elem_count()];
        {
            let (q, k, v) =
                (queries.storage_and_layout(), keys.storage_and_layout(), values.storage_and_layout());
            let (q, k, v) = (slice(&q.0, q.1)?, slice(&k.0, k.1)?, slice(&v.0, v.1)?);
            let width = queries.dim(1)? * queries.dim(2)?;
            let kv_width = keys.dim(1)? * keys.dim(2)?;
            let attention = self.attention;
            let (mut output, mut row) = (output.as_mut_slice(), 0);
            let mut requests = Vec::with_capacity(jobs.len());
            for (job, pages) in jobs.iter().zip(self.views(layer, jobs)) {
                let rows = row..row + job.count;
                let own_output;
                (own_output, output) = output.split_at_mut(job.count * width);
                requests.push(PagedRows {
                    queries: &q[rows.start * width..rows.end * width],
                    keys: &k[rows.start * kv_width..rows.end * kv_width],
                    values: &v[rows.start * kv_width..rows.end * kv_width],
                    first_position: job.first,
                    pages,
                    output: own_output,
                });
                row = rows.end;
            }
            attention.attend(requests)?;
        }
        Tensor::from_vec(output, queries.dims(), queries.device())
    }

    /// The values of each job's pages in one layer.
    fn views(&mut self, layer: usize, jobs: &[Job]) -> Vec<Vec<Page<'_>>> {
        let mut uses = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            let written = job.first / KEY_TILE;
            uses.extend(
                job.pages
                    .iter()
                    .enumerate()
                    .map(|(place, page)| (page.0 as usize, index, place, place >= written)),
            );
        }
        uses.sort_unstable();
        let len = self.attention.page_len();
        let mut views: Vec<Vec<Page>> =
            jobs.iter().map(|job| job.pages.iter().map(|_| Page::Shared(&[])).collect()).collect();
        let (mut rest, mut before) = (self.pages.as_mut_slice(), 0);
        for uses in uses.chunk_by(|a, b| a.0 == b.0) {
            let id = uses[0].0;
            let page;
            (page, rest) = rest[id - before..].split_at_mut(1);
            before = id + 1;
            let page = &mut page[0][layer * len..][..len];
            match *uses {
                [(_, job, place, true)] => views[job][place] = Page::Own(page),
                _ => uses.iter().for_each(|&(_, job, place, _)| views[job][place] = Page::Shared(page)),
            }
        }
        views
    }
}

/// The values of a contiguous `f32` tensor in host memory.
pub(in crate::generate) fn slice<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(&values[start..end]),
        _ => Err(Error::Msg("generation on the CPU works on contiguous f32 tensors".into())),
    }
}
