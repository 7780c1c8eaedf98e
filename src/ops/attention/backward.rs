//! The backward walk: gradients of one sequence and KV head, the probabilities recomputed tile by tile.
//!
//! With `P = exp(S - L)` from the scores S and their kept log-sums L, `dV = Pᵀ dO`, `dP = dO Vᵀ`,
//! `dS = P ∘ (dP - rowsum(dO ∘ O))`, `dQ = scale dS K` and `dK = scale dSᵀ Q` (Dao et al. 2022). One task owns all
//! rows of its sequence and head, so nothing is shared, and every sum has one order: tokens ascending for dQ, rows
//! ascending for dK and dV. A pair that is not seen takes part in no sum.

use pulp::{Simd, WithSimd};

use super::super::lanes::Lanes;
use super::super::reduce::{Reduce, dot};
use super::accumulate::{Accumulate, Span};
use super::forward::{block_rows, reset, scale, scores, visible};
use super::tiles::{HeadRows, KEY_TILE, Sizes};

/// One sequence's rows in one KV head.
pub(super) struct Backward<'a, T> {
    pub(super) sizes: Sizes,
    /// Queries of the head's group, results and their gradients; row 0 is the first.
    pub(super) queries: HeadRows<'a, T>,
    pub(super) result: HeadRows<'a, T>,
    pub(super) gradient: HeadRows<'a, T>,
    /// As forward left them, `[rows, group]`.
    pub(super) log_sums: &'a [T],
    pub(super) rows: usize,
    /// Position of row 0 in its sequence.
    pub(super) first_position: usize,
    /// Keys and values of all positions as tiles of columns, `[tiles, D, KEY_TILE]`.
    pub(super) key_columns: &'a [T],
    pub(super) value_columns: &'a [T],
    /// Keys as rows, `[positions, D]`.
    pub(super) keys: &'a [T],
    /// Result: one slice `[group, D]` for each row; empty when nobody asked.
    pub(super) query_gradient: Vec<&'a mut [T]>,
    /// Results: `[positions, D]`, zero so far; empty when nobody asked.
    pub(super) key_gradient: &'a mut [T],
    pub(super) value_gradient: &'a mut [T],
}

impl<T: Reduce> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut block = Block::default();
        let rows = block_rows(self.sizes.group());
        for first in (0..self.rows).step_by(rows) {
            let rows = rows.min(self.rows - first);
            block.start(simd, &self, first..first + rows);
            for tile in 0..=(block.position + rows - 1) / KEY_TILE {
                block.add_tile(simd, &mut self, tile);
            }
            scale(simd, &mut block.query_gradient, self.sizes.scale);
            if let Some(output) = self.query_gradient.get_mut(first..first + rows) {
                let width = self.sizes.group() * self.sizes.dimension;
                for (output, gradient) in output.iter_mut().zip(block.query_gradient.chunks_exact(width)) {
                    output.copy_from_slice(gradient);
                }
            }
        }
    }
}

/// What a block of queries carries from tile to tile.
struct Block<T> {
    /// Position of the first row.
    position: usize,
    /// `[queries, D]`, times the scale.
    queries: Vec<T>,
    /// Gradients of the results, `[queries, D]`.
    gradient: Vec<T>,
    /// The results, `[queries, D]`.
    result: Vec<T>,
    /// `L` and `rowsum(dO ∘ O)` of each query.
    log_sums: Vec<T>,
    balance: Vec<T>,
    /// S, then P, `[queries, KEY_TILE]`.
    probabilities: Vec<T>,
    /// dP, then dS, `[queries, KEY_TILE]`.
    slopes: Vec<T>,
    /// dQ without the scale, `[queries, D]`.
    query_gradient: Vec<T>,
    /// All terms of a score.
    whole: Vec<Span>,
    /// The tokens of a tile that each query sees.
    seen: Vec<Span>,
    /// The queries that see each token of a tile.
    seers: Vec<Span>,
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self {
            position: 0,
            queries: Vec::new(),
            gradient: Vec::new(),
            result: Vec::new(),
            log_sums: Vec::new(),
            balance: Vec::new(),
            probabilities: Vec::new(),
            slopes: Vec::new(),
            query_gradient: Vec::new(),
            whole: Vec::new(),
            seen: Vec::new(),
            seers: Vec::new(),
        }
    }
}

