//! Input rows of a product as windows of channels-last images: what a convolution multiplies its weight with.
//!
//! A window of `kh` lines is `kh` runs of `kw · C` neighbouring values, so the forward product reads them in place
//! and nothing is unfolded. A plain matrix is the case of one run, its row. Images must already be padded.

/// Rows of equal length gathered from a slice; row `(n, oy, ox)` is a window of image `n`.
#[derive(Clone, Copy)]
pub(super) struct Patches<'a, T> {
    values: &'a [T],
    grid: Grid,
}

/// Where windows lie, in values from the start of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// From an image to the next.
    pub(super) image_step: usize,
    /// From a line of windows to the next.
    pub(super) line_step: usize,
    /// From a window to its right neighbour.
    pub(super) column_step: usize,
    /// Lines of windows in an image.
    pub(super) lines: usize,
    /// Windows in a line.
    pub(super) columns: usize,
    /// Runs in a window.
    pub(super) runs: usize,
    /// Values in a run.
    pub(super) run: usize,
    /// From a run to the next of the same window.
    pub(super) run_step: usize,
}

impl Grid {
    /// Windows of an image.
    fn windows(&self) -> usize {
        self.lines * self.columns
    }

    /// Replaces `starts` by where the windows of rows `first..first + count` begin.
    pub(super) fn starts(&self, first: usize, count: usize, starts: &mut Vec<usize>) {
        starts.clear();
        let mut image = first / self.windows();
        let mut line = first % self.windows() / self.columns;
        let mut column = first % self.columns;
        for _ in 0..count {
            starts.push(image * self.image_step + line * self.line_step + column * self.column_step);
            column += 1;
            if column == self.columns {
                (column, line) = (0, line + 1);
            }
            if line == self.lines {
                (line, image) = (0, image + 1);
            }
        }
    }

    /// Adds `gradient` `[count, row length]` of rows `first..` to the windows they came from.
    pub(super) fn fold<T: Copy + std::ops::AddAssign>(&self, first: usize, gradient: &[T], output: &mut [T]) {
        let mut starts = Vec::new();
        self.starts(first, gradient.len() / (self.runs * self.run), &mut starts);
        for (row, start) in gradient.chunks_exact(self.runs * self.run).zip(starts) {
            for (index, run) in row.chunks_exact(self.run).enumerate() {
                let output = &mut output[start + index * self.run_step..][..self.run];
                for (sum, &value) in output.iter_mut().zip(run) {
                    *sum += value;
                }
            }
        }
    }
}

impl<'a, T: Copy> Patches<'a, T> {
    /// The rows of a row-major matrix with `inputs` columns.
    pub(super) fn matrix(values: &'a [T], inputs: usize) -> Self {
        let grid = Grid {
            image_step: inputs,
            line_step: 0,
            column_step: 0,
            lines: 1,
            columns: 1,
            runs: 1,
            run: inputs,
            run_step: 0,
        };
        Self { values, grid }
    }

    /// The windows of padded images.
    pub(super) fn windows(values: &'a [T], grid: Grid) -> Self {
        Self { values, grid }
    }

    /// Values of a row.
    pub(super) fn row_len(&self) -> usize {
        self.grid.runs * self.grid.run
    }

    /// The geometry.
    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Run `index` of the window that begins at `start`.
    #[inline(always)]
    pub(super) fn run(&self, start: usize, index: usize) -> &'a [T] {
        &self.values[start + index * self.grid.run_step..][..self.grid.run]
    }

    /// Copies rows `first..` into `output` `[count, row length]`.
    pub(super) fn unfold(&self, first: usize, output: &mut [T]) {
        let mut starts = Vec::new();
        self.grid.starts(first, output.len() / self.row_len(), &mut starts);
        for (row, start) in output.chunks_exact_mut(self.row_len()).zip(starts) {
            for (index, run) in row.chunks_exact_mut(self.grid.run).enumerate() {
                run.copy_from_slice(self.run(start, index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of 3 × 3 with one channel, windows of 2 × 2.
    const GRID: Grid = Grid {
        image_step: 9,
        line_step: 3,
        column_step: 1,
        lines: 2,
        columns: 2,
        runs: 2,
        run: 2,
        run_step: 3,
    };

    #[test]
    fn windows_are_unfolded_in_order_from_any_row() {
        let values: Vec<i32> = (0..18).collect();
        let mut rows = vec![0; 3 * 4];
        Patches::windows(&values, GRID).unfold(3, &mut rows);
        assert_eq!(rows, [4, 5, 7, 8, 9, 10, 12, 13, 10, 11, 13, 14]);
    }

    #[test]
    fn folding_counts_how_many_windows_saw_each_value() {
        let mut output = vec![0; 18];
        GRID.fold(0, &[1; 8 * 4], &mut output);
        let expected = [1, 2, 1, 2, 4, 2, 1, 2, 1];
        assert_eq!(output, [expected, expected].concat());
    }
}
