//! The gradient of a weight, `gradientᵀ · x`: for each output and input the sum over rows of their products.
//!
//! Small weights over many rows (convolutions, above all) have a kernel of their own, which reads windows in place
//! and keeps a tile of the sums in registers while rows pass; larger ones go to the general product. Each sum runs
//! over the rows in order on one thread, so the result does not depend on the number of threads.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes, on_this_processor};
use super::super::parallel::{self, Output};
use super::super::patches::Patches;
use super::general::{Matrix, multiply};

/// Rows that pass while the sums of all tiles take their turn.
const ROWS_AT_A_TIME: usize = 192;

/// Matrices with more weights than this are left to the general product.
const SMALL_WEIGHT: usize = 1 << 14;

/// Weights with no more outputs than this have the inputs as lanes.
const FEW_OUTPUTS: usize = 4;

/// `[outputs, row length of x]` from the gradient `[rows, outputs]` before the activation and the inputs.
pub(in crate::ops) fn weight_gradient<T: Element>(gradient: &[T], outputs: usize, x: &Patches<T>) -> Vec<T> {
    let inputs = x.row_len();
    let mut result = vec![T::zero(); outputs * inputs];
    if result.is_empty() || gradient.is_empty() {
        return result;
    }
    let rows = gradient.len() / outputs;
    if let Some(values) = large(outputs, x, rows) {
        let gradient = Matrix::new(gradient, rows, outputs).transposed();
        multiply(&mut result, gradient, Matrix::new(values, rows, inputs), false);
        return result;
    }
    if outputs <= FEW_OUTPUTS
        && inputs > outputs
        && let Some(x) = x.as_matrix(rows)
    {
        // The inputs fill more lanes; each sum is the same.
        let turned = weight_gradient(x, inputs, &Patches::matrix(gradient, outputs));
        for (input, turned) in turned.chunks_exact(outputs).enumerate() {
            for (output, &value) in turned.iter().enumerate() {
                result[output * inputs + input] = value;
            }
        }
        return result;
    }
    let tiles = on_this_processor(Tiles::<T> { outputs, x, values: std::marker::PhantomData });
    let sums = Output::new(&mut result, inputs);
    parallel::over_parts(tiles.len(), parallel::worthwhile(gradient.len() * inputs), |part| {
        on_this_processor(Pass { gradient, outputs, x, tiles: &tiles[part], sums: &sums });
    });
    result
}

/// Adds what [`weight_gradient`] gives to `sum`, or writes it there when not to accumulate.
pub(in crate::ops) fn add_weight_gradient<T: Element>(
    sum: &mut [T],
    gradient: &[T],
    outputs: usize,
    x: &Patches<T>,
    accumulate: bool,
) {
    let inputs = x.row_len();
    let rows = gradient.len().checked_div(outputs).unwrap_or(0);
    if rows > 0
        && let Some(values) = large(outputs, x, rows)
    {
        let gradient = Matrix::new(gradient, rows, outputs).transposed();
        multiply(sum, gradient, Matrix::new(values, rows, inputs), accumulate);
        return;
    }
    let result = weight_gradient(gradient, outputs, x);
    if accumulate {
        sum.iter_mut().zip(result).for_each(|(sum, value)| *sum += value);
    } else {
        sum.copy_from_slice(&result);
    }
}

/// The values of x when their product is left to the general one.
fn large<'a, T: Element>(outputs: usize, x: &'a Patches<T>, rows: usize) -> Option<&'a [T]> {
    let inputs = x.row_len();
    let turned = outputs <= FEW_OUTPUTS && inputs > outputs;
    let large = !turned && (outputs * inputs > SMALL_WEIGHT || rows < outputs.max(inputs));
    x.as_matrix(rows).filter(|_| large)
}

/// Some neighbouring outputs by some neighbouring inputs of one run.
#[derive(Debug, Clone)]
struct Tile {
    outputs: Range<usize>,
    /// Index of the run.
    run: usize,
    /// In the run.
    inputs: Range<usize>,
}

/// Lists the tiles of a weight, tall ones first in each run.
struct Tiles<'a, T> {
    outputs: usize,
    x: &'a Patches<'a, T>,
    values: std::marker::PhantomData<T>,
}

