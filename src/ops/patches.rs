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
        let mut left = count;
        while left > 0 {
            let base = image * self.image_step + line * self.line_step;
            let run = left.min(self.columns - column);
            starts.extend((column..column + run).map(|column| base + column * self.column_step));
            (left, column, line) = (left - run, 0, line + 1);
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
        // One line of windows that lie side by side.
        let grid = Grid {
            image_step: values.len(),
            line_step: values.len(),
            column_step: inputs,
            lines: 1,
            columns: values.len().checked_div(inputs).unwrap_or(0).max(1),
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

    /// The first `rows` rows as they lie, where these are the rows of a plain matrix.
    pub(super) fn as_matrix(&self, rows: usize) -> Option<&'a [T]> {
        let whole = self.grid.runs == 1 && self.grid.lines == 1 && self.grid.column_step == self.grid.run;
        whole.then(|| &self.values[..rows * self.grid.run])
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
    fn windows_are_found_in_order_from_any_row() {
        let values: Vec<i32> = (0..18).collect();
        let windows = Patches::windows(&values, GRID);
        let mut starts = Vec::new();
        GRID.starts(3, 3, &mut starts);
        let rows: Vec<i32> =
            starts.iter().flat_map(|&s| [windows.run(s, 0), windows.run(s, 1)].concat()).collect();
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
