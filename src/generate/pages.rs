//! The pool of pages: fixed capacity, a free list, a count of references for each page.
//!
//! A page holds the keys and values of [`crate::ops::KEY_TILE`] positions of one sequence in all layers. Sequences with
//! a common beginning share full pages; who wants to write into a shared page gets a copy first. Where the values lie
//! is the part of a [`PageStore`]. Invariants: a page is free if and only if nobody refers to it; planning never fails
//! and never waits for a device, since what it has done to pages is carried out before the next forward pass; while
//! the memory is given back, all pages are free.

#[cfg(not(any(feature = "cuda", feature = "kernel-emulation")))]
mod absent;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
mod device;
mod host;

use candle_core::{DType, Device, Result, Tensor};

use super::forward::Job;
use crate::ops::PagedAttention;
use crate::policy::DecoderConfig;
#[cfg(not(any(feature = "cuda", feature = "kernel-emulation")))]
use absent::DevicePages;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
pub(super) use device::DevicePages;
use host::HostPages;
pub(super) use host::slice;

/// A page of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageId(u32);

/// What a model's keys and values are.
#[derive(Debug, Clone, Copy)]
pub(super) struct KvShape {
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    /// Values of a head.
    pub(super) head_size: usize,
    /// Factor of the scores.
    pub(super) scale: f64,
}

impl KvShape {
    pub(super) fn of(config: &DecoderConfig) -> Self {
        let DecoderConfig { layers, heads, kv_heads, head_size, .. } = *config;
        Self { layers, heads, kv_heads, head_size, scale: config.attention_scale() }
    }

    /// Attention of one layer in host memory, which says how a page is laid out there.
    ///
    /// # Errors
    /// When heads do not fit each other.
    pub(super) fn attention(&self) -> Result<PagedAttention> {
        PagedAttention::new(self.heads, self.kv_heads, self.head_size, self.scale)
    }
}

/// Where the values of pages lie.
#[derive(Debug)]
enum PageStore {
    /// In host memory, as [`PagedAttention`] lays them out, in f32.
    Host(HostPages),
    /// In the memory of a device, for its kernels.
    Device(Box<DevicePages>),
}

/// All pages.
#[derive(Debug)]
pub(super) struct PagePool {
    store: PageStore,
    /// Values of a page.
    page_len: usize,
    /// Of each page.
    references: Vec<u32>,
    free: Vec<PageId>,
    /// Whether the next attempt to take memory fails.
    #[cfg(test)]
    pub(super) fails: bool,
}

impl PagePool {
    /// `count` free pages on a device, without memory yet.
    ///
    /// # Errors
    /// When the device has no kernels for such heads.
    pub(super) fn new(count: usize, shape: KvShape, device: &Device, dtype: DType) -> Result<Self> {
        let store = if device.is_cpu() {
            PageStore::Host(HostPages::new(count, shape)?)
        } else {
            PageStore::Device(Box::new(DevicePages::new(count, shape, device, dtype)?))
        };
        Self::with_store(count, shape, store)
    }

    /// The same with the pages of a device, whose kernels are emulated on the CPU.
    #[cfg(all(test, feature = "kernel-emulation"))]
    pub(super) fn emulated(count: usize, shape: KvShape) -> Result<Self> {
        let mut pages = DevicePages::new(count, shape, &Device::Cpu, DType::F32)?;
        pages.take()?;
        Self::with_store(count, shape, PageStore::Device(Box::new(pages)))
    }

    fn with_store(count: usize, shape: KvShape, store: PageStore) -> Result<Self> {
        // The lowest ids are used first.
        let free = (0..count as u32).rev().map(PageId).collect();
        let page_len = shape.layers * shape.attention()?.page_len();
        Ok(Self {
            store,
            page_len,
            references: vec![0; count],
            free,
            #[cfg(test)]
            fails: false,
        })
    }

