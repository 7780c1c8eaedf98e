//! What operators do about memory that is slower than they are.

/// What reading a value costs, in multiply-adds: what is too large for the second-level cache comes from memory at some
/// sixteenth of the speed of products, so that what few rows need costs what its size is.
pub(super) const READING: usize = 16;

/// How far ahead of its use something that is read once is asked for, bytes. Few rows are done with a value sooner than
/// memory gives the next, and many sooner than their own loads reach ahead.
pub(super) const AHEAD: usize = 8192;

/// Asks for what is at an address, which need not be one of a value.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it neither reads nor faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
