//! Runs a slice kernel in place on candle tensors on the CPU, with the processor's widest vectors, on the threads of
//! [`crate::ops::with_threads`].

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, WithDType, bail};
use pulp::Arch;

use crate::learner::Real;
use crate::ops::threads;

/// Values that are worth a second thread. Tests share small work too.
const SHARING_THRESHOLD: usize = if cfg!(test) { 1 << 8 } else { 1 << 19 };

/// How many of `count` values each of the threads takes.
fn share(count: usize) -> usize {
    let threads = if count < SHARING_THRESHOLD { 1 } else { threads().max(1) };
    count.div_ceil(threads).next_multiple_of(SHARING_THRESHOLD.min(1 << 14))
}

/// An element-wise loop that rewrites `destination` from itself and N sources of the same length. Implementations
/// are `#[inline(always)]`, so that the loop is compiled once for each vector width.
pub(super) trait Kernel<const N: usize>: Sync {
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
    let share = share(destination.len());
    let run = |destination: &mut [F], slices| {
        Arch::new().dispatch(
            #[inline(always)]
            || kernel.run(destination, slices),
        );
    };
    if share >= destination.len() {
        run(destination, slices);
        return Ok(());
    }
    rayon::scope(|scope| {
        for (index, destination) in destination.chunks_mut(share).enumerate() {
            let place = index * share..index * share + destination.len();
            let slices = slices.map(|slice| &slice[place.clone()]);
            scope.spawn(move |_| run(destination, slices));
        }
    });
    Ok(())
}

/// The part of a storage that a contiguous layout covers.
pub(super) fn contiguous<'a, F>(storage: &'a [F], layout: &Layout) -> Result<&'a [F]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage[start..end]),
        None => bail!("the tensor is not contiguous"),
    }
}
