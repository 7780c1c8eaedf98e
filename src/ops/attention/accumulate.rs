//! The one product inside attention: weighted sums of rows, added to what is already there.

use pulp::{Simd, WithSimd};

use super::super::lanes::{Element, Lanes};
use super::super::memory::{AHEAD, prefetch};

/// So few rows of the output wait for the terms more than for the sums; a tile's keys and values, and those of the next
/// head, lie one after another.
const FEW: usize = 3;

/// Which terms of its sum a row of the output takes: `start..end`.
pub(super) type Span = (usize, usize);

/// `output[i] += Σ_k factor(i, k) · rows[k]`, for each i over its own span of k.
///
/// Each output is one chain of multiply-adds in ascending k, whatever rows are computed beside it, so the result of a
/// row depends on that row's terms only, and a term outside the span is not even read. Rows with different spans are
/// worked on together where their spans meet and alone where they do not, which changes no chain.
pub(super) struct Accumulate<'a, T, const TRANSPOSED: bool> {
    /// factor(i, k) lies at `i · stride + k`, or transposed at `k · stride + i`.
    pub(super) factors: &'a [T],
    pub(super) stride: usize,
    /// `[K, width]`.
    pub(super) rows: &'a [T],
    pub(super) width: usize,
    /// How many columns of the output to work on; others stay as they are.
    pub(super) columns: usize,
    /// One for each row of the output.
    pub(super) spans: &'a [Span],
    /// `[spans, width]`.
    pub(super) output: &'a mut [T],
}

impl<T: Element, const TRANSPOSED: bool> WithSimd for Accumulate<'_, T, TRANSPOSED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let lanes = Lanes::<S, T>::width();
        let mut column = 0;
        while column < self.columns {
            let left = self.columns - column;
            // The sums fill the registers but for one row of each panel and one factor.
            if S::REGISTER_COUNT >= 32 && left >= 4 * lanes {
                self.panel::<S, 6, 4>(simd, column);
                column += 4 * lanes;
            } else if left >= 2 * lanes {
                if S::REGISTER_COUNT >= 32 {
                    self.panel::<S, 12, 2>(simd, column);
                } else {
                    self.panel::<S, 6, 2>(simd, column);
                }
                column += 2 * lanes;
            } else {
                self.panel::<S, 6, 1>(simd, column);
                column += lanes;
            }
        }
    }
}

