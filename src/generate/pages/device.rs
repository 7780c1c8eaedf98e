//! Pages in the memory of a device, which kernels write and read.
//!
//! What planning asks for (copies, restored values) is noted and carried out in order before the next forward pass or
//! save, since planning cannot fail. Saved values are laid out as in host memory, in f32: a trajectory may go on on
//! another device, with the bits that it had. A page that is handed out anew still holds what it held: attention never
//! looks behind the rows that were written.

use candle_core::{DType, Device, Error, Result, Tensor};

use super::{KvShape, PageId};
use crate::generate::forward::Job;
use crate::ops::cuda::attention::Request;
use crate::ops::cuda::pages::{PageSizes, PagedPass, Pages};
use crate::ops::{KEY_TILE, PagedAttention};

/// What is still to be done to pages.
#[derive(Debug)]
enum Pending {
    Copy { from: PageId, to: PageId },
    Restore { page: PageId, values: Vec<f32> },
}

/// The values of all pages.
pub(in crate::generate) struct DevicePages {
    pages: Pages,
    /// How host memory lays out a layer of a page.
    attention: PagedAttention,
    scale: f64,
    pending: Vec<Pending>,
    /// The forward pass that is going on.
    pass: Option<PagedPass>,
}

impl std::fmt::Debug for DevicePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevicePages").field("sizes", self.pages.sizes()).finish_non_exhaustive()
    }
}

impl DevicePages {
    pub(super) fn new(count: usize, shape: KvShape, device: &Device, dtype: DType) -> Result<Self> {
        let KvShape { layers, heads, kv_heads, head_size, scale } = shape;
        let page_rows = KEY_TILE;
        let sizes = PageSizes { pages: count, layers, page_rows, heads, kv_heads, width: head_size };
        let pages = Pages::new(device, dtype, sizes)?;
        Ok(Self { pages, attention: shape.attention()?, scale, pending: Vec::new(), pass: None })
    }

    pub(super) fn copy(&mut self, from: PageId, to: PageId) {
        self.pending.push(Pending::Copy { from, to });
    }

    pub(super) fn restore(&mut self, page: PageId, values: &[f32]) {
        self.pending.push(Pending::Restore { page, values: values.to_vec() });
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Copy { from, to } => self.pages.copy(from.0, to.0)?,
                Pending::Restore { page, values } => self.put(page, &values)?,
            }
        }
        Ok(())
    }

    /// Values of the keys (or of the values) of a layer in a page.
    fn half(&self) -> usize {
        self.attention.page_len() / 2
    }

    pub(super) fn save(&mut self, page: PageId, positions: usize, to: &mut Vec<f32>) -> Result<()> {
        self.flush()?;
        let (written, half) = (self.pages.read(page.0)?, self.half());
        let rows = positions.min(KEY_TILE) * half / KEY_TILE;
        for layer in written.chunks_exact(2 * half) {
            let (keys, values) = layer.split_at(half);
            let start = to.len();
            to.resize(start + 2 * half, 0.0);
            self.attention.write(&mut to[start..], 0, &keys[..rows], &values[..rows])?;
        }
        Ok(())
    }

    /// Gives a page the values that host memory has of it.
    fn put(&mut self, page: PageId, values: &[f32]) -> Result<()> {
        let mut rows = Vec::with_capacity(values.len());
        for layer in values.chunks_exact(self.attention.page_len()) {
            let [keys, values] = self.attention.read(layer, KEY_TILE)?;
            rows.extend(keys);
            rows.extend(values);
        }
        self.pages.put(page.0, &rows)
    }

    pub(super) fn begin_pass(&mut self, jobs: &[Job]) -> Result<()> {
        let (mut requests, mut row) = (Vec::with_capacity(jobs.len()), 0);
        for job in jobs {
            requests.push(Request {
                first_position: job.first,
                rows: row..row + job.count,
                pages: job.pages.iter().map(|page| page.0).collect(),
            });
            row += job.count;
        }
        self.pass = Some(self.pages.pass(&requests, row)?);
        Ok(())
    }

    pub(super) fn attend(
        &mut self,
        layer: usize,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<Tensor> {
        let Some(pass) = &self.pass else {
            return Err(Error::Msg("pages on a device: attention outside a forward pass".into()).bt());
        };
        self.pages.write(layer, keys, values, pass)?;
        self.pages.attend(layer, queries, pass, self.scale)
    }
}