    /// Whether the pages are a device's, so that kernels work on them.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.store, PageStore::Device(_))
    }

    /// Bytes of memory that the pages have now.
    pub(super) fn bytes(&self) -> usize {
        match &self.store {
            PageStore::Host(pages) => pages.bytes(),
            PageStore::Device(pages) => pages.bytes(),
        }
    }

    /// Takes the memory of a device's pages, unless it is taken. In host memory each page takes its own when it is used.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub(super) fn take_memory(&mut self) -> Result<()> {
        #[cfg(test)]
        if std::mem::take(&mut self.fails) {
            return Err(candle_core::Error::Msg("out of memory".into()));
        }
        match &mut self.store {
            PageStore::Host(_) => Ok(()),
            PageStore::Device(pages) => pages.take(),
        }
    }

    /// Gives the memory of all pages back, which nobody refers to.
    pub(super) fn give_back_memory(&mut self) {
        debug_assert_eq!(self.free(), self.capacity(), "a page with values");
        match &mut self.store {
            PageStore::Host(pages) => pages.give_back(),
            PageStore::Device(pages) => pages.give_back(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.references.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Values of a page in all layers.
    pub(super) fn page_len(&self) -> usize {
        self.page_len
    }

    /// A page with one reference that nothing has been written into.
    pub(super) fn allocate(&mut self) -> Option<PageId> {
        let id = self.free.pop()?;
        if let PageStore::Host(pages) = &mut self.store {
            pages.clear(id);
        }
        self.references[id.0 as usize] = 1;
        Some(id)
    }

    /// A page with the values of another.
    pub(super) fn copy(&mut self, from: PageId) -> Option<PageId> {
        let id = self.free.pop()?;
        match &mut self.store {
            PageStore::Host(pages) => pages.copy(from, id),
            PageStore::Device(pages) => pages.copy(from, id),
        }
        self.references[id.0 as usize] = 1;
        Some(id)
    }

    pub(super) fn retain(&mut self, id: PageId) {
        self.references[id.0 as usize] += 1;
    }

    pub(super) fn release(&mut self, id: PageId) {
        let references = &mut self.references[id.0 as usize];
        *references -= 1;
        if *references == 0 {
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
        self.references[id.0 as usize] > 1
    }

    /// Appends a page's values in all layers as host memory has them; places behind its first `positions` are zero.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn save(&mut self, id: PageId, positions: usize, to: &mut Vec<f32>) -> Result<()> {
        match &mut self.store {
            PageStore::Host(pages) => {
                to.extend_from_slice(pages.values(id));
                Ok(())
            }
            PageStore::Device(pages) => pages.save(id, positions, to),
        }
    }

    /// Gives a page that nobody shares what [`Self::save`] gave.
    pub(super) fn restore(&mut self, id: PageId, values: &[f32]) {
        debug_assert!(!self.is_shared(id), "a shared page is not written");
        match &mut self.store {
            PageStore::Host(pages) => pages.values_mut(id).copy_from_slice(values),
            PageStore::Device(pages) => pages.restore(id, values),
        }
    }

    /// Carries out what was asked of a device's pages since the last time.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn flush(&mut self) -> Result<()> {
        match &mut self.store {
            PageStore::Host(_) => Ok(()),
            PageStore::Device(pages) => pages.flush(),
        }
    }

    /// A forward pass over the rows of some jobs, one after another, begins.
    ///
    /// # Errors
    /// When a device fails.
    pub(super) fn begin_pass(&mut self, jobs: &[Job]) -> Result<()> {
        match &mut self.store {
            PageStore::Host(_) => Ok(()),
            PageStore::Device(pages) => pages.begin_pass(jobs),
        }
    }

    /// Writes the new keys and values `[N, G, D]` of the pass's rows in one layer, and attends with their queries
    /// `[N, H, D]`.
    ///
    /// # Errors
    /// When a shape does not fit, or a device fails.
    pub(super) fn attend(&mut self, layer: usize, jobs: &[Job], inputs: [&Tensor; 3]) -> Result<Tensor> {
        match &mut self.store {
            PageStore::Host(pages) => pages.attend(layer, jobs, inputs),
            PageStore::Device(pages) => {
                let [queries, keys, values] = inputs;
                pages.attend(layer, queries, keys, values)
            }
        }
    }

    /// Compares the counts with the references that there are.
    #[cfg(test)]
    pub(super) fn check<'a>(&self, holders: impl Iterator<Item = &'a [PageId]>) {
        let mut counts = vec![0; self.references.len()];
        holders.flatten().for_each(|page| counts[page.0 as usize] += 1);
        assert_eq!(counts, self.references, "references");
        let mut free: Vec<u32> = self.free.iter().map(|page| page.0).collect();
        free.sort_unstable();
        let unused = (0..counts.len() as u32).filter(|&page| counts[page as usize] == 0);
        assert_eq!(free, unused.collect::<Vec<_>>(), "the free list");
    }
}
