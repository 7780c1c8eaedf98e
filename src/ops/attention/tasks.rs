//! Tasks of uneven size, shared over the threads of the calling thread's policy.

use std::sync::{Mutex, PoisonError};

use super::super::parallel;

/// Runs `work` on every task; `cost` gives a task's size in multiply-adds. Threads take tasks from one queue, the
/// largest first, so which thread runs a task is left to chance: tasks must not depend on each other, nor on the order.
pub(super) fn over_tasks<Task: Send>(
    mut tasks: Vec<Task>,
    cost: impl Fn(&Task) -> usize,
    work: impl Fn(Task) + Sync,
) {
    let total: usize = tasks.iter().map(&cost).sum();
    let count = parallel::worthwhile(total).min(tasks.len());
    if count <= 1 {
        tasks.into_iter().for_each(work);
        return;
    }
    tasks.sort_by_cached_key(cost);
    let queue = Mutex::new(tasks);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    rayon::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|_| {
                while let Some(task) = next() {
                    work(task);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::parallel::with_threads;
    use super::*;

    #[test]
    fn every_task_is_run_once_shared_or_not() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for cost in [1, usize::MAX / 100] {
            let mut counts = vec![0; 50];
            let tasks: Vec<&mut i32> = counts.iter_mut().collect();
            with_threads(&pool, || over_tasks(tasks, |_| cost, |count| *count += 1));
            assert_eq!(counts, vec![1; 50]);
        }
    }
}
