//! Where a game paints its observation: `[10, 10, channels]` values, channels last, all zero at first.

use super::grid::{CELLS, Grid, SIDE};

/// One observation being painted.
pub struct Canvas<'a> {
    values: &'a mut [f32],
    channels: usize,
}

impl<'a> Canvas<'a> {
    /// Appends a blank observation to `out` and opens it for painting.
    pub(super) fn append(out: &'a mut Vec<f32>, channels: usize) -> Self {
        let start = out.len();
        out.resize(start + CELLS * channels, 0.0);
        Self { values: &mut out[start..], channels }
    }

    /// Sets one cell of one channel.
    pub(super) fn set(&mut self, row: usize, column: usize, channel: usize) {
        debug_assert!(row < SIDE && column < SIDE && channel < self.channels);
        self.values[(row * SIDE + column) * self.channels + channel] = 1.0;
    }

    /// Sets all cells of a set in one channel.
    pub(super) fn fill(&mut self, grid: Grid, channel: usize) {
        debug_assert!(channel < self.channels);
        for position in grid.positions() {
            self.values[position * self.channels + channel] = 1.0;
        }
    }
}
