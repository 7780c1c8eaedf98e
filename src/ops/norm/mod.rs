//! Normalisation of rows to unit size, times a learnt weight: [`rms_norm`] and [`layer_norm`].
//!
//! A row `[D]` is read once from memory and then worked on in the nearest cache; backward recomputes its statistics
//! from the kept input instead of storing them. The gradients of weight and bias are sums over rows: each block of
//! [`BLOCK_ROWS`] rows is summed in order, then the blocks in order, so they too are the same bits on any number of
//! threads.

mod layer;
mod rms;
#[cfg(test)]
mod tests;

pub use layer::layer_norm;
pub use rms::rms_norm;

use super::lanes::Element;
use super::parallel::over_rows;

/// Rows whose parts of the parameters' gradients are summed before those of other rows.
const BLOCK_ROWS: usize = 32;

/// The work on a value in the terms of [`over_rows`].
const COST: usize = 4;

/// One block of rows in the backward pass.
struct Block<'a, T> {
    /// Index of its first row.
    first: usize,
    /// Its rows.
    rows: usize,
    /// Result: the gradient of its inputs, `[rows, D]`; empty when nobody asked.
    x: &'a mut [T],
    /// Result: its part of the parameters' gradients, `[P, D]`, zero so far; empty when nobody asked.
    parameters: &'a mut [T],
}

/// What the backward pass of a norm must find, and for how many rows.
#[derive(Clone, Copy)]
struct Wanted {
    rows: usize,
    /// D.
    width: usize,
    /// Whether the input is tracked.
    x: bool,
    /// How many parameters of length D need gradients.
    parameters: usize,
}

impl Wanted {
    /// Runs `work` on every block, shared over threads. Gives the gradient of x, `[rows, D]`, and those of the
    /// parameters, `[P, D]`; both empty when not wanted.
    fn over_blocks<T: Element>(self, work: impl Fn(Block<T>) + Sync) -> (Vec<T>, Vec<T>) {
        let Self { rows, width, x, parameters } = self;
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let mut x = vec![T::zero(); if x { rows * width } else { 0 }];
        let mut partial = vec![T::zero(); blocks * parameters * width];
        let mut x_blocks = x.chunks_mut(BLOCK_ROWS * width);
        let mut partial_blocks = partial.chunks_mut((parameters * width).max(1));
        let mut tasks: Vec<Option<Block<T>>> = (0..blocks)
            .map(|index| {
                let first = index * BLOCK_ROWS;
                Some(Block {
                    first,
                    rows: BLOCK_ROWS.min(rows - first),
                    x: x_blocks.next().unwrap_or_default(),
                    parameters: partial_blocks.next().unwrap_or_default(),
                })
            })
            .collect();
        over_rows(&mut tasks, 1, 2 * COST * rows * width, |_, tasks| {
            tasks.iter_mut().filter_map(Option::take).for_each(&work);
        });
        let mut total = vec![T::zero(); parameters * width];
        for partial in partial.chunks(total.len().max(1)) {
            for (total, &partial) in total.iter_mut().zip(partial) {
                *total += partial;
            }
        }
        (x, total)
    }
}
