//! Runs a slice kernel in place on candle tensors on the CPU, with the processor's widest vectors.

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, WithDType, bail};
use pulp::Arch;

use crate::learner::Real;

/// An element-wise loop that rewrites `destination` from itself and N sources of the same length. Implementations
/// are `#[inline(always)]`, so that the loop is compiled once for each vector width.
pub(super) trait Kernel<const N: usize> {
    /// Names the operation in errors.
    const NAME: &'static str;

    /// The loop.
    fn run<F: Real>(&self, destination: &mut [F], sources: [&[F]; N]);
}

/// Makes an in-place tensor operation of a [`Kernel`]; tensors must be contiguous and of one type, f32 or f64.
pub(super) struct InPlace<K>(pub(super) K);

impl<K: Kernel<1>> InplaceOp2 for InPlace<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn cpu_fwd(
        &self,
        destination: &mut CpuStorage,
        layout: &Layout,
        source: &CpuStorage,
        source_layout: &Layout,
    ) -> Result<()> {
        dispatch(&self.0, destination, layout, [(source, source_layout)])
    }
}

impl<K: Kernel<2>> InplaceOp3 for InPlace<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn cpu_fwd(
        &self,
        destination: &mut CpuStorage,
        layout: &Layout,
        first: &CpuStorage,
        first_layout: &Layout,
        second: &CpuStorage,
        second_layout: &Layout,
    ) -> Result<()> {
        dispatch(&self.0, destination, layout, [(first, first_layout), (second, second_layout)])
    }
}

fn dispatch<K: Kernel<N>, const N: usize>(
    kernel: &K,
    destination: &mut CpuStorage,
    layout: &Layout,
    sources: [(&CpuStorage, &Layout); N],
) -> Result<()> {
    match destination {
        CpuStorage::F32(values) => run(kernel, values, layout, sources),
        CpuStorage::F64(values) => run(kernel, values, layout, sources),
        _ => bail!("{}: only f32 and f64 tensors are supported", K::NAME),
    }
}

fn run<F: Real + WithDType, K: Kernel<N>, const N: usize>(
    kernel: &K,
    destination: &mut [F],
    layout: &Layout,
    sources: [(&CpuStorage, &Layout); N],
) -> Result<()> {
    let mut slices = [&[] as &[F]; N];
    for (slice, (storage, source_layout)) in slices.iter_mut().zip(sources) {
        if source_layout.shape() != layout.shape() {
            bail!("{}: shapes {:?} and {:?} differ", K::NAME, layout.shape(), source_layout.shape());
        }
        *slice = contiguous(storage.as_slice::<F>()?, source_layout)?;
    }
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{}: the tensor is not contiguous", K::NAME)
    };
    let destination = &mut destination[start..end];
    Arch::new().dispatch(
        #[inline(always)]
        || kernel.run(destination, slices),
    );
    Ok(())
}

/// The part of a storage that a contiguous layout covers.
pub(super) fn contiguous<'a, F>(storage: &'a [F], layout: &Layout) -> Result<&'a [F]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage[start..end]),
        None => bail!("the tensor is not contiguous"),
    }
}
