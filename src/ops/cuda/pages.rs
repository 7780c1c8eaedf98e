//! Keys and values of a generator's cache on a device: pages for `attention_paged`, written by `scatter_rows`.
//!
//! A page holds the keys and values of `page_rows` positions of one sequence in all layers, one block after another:
//! `[layers, 2, page_rows, G, D]`, keys before values. To copy, save or restore a page therefore moves one piece of
//! memory. A kernel that works on one layer gets the memory from that layer's block of the first page on, and pages
//! numbered in blocks, so that all layers of a forward pass share one list of pages.

use candle_core::{DType, Device, Result, Tensor};

use super::super::storage::refuse;
use super::attention::{PagedPlan, Request, paged};
use super::embedding::scatter;
use super::launch::Argument;
use super::view::{Array, View, lock};

/// Sizes of a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSizes {
    pub(crate) pages: usize,
    pub(crate) layers: usize,
    /// Positions of a page.
    pub(crate) page_rows: usize,
    /// Heads of queries, of keys and values, and values of a head.
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) width: usize,
}

impl PageSizes {
    /// Blocks of `page_rows` positions in a page.
    fn blocks(&self) -> usize {
        2 * self.layers
    }

    /// Values of a page.
    pub(crate) fn page_len(&self) -> usize {
        self.blocks() * self.page_rows * self.kv_heads * self.width
    }
}

/// All pages.
pub(crate) struct Pages {
    sizes: PageSizes,
    device: Device,
    dtype: DType,
    /// `[pages · layers · 2, page_rows, G, D]`.
    values: Array,
}

/// What one forward pass does with the pages, on the device.
pub(crate) struct PagedPass {
    plan: PagedPlan,
    /// Row of the cache, in units of `[G, D]`, for each new row's keys and values in each layer: `[layers · 2, N]`.
    places: Tensor,
}

impl Pages {
    /// Pages of zeros.
    pub(crate) fn new(device: &Device, dtype: DType, sizes: PageSizes) -> Result<Self> {
        let blocks = sizes.pages * sizes.blocks();
        if blocks * sizes.page_rows > i32::MAX as usize {
            return refuse("pages", format!("{} pages are more than can be addressed", sizes.pages));
        }
        let shape = (blocks, sizes.page_rows, sizes.kv_heads, sizes.width);
        Ok(Self { sizes, device: device.clone(), dtype, values: Array::zeros(device, dtype, shape)? })
    }

    /// A pass over `rows` rows of queries: `requests` name all of them, and the pages of their sequences.
    pub(crate) fn pass(&self, requests: &[Request], rows: usize) -> Result<PagedPass> {
        let PageSizes { pages, page_rows, heads, kv_heads, .. } = self.sizes;
        let blocks = self.sizes.blocks();
        let (mut places, mut in_blocks) = (vec![0; blocks * rows], Vec::with_capacity(requests.len()));
        for request in requests {
            if let Some(page) = request.pages.iter().find(|&&page| page as usize >= pages) {
                return refuse("pages", format!("page {page} of {pages}"));
            }
            for (row, position) in request.rows.clone().zip(request.first_position..) {
                let Some(&page) = request.pages.get(position / page_rows) else {
                    return refuse("pages", format!("position {position} of {request:?} has no page"));
                };
                for block in 0..blocks {
                    let first = (page as usize * blocks + block) * page_rows;
                    places[block * rows + row] = (first + position % page_rows) as u32;
                }
            }
            let numbers = request.pages.iter().map(|&page| page * blocks as u32).collect();
            in_blocks.push(Request { pages: numbers, ..request.clone() });
        }
        Ok(PagedPass {
            plan: PagedPlan::new(&in_blocks, rows, heads / kv_heads, page_rows, &self.device)?,
            places: Tensor::from_vec(places, (blocks, rows), &self.device)?,
        })
    }

    /// Writes the new rows' keys and values `[N, G, D]` in one layer.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        keys: &Tensor,
        values: &Tensor,
        pass: &PagedPass,
    ) -> Result<()> {
        let all_rows = self.sizes.pages * self.sizes.blocks() * self.sizes.page_rows;
        for (kind, new) in [keys, values].into_iter().enumerate() {
            if new.dtype() != self.dtype {
                return refuse("pages", format!("{:?} rows for pages of {:?}", new.dtype(), self.dtype));
            }
            let (new, places) = (new.contiguous()?.flatten(1, 2)?, pass.places.get(2 * layer + kind)?);
            let (new, places) = (lock(&new), lock(&places));
            scatter(&new.view()?, &places.view()?, Argument::Write(&mut self.values), all_rows)?;
        }
        Ok(())
    }

    /// Attention of the new rows' queries `[N, H, D]` in one layer to all that their sequences have there.
    pub(crate) fn attend(
        &self,
        layer: usize,
        queries: &Tensor,
        pass: &PagedPass,
        scale: f64,
    ) -> Result<Tensor> {
        let queries = queries.contiguous()?;
        let queries = lock(&queries);
        let [keys, values] = [2 * layer, 2 * layer + 1].map(|block| self.block_onwards(block));
        Ok(paged(&queries.view()?, &keys?, &values?, &pass.plan, scale)?.into_tensor())
    }

    /// The memory from a block of the first page to the same one of the last.
    fn block_onwards(&self, block: usize) -> Result<View<'_>> {
        let count = (self.sizes.pages - 1) * self.sizes.blocks() + 1;
        self.values.view().narrow(block, count)
    }

    /// Copies a page over another one.
    pub(crate) fn copy(&mut self, from: u32, to: u32) -> Result<()> {
        let blocks = self.sizes.blocks();
        let page = self.values.view().narrow(from as usize * blocks, blocks)?.copied()?;
        self.values.write(to as usize * self.sizes.page_len(), &page)
    }

    /// A page's values in host memory, `[layers, 2, page_rows, G, D]`.
    pub(crate) fn read(&self, page: u32) -> Result<Vec<f32>> {
        let blocks = self.sizes.blocks();
        let page = self.values.view().narrow(page as usize * blocks, blocks)?.copied()?;
        page.into_tensor().to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }

    /// Gives a page the values that [`Self::read`] gave.
    pub(crate) fn put(&mut self, page: u32, values: &[f32]) -> Result<()> {
        let len = self.sizes.page_len();
        let values = Tensor::from_slice(values, len, &self.device)?.to_dtype(self.dtype)?;
        self.values.write(page as usize * len, &Array::copy_of(&values)?)
    }
}
