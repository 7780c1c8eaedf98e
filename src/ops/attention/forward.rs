//! The forward walk: rows of one sequence and KV head over its tiles, with a running softmax.
//!
//! For each row and head: a maximum m, a sum l of `exp(score - m)` (kept in lanes, added up at the end) and the
//! weighted values o. A tile's scores raise m to m', by `exp(m - m')` what was summed before is corrected, then the
//! tile's part is added (Milakov and Gimelshein 2018; Rabe and Staats 2021). What a row gives depends on its own query
//! and on the tokens it sees, tile by tile from position 0, never on the rows that are worked on beside it.

use pulp::{Simd, WithSimd};

use super::super::lanes::Lanes;
use super::super::reduce::Reduce;
use super::accumulate::{Accumulate, Span};
use super::tiles::{HeadRows, KEY_TILE, Sizes, Tiles};

/// Queries (rows times heads of a group) that pass over a tile together: enough to keep the registers busy, few
/// enough for their sums to stay in the nearest cache.
const BLOCK: usize = 48;

/// Rows of a block.
pub(super) fn block_rows(group: usize) -> usize {
    (BLOCK / group).max(1)
}

/// How many tokens of a tile the row at `position` sees.
pub(super) fn visible(position: usize, tile: usize) -> usize {
    (position + 1).saturating_sub(tile * KEY_TILE).min(KEY_TILE)
}

/// One sequence's rows in one KV head.
pub(super) struct Forward<'a, T> {
    pub(super) sizes: Sizes,
    /// Queries of the head's group; row 0 is the first.
    pub(super) queries: HeadRows<'a, T>,
    /// Position of row 0 in its sequence.
    pub(super) first_position: usize,
    /// Cover every position up to the last row's.
    pub(super) tiles: Tiles<'a, T>,
    /// Result: one slice `[group, D]` for each row.
    pub(super) output: Vec<&'a mut [T]>,
    /// Result: `ln Σ exp(score)` of each row and head, `[rows, group]`; may be empty.
    pub(super) log_sums: &'a mut [T],
}

impl<T: Reduce> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = block_rows(self.sizes.group());
        let mut block = Block::<S, T>::new(simd, self.sizes);
        for first in (0..self.output.len()).step_by(rows) {
            let rows = rows.min(self.output.len() - first);
            block.start(self.queries, first..first + rows);
            let position = self.first_position + first;
            for tile in 0..=(position + rows - 1) / KEY_TILE {
                block.add_tile(position, tile, self.tiles.tile(tile));
            }
            let group = self.sizes.group();
            let log_sums = self.log_sums.get_mut(first * group..(first + rows) * group);
            block.finish(&mut self.output[first..first + rows], log_sums.unwrap_or_default());
        }
    }
}

/// The running softmax of a block of queries.
struct Block<S: Simd, T: Reduce> {
    simd: S,
    sizes: Sizes,
    /// `[queries, D]`, times the scale.
    queries: Vec<T>,
    /// `[queries, KEY_TILE]`: scores, then their exponentials.
    scores: Vec<T>,
    /// m of each query.
    maxima: Vec<T>,
    /// What raising m makes of the sums so far, for each query.
    factors: Vec<T>,
    /// l of each query, in the lanes of a register.
    sums: Vec<Lanes<S, T>>,
    /// o of each query, `[queries, D]`.
    values: Vec<T>,
    /// All terms of a score.
    whole: Vec<Span>,
    /// The tokens of a tile that each query sees.
    seen: Vec<Span>,
}

