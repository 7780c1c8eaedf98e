//! Tasks of uneven size, shared over the threads of the calling thread's policy.

use std::sync::{Mutex, PoisonError};

use super::super::parallel;

/// Runs `work` on every task; `cost` gives a task's size in multiply-adds. Threads take tasks from one queue, the
/// largest first and several at a time while there are many, so which thread runs a task is left to chance: tasks must
/// not depend on each other, nor on the order.
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
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let left = queue.len() - queue.len().div_ceil(4 * count);
        queue.split_off(left)
    };
    rayon::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|_| {
                loop {
                    let tasks = next();
                    if tasks.is_empty() {
                        break;
                    }
                    tasks.into_iter().for_each(&work);
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