impl<T: Element> WithSimd for Tiles<'_, T> {
    type Output = Vec<Tile>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<Tile> {
        let width = Lanes::<S, T>::width();
        let mut tiles = Vec::new();
        for first in (0..self.outputs).step_by(2 * width) {
            let outputs = first..self.outputs.min(first + 2 * width);
            let narrow = outputs.len() <= width;
            for run in 0..self.x.grid().runs {
                let mut done = 0;
                while done < self.x.grid().run {
                    let tall = tile_height::<S>(self.x.grid().run - done, narrow);
                    tiles.push(Tile { outputs: outputs.clone(), run, inputs: done..done + tall });
                    done += tall;
                }
            }
        }
        tiles
    }
}

/// Inputs of the next tile when so many are left, for one or two registers of outputs.
#[inline(always)]
fn tile_height<S: Simd>(left: usize, narrow: bool) -> usize {
    let tallest: [usize; 3] = match (S::REGISTER_COUNT >= 32, narrow) {
        (true, true) => [24, 16, 12],
        (true, false) | (false, true) => [12, 8, 8],
        (false, false) => [6, 4, 4],
    };
    for tall in tallest.into_iter().chain([8, 4, 2]) {
        if tall <= left && tall <= tallest[0] {
            return tall;
        }
    }
    1
}

/// Some tiles over all rows, on one thread.
struct Pass<'a, T> {
    gradient: &'a [T],
    outputs: usize,
    x: &'a Patches<'a, T>,
    tiles: &'a [Tile],
    /// `[outputs, inputs]`.
    sums: &'a Output<'a, T>,
}

impl<T: Element> WithSimd for Pass<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.gradient.len() / self.outputs;
        let width = Lanes::<S, T>::width();
        // The sums of a tile lie side by side here, and are put in their places at the end.
        let mut partial = vec![T::zero(); self.tiles.len() * 24 * 2 * width];
        let mut starts = Vec::new();
        for first in (0..rows).step_by(ROWS_AT_A_TIME) {
            let count = ROWS_AT_A_TIME.min(rows - first);
            self.x.grid().starts(first, count, &mut starts);
            let gradient = &self.gradient[first * self.outputs..][..count * self.outputs];
            for (tile, partial) in self.tiles.iter().zip(partial.chunks_exact_mut(24 * 2 * width)) {
                let pass =
                    TilePass { simd, tile, x: self.x, starts: &starts, gradient, outputs: self.outputs };
                pass.run_tall(partial);
            }
        }
        for (tile, partial) in self.tiles.iter().zip(partial.chunks_exact(24 * 2 * width)) {
            let registers = tile.outputs.len().div_ceil(width);
            let inputs = tile.run * self.x.grid().run + tile.inputs.start;
            for (lane, output) in tile.outputs.clone().enumerate() {
                // SAFETY: tiles do not overlap and each belongs to one thread.
                let place = unsafe { self.sums.piece(output, inputs..inputs + tile.inputs.len()) };
                for (k, place) in place.iter_mut().enumerate() {
                    *place = partial[k * registers * width + lane];
                }
            }
        }
    }
}

/// One tile over a few rows.
struct TilePass<'a, S, T> {
    simd: S,
    tile: &'a Tile,
    x: &'a Patches<'a, T>,
    starts: &'a [usize],
    /// `[rows, outputs]`.
    gradient: &'a [T],
    outputs: usize,
}