impl<S: Simd, T: Reduce> Block<S, T> {
    #[inline(always)]
    fn new(simd: S, sizes: Sizes) -> Self {
        Self {
            simd,
            sizes,
            queries: Vec::new(),
            scores: Vec::new(),
            maxima: Vec::new(),
            factors: Vec::new(),
            sums: Vec::new(),
            values: Vec::new(),
            whole: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Takes up new rows.
    #[inline(always)]
    fn start(&mut self, queries: HeadRows<T>, rows: std::ops::Range<usize>) {
        let (count, dimension) = (rows.len() * self.sizes.group(), self.sizes.dimension);
        queries.copy(rows, &mut self.queries);
        scale(self.simd, &mut self.queries, self.sizes.scale);
        reset(&mut self.maxima, count, T::constant(f64::NEG_INFINITY));
        reset(&mut self.factors, count, T::zero());
        reset(&mut self.sums, count, Lanes::splat(self.simd, T::zero()));
        reset(&mut self.values, count * dimension, T::zero());
        self.scores.resize(count * KEY_TILE, T::zero());
        reset(&mut self.whole, count, (0, dimension));
    }

    /// Adds what the rows, the first at `position`, see of a tile.
    #[inline(always)]
    fn add_tile(&mut self, position: usize, tile: usize, (keys, values): (&[T], &[T])) {
        let (group, dimension) = (self.sizes.group(), self.sizes.dimension);
        self.seen.clear();
        self.seen.extend((0..self.maxima.len()).map(|i| (0, visible(position + i / group, tile))));
        let columns = self.seen.last().map_or(0, |seen| seen.1);
        scores(self.simd, &self.queries, keys, dimension, columns, &self.whole, &mut self.scores);
        self.raise_maxima();
        self.correct();
        self.exponentiate();
        self.simd.vectorize(Accumulate::<_, false> {
            factors: &self.scores,
            stride: KEY_TILE,
            rows: values,
            width: dimension,
            columns: dimension,
            spans: &self.seen,
            output: &mut self.values,
        });
    }

    /// Hides the scores of tokens that are not seen; raises each m, and leaves `m - m'` in the factors.
    #[inline(always)]
    fn raise_maxima(&mut self) {
        let (simd, lanes) = (self.simd, Lanes::<S, T>::width());
        let queries = self.maxima.iter_mut().zip(&mut self.factors).zip(&self.seen);
        for (scores, ((maximum, factor), seen)) in self.scores.chunks_exact_mut(KEY_TILE).zip(queries) {
            scores[seen.1..].fill(T::constant(f64::NEG_INFINITY));
            let mut greatest = Lanes::splat(simd, *maximum);
            for scores in scores.chunks_exact(lanes) {
                let scores = Lanes::load(simd, scores);
                greatest = greatest.where_less(scores, scores, greatest);
            }
            let raised = T::greatest_lane(greatest);
            *factor = if raised == *maximum { T::zero() } else { *maximum - raised };
            *maximum = raised;
        }
    }

    /// Multiplies what was summed so far by `exp(m - m')`.
    #[inline(always)]
    fn correct(&mut self) {
        let (simd, lanes) = (self.simd, Lanes::<S, T>::width());
        for factors in self.factors.chunks_mut(lanes) {
            Lanes::load(simd, factors).exp().store(factors);
        }
        let values = self.values.chunks_exact_mut(self.sizes.dimension);
        for ((values, sum), &factor) in values.zip(&mut self.sums).zip(&self.factors) {
            if factor != T::one() {
                let factor = Lanes::splat(simd, factor);
                *sum = *sum * factor;
                for values in values.chunks_mut(lanes) {
                    (Lanes::load(simd, values) * factor).store(values);
                }
            }
        }
    }

    /// Turns the scores of each query that sees any into exponentials, and adds them to its sum.
    #[inline(always)]
    fn exponentiate(&mut self) {
        let (simd, lanes) = (self.simd, Lanes::<S, T>::width());
        let queries = self.maxima.iter().zip(&mut self.sums).zip(&self.seen);
        for (scores, ((&maximum, sum), seen)) in self.scores.chunks_exact_mut(KEY_TILE).zip(queries) {
            if seen.1 > 0 {
                let maximum = Lanes::splat(simd, maximum);
                for scores in scores.chunks_exact_mut(lanes) {
                    let exponential = (Lanes::load(simd, scores) - maximum).exp();
                    exponential.store(scores);
                    *sum = *sum + exponential;
                }
            }
        }
    }

    /// Writes the results of the rows.
    #[inline(always)]
    fn finish(&self, output: &mut [&mut [T]], log_sums: &mut [T]) {
        let (simd, lanes, dimension) = (self.simd, Lanes::<S, T>::width(), self.sizes.dimension);
        let heads = output.iter_mut().flat_map(|row| row.chunks_exact_mut(dimension));
        for ((output, values), &sum) in heads.zip(self.values.chunks_exact(dimension)).zip(&self.sums) {
            let inverse = Lanes::splat(simd, T::one() / T::sum_of_lanes(sum));
            for (output, values) in output.chunks_mut(lanes).zip(values.chunks(lanes)) {
                (Lanes::load(simd, values) * inverse).store(output);
            }
        }
        for ((log_sum, &maximum), &sum) in log_sums.iter_mut().zip(&self.maxima).zip(&self.sums) {
            *log_sum = T::constant(maximum.to_f64() + T::sum_of_lanes(sum).to_f64().ln());
        }
    }
}

/// Makes a buffer `count` times `value`. (Growing an emptied one would write value by value.)
#[inline(always)]
pub(super) fn reset<V: Copy>(buffer: &mut Vec<V>, count: usize, value: V) {
    buffer.resize(count, value);
    buffer.fill(value);
}

/// `values *= factor`.
#[inline(always)]
pub(super) fn scale<S: Simd, T: Reduce>(simd: S, values: &mut [T], factor: f64) {
    let factor = Lanes::splat(simd, T::constant(factor));
    for values in values.chunks_mut(Lanes::<S, T>::width()) {
        (Lanes::load(simd, values) * factor).store(values);
    }
}

/// `output = queries · tile`: `[queries, D]` times `[D, KEY_TILE]`, of the first `columns` tokens (and maybe more of
/// them); each of `whole` is `(0, D)`.
#[inline(always)]
pub(super) fn scores<S: Simd, T: Reduce>(
    simd: S,
    queries: &[T],
    tile: &[T],
    dimension: usize,
    columns: usize,
    whole: &[Span],
    output: &mut [T],
) {
    let output = &mut output[..whole.len() * KEY_TILE];
    output.fill(T::zero());
    simd.vectorize(Accumulate::<_, false> {
        factors: queries,
        stride: dimension,
        rows: tile,
        width: KEY_TILE,
        columns: columns.next_multiple_of(Lanes::<S, T>::width()),
        spans: whole,
        output,
    });
}