impl<T: Reduce> Block<T> {
    /// Takes up new rows.
    #[inline(always)]
    fn start<S: Simd>(&mut self, simd: S, walk: &Backward<T>, rows: std::ops::Range<usize>) {
        let (group, dimension) = (walk.sizes.group(), walk.sizes.dimension);
        let count = rows.len() * group;
        self.position = walk.first_position + rows.start;
        walk.queries.copy(rows.clone(), &mut self.queries);
        scale(simd, &mut self.queries, walk.sizes.scale);
        walk.gradient.copy(rows.clone(), &mut self.gradient);
        walk.result.copy(rows.clone(), &mut self.result);
        self.log_sums.clear();
        self.log_sums.extend_from_slice(&walk.log_sums[rows.start * group..rows.end * group]);
        self.balance.clear();
        let pairs = self.gradient.chunks_exact(dimension).zip(self.result.chunks_exact(dimension));
        for (gradient, result) in pairs {
            self.balance.push(dot(simd, gradient, result));
        }
        for matrix in [&mut self.probabilities, &mut self.slopes] {
            matrix.resize(count * KEY_TILE, T::zero());
        }
        reset(&mut self.query_gradient, count * dimension, T::zero());
        reset(&mut self.whole, count, (0, dimension));
    }

    /// Adds the part of the pairs of these rows with the tokens of a tile to all gradients.
    #[inline(always)]
    fn add_tile<S: Simd>(&mut self, simd: S, walk: &mut Backward<T>, tile: usize) {
        let dimension = walk.sizes.dimension;
        let size = dimension * KEY_TILE;
        self.find_pairs(walk, tile);
        let columns = self.seen.last().map_or(0, |seen| seen.1);
        let keys = &walk.key_columns[tile * size..][..size];
        scores(simd, &self.queries, keys, dimension, columns, &self.whole, &mut self.probabilities);
        let values = &walk.value_columns[tile * size..][..size];
        scores(simd, &self.gradient, values, dimension, columns, &self.whole, &mut self.slopes);
        self.differentiate(simd);
        if !walk.query_gradient.is_empty() {
            simd.vectorize(Accumulate::<_, false> {
                factors: &self.slopes,
                stride: KEY_TILE,
                rows: &walk.keys[tile * size..],
                width: dimension,
                columns: dimension,
                spans: &self.seen,
                output: &mut self.query_gradient,
            });
        }
        for (factors, rows, output) in [
            (&self.slopes, &self.queries, &mut *walk.key_gradient),
            (&self.probabilities, &self.gradient, &mut *walk.value_gradient),
        ] {
            if let Some(output) = output.get_mut(tile * size..).filter(|output| !output.is_empty()) {
                simd.vectorize(Accumulate::<_, true> {
                    factors,
                    stride: KEY_TILE,
                    rows,
                    width: dimension,
                    columns: dimension,
                    spans: &self.seers,
                    output,
                });
            }
        }
    }

    /// Which query sees which token of a tile.
    #[inline(always)]
    fn find_pairs(&mut self, walk: &Backward<T>, tile: usize) {
        let (group, queries) = (walk.sizes.group(), self.whole.len());
        let position = self.position;
        self.seen.clear();
        self.seen.extend((0..queries).map(|i| (0, visible(position + i / group, tile))));
        let tokens = KEY_TILE.min(walk.first_position + walk.rows - tile * KEY_TILE);
        self.seers.clear();
        self.seers.extend((0..tokens).map(|token| {
            let hidden_from = (tile * KEY_TILE + token).saturating_sub(position) * group;
            (hidden_from.min(queries), queries)
        }));
    }

    /// From S and dP to P and dS.
    #[inline(always)]
    fn differentiate<S: Simd>(&mut self, simd: S) {
        let rows = self.probabilities.chunks_exact_mut(KEY_TILE).zip(self.slopes.chunks_exact_mut(KEY_TILE));
        let known = self.log_sums.iter().zip(&self.balance);
        for ((probabilities, slopes), (&log_sum, &balance)) in rows.zip(known) {
            let (log_sum, balance) = (Lanes::splat(simd, log_sum), Lanes::splat(simd, balance));
            let lanes = Lanes::<S, T>::width();
            for (p, slope) in probabilities.chunks_exact_mut(lanes).zip(slopes.chunks_exact_mut(lanes)) {
                let probability = (Lanes::load(simd, p) - log_sum).exp();
                probability.store(p);
                (probability * (Lanes::load(simd, slope) - balance)).store(slope);
            }
        }
    }
}