impl<S: Simd, T: Element> TilePass<'_, S, T> {
    #[inline(always)]
    fn run_tall(&self, partial: &mut [T]) {
        if self.tile.outputs.len() > Lanes::<S, T>::width() {
            match self.tile.inputs.len() {
                12 if S::REGISTER_COUNT >= 32 => self.run::<12, 2>(partial),
                8 if S::REGISTER_COUNT >= 32 => self.run::<8, 2>(partial),
                6 if S::REGISTER_COUNT < 32 => self.run::<6, 2>(partial),
                4 => self.run::<4, 2>(partial),
                2 => self.run::<2, 2>(partial),
                _ => self.run::<1, 2>(partial),
            }
        } else {
            match self.tile.inputs.len() {
                24 if S::REGISTER_COUNT >= 32 => self.run::<24, 1>(partial),
                16 if S::REGISTER_COUNT >= 32 => self.run::<16, 1>(partial),
                12 => self.run::<12, 1>(partial),
                8 => self.run::<8, 1>(partial),
                4 => self.run::<4, 1>(partial),
                2 => self.run::<2, 1>(partial),
                _ => self.run::<1, 1>(partial),
            }
        }
    }

    #[inline(always)]
    fn run<const INPUTS: usize, const REGISTERS: usize>(&self, partial: &mut [T]) {
        let (simd, width) = (self.simd, Lanes::<S, T>::width());
        let kept = &partial[..INPUTS * REGISTERS * width];
        let mut sums = [[Lanes::splat(simd, T::zero()); REGISTERS]; INPUTS];
        for (i, sums) in sums.iter_mut().enumerate() {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = Lanes::load(simd, &kept[(i * REGISTERS + j) * width..][..width]);
            }
        }
        let full = self.tile.outputs.len() == REGISTERS * width;
        for (&start, gradient) in self.starts.iter().zip(self.gradient.chunks_exact(self.outputs)) {
            let gradient = &gradient[self.tile.outputs.clone()];
            let mut registers = [Lanes::splat(simd, T::zero()); REGISTERS];
            for (j, register) in registers.iter_mut().enumerate() {
                *register = if full {
                    Lanes::load(simd, &gradient[j * width..][..width])
                } else {
                    Lanes::load(simd, &gradient[j * width..])
                };
            }
            let inputs: &[T] = &self.x.run(start, self.tile.run)[self.tile.inputs.start..][..INPUTS];
            for (i, sums) in sums.iter_mut().enumerate() {
                let value = Lanes::splat(simd, inputs[i]);
                for (sum, register) in sums.iter_mut().zip(registers) {
                    *sum = value.multiply_add(register, *sum);
                }
            }
        }
        let mut settled = [[Lanes::splat(simd, T::zero()); REGISTERS]; INPUTS];
        for (settled, sums) in settled.iter_mut().zip(&sums) {
            for (settled, &sum) in settled.iter_mut().zip(sums) {
                *settled = sum;
            }
        }
        let kept = partial[..INPUTS * REGISTERS * width].chunks_exact_mut(REGISTERS * width);
        for (sums, kept) in settled.iter().zip(kept) {
            for (&sum, kept) in sums.iter().zip(kept.chunks_exact_mut(width)) {
                sum.store(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::parallel::with_threads;
    use super::super::super::patches::Grid;
    use super::super::super::testing::ARCHITECTURE;
    use super::*;
    use crate::random::CounterRng;

    /// Windows of `kernel` x `kernel` over square images, stride 2.
    fn grid(side: usize, kernel: usize, channels: usize) -> Grid {
        let lines = (side - kernel) / 2 + 1;
        Grid {
            image_step: side * side * channels,
            line_step: 2 * side * channels,
            column_step: 2 * channels,
            lines,
            columns: lines,
            runs: kernel,
            run: kernel * channels,
            run_step: side * channels,
        }
    }

    #[test]
    fn every_weight_gets_the_sum_over_all_windows_on_any_instruction_set_and_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut rng = CounterRng::new(1);
        for (outputs, side, kernel, channels) in
            [(16, 20, 3, 4), (32, 17, 2, 9), (5, 9, 4, 1), (40, 9, 1, 7), (1, 5, 5, 5)]
        {
            let (images, grid) = (30, grid(side, kernel, channels));
            let mut values = |count| (0..count).map(|_| rng.normal()).collect::<Vec<f64>>();
            let pixels = values(images * grid.image_step);
            let gradient = values(images * grid.lines * grid.columns * outputs);
            let x = Patches::windows(&pixels, grid);
            let mut starts = Vec::new();
            grid.starts(0, images * grid.lines * grid.columns, &mut starts);
            let mut expected = vec![0.0; outputs * x.row_len()];
            for (&start, gradient) in starts.iter().zip(gradient.chunks_exact(outputs)) {
                let row: Vec<f64> = (0..grid.runs).flat_map(|run| x.run(start, run)).copied().collect();
                for (sums, gradient) in expected.chunks_exact_mut(row.len()).zip(gradient) {
                    for (sum, value) in sums.iter_mut().zip(&row) {
                        *sum += value * gradient;
                    }
                }
            }
            let found = weight_gradient(&gradient, outputs, &x);
            assert_eq!(found, with_threads(&pool, || weight_gradient(&gradient, outputs, &x)));
            ARCHITECTURE.set(Some(pulp::Arch::Scalar));
            let scalar = weight_gradient(&gradient, outputs, &x);
            ARCHITECTURE.set(None);
            for ((found, scalar), expected) in found.iter().zip(scalar).zip(expected) {
                assert!((found - expected).abs() < 1e-9 && (scalar - expected).abs() < 1e-9);
            }
        }
    }
}
