//! How many threads the operators of the calling thread may use.
//!
//! The default is one: a rollout actor is one thread, and small networks lose to the cost of sharing. A learner
//! owns a rayon pool and runs its update inside [`with_threads`]; every operator called there, on this thread,
//! shares its work over that pool. The count changes speed only: forward results are the same bits for any count.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use gemm::Parallelism;
use num_traits::Zero;
use rayon::ThreadPool;

thread_local! {
    static THREADS: Cell<usize> = const { Cell::new(1) };
}

/// Puts the previous count back, also when the closure panics.
struct Restore(usize);

impl Drop for Restore {
    fn drop(&mut self) {
        THREADS.set(self.0);
    }
}

fn scoped<R>(count: usize, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(THREADS.replace(count));
    work()
}

/// Runs `work` with its operators sharing the threads of `pool` (a pool of one thread: the calling thread alone).
///
/// `work` itself runs on one thread of the pool, so it must be `Send`, as must its result.
pub fn with_threads<R: Send>(pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    let count = pool.current_num_threads();
    if count <= 1 { scoped(1, work) } else { pool.install(|| scoped(count, work)) }
}

/// Runs `work` with its operators on this thread alone: for parts of work that is already shared.
pub(super) fn alone<R>(work: impl FnOnce() -> R) -> R {
    scoped(1, work)
}

/// Threads that operators called on this thread use.
#[must_use]
pub fn threads() -> usize {
    THREADS.get()
}

/// The same policy in the words of the `gemm` crate.
pub(super) fn parallelism() -> Parallelism {
    match threads() {
        0 | 1 => Parallelism::None,
        count => Parallelism::Rayon(count),
    }
}

/// Work below this many multiply-adds (some 40 µs) is done by the calling thread alone: waking another one takes as
/// long. Tests share small work too, else those that compare numbers of threads would compare nothing.
const SHARING_THRESHOLD: usize = if cfg!(test) { 1 << 8 } else { 1 << 22 };

/// Threads that work of so many multiply-adds is worth.
pub(super) fn worthwhile(cost: usize) -> usize {
    if cost < SHARING_THRESHOLD { 1 } else { threads().max(1) }
}

/// Splits `0..count` into one run for each of `threads` threads and hands the runs to `work`.
pub(super) fn over_parts(count: usize, threads: usize, work: impl Fn(Range<usize>) + Sync) {
    let share = count.div_ceil(threads.clamp(1, count.max(1)));
    if share >= count {
        work(0..count);
        return;
    }
    rayon::scope(|scope| {
        for first in (0..count).step_by(share) {
            let work = &work;
            scope.spawn(move |_| work(first..count.min(first + share)));
        }
    });
}

/// Splits `rows` rows of `width` outputs into one run of whole rows for each thread and hands each run to `work`
/// with the index of its first row. `cost` is the work in multiply-adds; a small one is not shared.
pub(super) fn over_rows<T: Send>(
    output: &mut [T],
    width: usize,
    cost: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let rows = output.len().checked_div(width).unwrap_or(0);
    let output = Output::new(output, width);
    over_parts(rows, worthwhile(cost), |rows| {
        // SAFETY: the parts do not overlap.
        work(rows.start, unsafe { output.whole(rows) });
    });
}

/// Zeros from this many on are written by several threads.
const MANY_ZEROS: usize = if cfg!(test) { 1 << 8 } else { 1 << 19 };

/// `count` zeros: written on all threads when they are many, so that none waits while another one writes megabytes.
pub(super) fn zeros<T: Zero + Copy + Send>(count: usize) -> Vec<T> {
    if count < MANY_ZEROS || threads() <= 1 {
        return vec![T::zero(); count];
    }
    let mut values = Vec::with_capacity(count);
    let room = &mut values.spare_capacity_mut()[..count];
    over_rows(room, 1, SHARING_THRESHOLD, |_, room| room.fill(MaybeUninit::new(T::zero())));
    // SAFETY: `over_rows` hands out every one of the `count` places, and each was written.
    unsafe { values.set_len(count) };
    values
}

/// A row-major matrix whose pieces several threads write at a time.
pub(super) struct Output<'a, T> {
    start: *mut T,
    len: usize,
    width: usize,
    values: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through unsafe functions whose callers promise not to touch a value from two threads.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a, T> Output<'a, T> {
    /// A matrix with rows of `width` values.
    pub(super) fn new(values: &'a mut [T], width: usize) -> Self {
        Self { start: values.as_mut_ptr(), len: values.len(), width, values: PhantomData }
    }

    /// Some whole rows.
    ///
    /// # Safety
    /// No other piece that holds one of these values may be alive.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn whole(&self, rows: Range<usize>) -> &mut [T] {
        let (start, len) = (rows.start * self.width, rows.len() * self.width);
        assert!(start + len <= self.len, "rows {rows:?} are there");
        // SAFETY: in bounds as just checked, from a slice that is borrowed for 'a; unique by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }

    /// Some columns of a row.
    ///
    /// # Safety
    /// No other piece that holds one of these values may be alive.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn piece(&self, row: usize, columns: Range<usize>) -> &mut [T] {
        let start = row * self.width + columns.start;
        assert!(columns.end <= self.width && start + columns.len() <= self.len, "the piece is there");
        // SAFETY: in bounds as just checked, from a slice that is borrowed for 'a; unique by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), columns.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_holds_inside_and_is_restored_after_a_panic() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        assert_eq!((threads(), with_threads(&pool, threads), threads()), (1, 2, 1));
        let panicked = std::panic::catch_unwind(|| scoped(3, || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(threads(), 1);
    }

    #[test]
    fn every_one_of_many_zeros_is_written() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        // What was there before must not show.
        drop(vec![7.0_f32; 2 * MANY_ZEROS + 1]);
        for count in [0, 1, MANY_ZEROS, 2 * MANY_ZEROS + 1] {
            assert_eq!(with_threads(&pool, || zeros::<f32>(count)), vec![0.0; count]);
        }
    }

    #[test]
    fn rows_are_split_whole_and_each_is_visited_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut output = vec![0_usize; 7 * 3];
        with_threads(&pool, || {
            over_rows(&mut output, 3, usize::MAX, |first, run| {
                assert_eq!(run.len() % 3, 0);
                for (i, row) in run.chunks_mut(3).enumerate() {
                    row.fill(first + i + 1);
                }
            });
        });
        let expected: Vec<usize> = (0..21).map(|i| i / 3 + 1).collect();
        assert_eq!(output, expected);
    }
}
