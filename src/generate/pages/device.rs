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
    device: Device,
    dtype: DType,
    sizes: PageSizes,
    /// Absent while their memory is given back.
    pages: Option<Pages>,
    /// How host memory lays out a layer of a page.
    attention: PagedAttention,
    scale: f64,
    pending: Vec<Pending>,
    /// The forward pass that is going on.
    pass: Option<PagedPass>,
}

impl std::fmt::Debug for DevicePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevicePages").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl DevicePages {
    pub(super) fn new(count: usize, shape: KvShape, device: &Device, dtype: DType) -> Result<Self> {
        let KvShape { layers, heads, kv_heads, head_size, scale } = shape;
        let page_rows = KEY_TILE;
        let sizes = PageSizes { pages: count, layers, page_rows, heads, kv_heads, width: head_size };
        let attention = shape.attention()?;
        let device = device.clone();
        Ok(Self { device, dtype, sizes, pages: None, attention, scale, pending: Vec::new(), pass: None })
    }

    /// Bytes of device memory.
    pub(super) fn bytes(&self) -> usize {
        let bytes = self.sizes.pages * self.sizes.page_len() * self.dtype.size_in_bytes();
        if self.pages.is_some() { bytes } else { 0 }
    }

    pub(super) fn take(&mut self) -> Result<()> {
        if self.pages.is_none() {
            self.pages = Some(Pages::new(&self.device, self.dtype, self.sizes)?);
        }
        Ok(())
    }

    /// What is still to be done to pages was for those who have given them up.
    pub(super) fn give_back(&mut self) {
        self.pending.clear();
        (self.pages, self.pass) = (None, None);
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
                Pending::Copy { from, to } => taken(&mut self.pages)?.copy(from.0, to.0)?,
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
        let (written, half) = (taken(&mut self.pages)?.read(page.0)?, self.half());
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
        taken(&mut self.pages)?.put(page.0, &rows)
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
        self.pass = Some(taken(&mut self.pages)?.pass(&requests, row)?);
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
        let pages = taken(&mut self.pages)?;
        pages.write(layer, keys, values, pass)?;
        pages.attend(layer, queries, pass, self.scale)
    }
}

fn taken(pages: &mut Option<Pages>) -> Result<&mut Pages> {
    pages.as_mut().ok_or_else(|| Error::Msg("pages on a device: their memory is given back".into()).bt())
}
