//! How many threads the operators of the calling thread may use.
//!
//! The default is one: a rollout actor is one thread, and small networks lose to the cost of sharing. A learner
//! owns a rayon pool and runs its update inside [`with_threads`]; every operator called there, on this thread,
//! shares its work over that pool. The count changes speed only: forward results are the same bits for any count.

use std::cell::Cell;

use gemm::Parallelism;
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

/// Work below this many multiply-adds is done by the calling thread alone.
const SHARING_THRESHOLD: usize = 1 << 19;

/// Splits `rows` rows of `width` outputs into one run of whole rows for each thread and hands each run to `work`
/// with the index of its first row. `cost` is the work in multiply-adds; a small one is not shared.
pub(super) fn over_rows<T: Send>(
    output: &mut [T],
    width: usize,
    cost: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let rows = output.len().checked_div(width).unwrap_or(0);
    let count = if cost < SHARING_THRESHOLD { 1 } else { threads().min(rows) };
    if count <= 1 {
        work(0, output);
        return;
    }
    let share = rows.div_ceil(count);
    rayon::scope(|scope| {
        for (index, run) in output.chunks_mut(share * width).enumerate() {
            let work = &work;
            scope.spawn(move |_| work(index * share, run));
        }
    });
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
