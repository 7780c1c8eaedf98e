//! Pages on a device in a build that has no kernels: there are none.

use candle_core::{DType, Device, Error, Result, Tensor};

use super::{KvShape, PageId};
use crate::generate::forward::Job;

/// Never made.
#[derive(Debug)]
pub(super) enum DevicePages {}

impl DevicePages {
    pub(super) fn new(_: usize, _: KvShape, device: &Device, _: DType) -> Result<Self> {
        Err(Error::Msg(format!("this build has no kernels for a KV cache on {device:?}: build with `cuda`")))
    }

    pub(super) fn bytes(&self) -> usize {
        match *self {}
    }

    pub(super) fn take(&mut self) -> Result<()> {
        match *self {}
    }

    pub(super) fn give_back(&mut self) {
        match *self {}
    }

    pub(super) fn copy(&mut self, _: PageId, _: PageId) {
        match *self {}
    }

    pub(super) fn save(&mut self, _: PageId, _: usize, _: &mut Vec<f32>) -> Result<()> {
        match *self {}
    }

    pub(super) fn restore(&mut self, _: PageId, _: &[f32]) {
        match *self {}
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        match *self {}
    }

    pub(super) fn begin_pass(&mut self, _: &[Job]) -> Result<()> {
        match *self {}
    }

    pub(super) fn attend(&mut self, _: usize, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Tensor> {
        match *self {}
    }
}