impl<T: Element, const TRANSPOSED: bool> Accumulate<'_, T, TRANSPOSED> {
    /// A few registers of every output row, from `column` on.
    #[inline(always)]
    fn panel<S: Simd, const TALL: usize, const REGISTERS: usize>(&mut self, simd: S, column: usize) {
        let mut first = 0;
        while first < self.spans.len() {
            let left = self.spans.len() - first;
            first += if left >= TALL {
                self.group::<S, TALL, REGISTERS>(simd, first, column)
            } else if left >= 3 {
                self.group::<S, 3, REGISTERS>(simd, first, column)
            } else {
                self.group::<S, 1, REGISTERS>(simd, first, column)
            };
        }
    }

    /// `ROWS` rows from `first`; gives back `ROWS`.
    #[inline(always)]
    fn group<S: Simd, const ROWS: usize, const REGISTERS: usize>(
        &mut self,
        simd: S,
        first: usize,
        column: usize,
    ) -> usize {
        let spans = &self.spans[first..first + ROWS];
        let (mut start, mut end) = spans[0];
        for span in &spans[1..] {
            (start, end) = (start.max(span.0), end.min(span.1));
        }
        // Spans that have nothing in common are worked on alone, as if they all ended before the common part.
        let end = end.max(start);
        if ROWS > 1 {
            for (row, span) in (first..).zip(spans) {
                self.tile::<S, 1, REGISTERS>(simd, row, (span.0, span.1.min(start)), column);
            }
        }
        self.tile::<S, ROWS, REGISTERS>(simd, first, (start, end), column);
        if ROWS > 1 {
            for (row, span) in (first..).zip(&self.spans[first..first + ROWS]) {
                self.tile::<S, 1, REGISTERS>(simd, row, (span.0.max(end), span.1), column);
            }
        }
        ROWS
    }

    /// The terms `start..end` of `ROWS` rows from `first`.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const REGISTERS: usize>(
        &mut self,
        simd: S,
        first: usize,
        (start, end): Span,
        column: usize,
    ) {
        if start >= end {
            return;
        }
        let lanes = Lanes::<S, T>::width();
        // Only a single register may reach beyond the end of the row.
        let size = if REGISTERS == 1 { lanes.min(self.columns - column) } else { lanes };
        let mut sums = [[Lanes::splat(simd, T::zero()); REGISTERS]; ROWS];
        for (i, sums) in sums.iter_mut().enumerate() {
            let output = &self.output[(first + i) * self.width + column..][..(REGISTERS - 1) * lanes + size];
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = Lanes::load(simd, &output[j * lanes..][..size]);
            }
        }
        let mut runs: [&[T]; ROWS] = [&[]; ROWS];
        if !TRANSPOSED {
            for (i, run) in runs.iter_mut().enumerate() {
                *run = &self.factors[(first + i) * self.stride + start..][..end - start];
            }
        }
        for (k, row) in self.rows[start * self.width..end * self.width].chunks_exact(self.width).enumerate() {
            let row = &row[column..][..(REGISTERS - 1) * lanes + size];
            let mut registers = [Lanes::splat(simd, T::zero()); REGISTERS];
            for (j, register) in registers.iter_mut().enumerate() {
                *register = Lanes::load(simd, &row[j * lanes..][..size]);
                if ROWS <= FEW {
                    prefetch(row.as_ptr().wrapping_add(j * lanes).wrapping_byte_add(AHEAD));
                }
            }
            if TRANSPOSED {
                let factors = &self.factors[(start + k) * self.stride + first..][..ROWS];
                for (&factor, sums) in factors.iter().zip(&mut sums) {
                    let factor = Lanes::splat(simd, factor);
                    for (sum, register) in sums.iter_mut().zip(registers) {
                        *sum = factor.multiply_add(register, *sum);
                    }
                }
            } else {
                for (run, sums) in runs.iter().zip(&mut sums) {
                    let factor = Lanes::splat(simd, run[k]);
                    for (sum, register) in sums.iter_mut().zip(registers) {
                        *sum = factor.multiply_add(register, *sum);
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let output =
                &mut self.output[(first + i) * self.width + column..][..(REGISTERS - 1) * lanes + size];
            for (j, &sum) in sums.iter().enumerate() {
                sum.store(&mut output[j * lanes..][..size]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lanes::on_this_processor;
    use super::*;

    /// Whole numbers, so that every order of addition is exact.
    fn whole(count: usize, step: usize) -> Vec<f64> {
        (0..count).map(|i| (i * step % 11) as f64 - 5.0).collect()
    }

    #[test]
    fn every_row_takes_exactly_the_terms_of_its_span() {
        let depth = 9;
        for width in [1, 7, 8, 24, 32, 33, 64, 75] {
            for count in [1, 2, 3, 5, 12, 29] {
                let spans: Vec<Span> = (0..count).map(|i| (i * i % 4, depth - i * 3 % 7)).collect();
                let mut rows = whole(depth * width, 3);
                let factors = whole(count * depth, 7);
                let mut transposed = vec![0.0; count * depth];
                for i in 0..count {
                    for k in 0..depth {
                        transposed[k * count + i] = factors[i * depth + k];
                    }
                }
                let mut expected = whole(count * width, 5);
                let before = expected.clone();
                for (i, &(start, end)) in spans.iter().enumerate() {
                    for k in start..end {
                        for j in 0..width {
                            expected[i * width + j] += factors[i * depth + k] * rows[k * width + j];
                        }
                    }
                }
                // Nobody's span reaches the last row when all end before it.
                if spans.iter().all(|span| span.1 < depth) {
                    rows[(depth - 1) * width..].fill(f64::NAN);
                }
                let rows = &rows;
                let mut output = before.clone();
                on_this_processor(Accumulate::<_, false> {
                    factors: &factors,
                    stride: depth,
                    rows,
                    width,
                    columns: width,
                    spans: &spans,
                    output: &mut output,
                });
                assert_eq!(output, expected);
                let mut output = before;
                on_this_processor(Accumulate::<_, true> {
                    factors: &transposed,
                    stride: count,
                    rows,
                    width,
                    columns: width,
                    spans: &spans,
                    output: &mut output,
                });
                assert_eq!(output, expected);
            }
        }
    }
}
