//! A set of cells of the board, one bit a cell.
//!
//! Whole populations (bricks, aliens, bullets) move by shifting one integer, which is what makes a step cost
//! nanoseconds. The invariant: bits from [`CELLS`] upwards are never set.

use serde::{Deserialize, Serialize};

/// Rows of the board, and columns as well.
pub(super) const SIDE: usize = 10;

/// Cells of the board.
pub(super) const CELLS: usize = SIDE * SIDE;

const EVERY_CELL: u128 = (1 << CELLS) - 1;
const ONE_ROW: u128 = (1 << SIDE) - 1;
const FIRST_COLUMN: u128 = {
    let mut bits = 0;
    let mut row = 0;
    while row < SIDE {
        bits |= 1 << (row * SIDE);
        row += 1;
    }
    bits
};

/// A set of cells; cell (row, column) is bit `row * 10 + column`, row 0 at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grid(u128);

impl Grid {
    /// No cell.
    pub const EMPTY: Self = Self(0);

    /// The cells of a rectangle, upper bounds excluded.
    pub const fn rectangle(top: usize, bottom: usize, left: usize, right: usize) -> Self {
        let line = (ONE_ROW >> (SIDE - (right - left))) << left;
        let mut bits = 0;
        let mut row = top;
        while row < bottom {
            bits |= line << (row * SIDE);
            row += 1;
        }
        Self(bits)
    }

    /// All cells of one row.
    pub const fn row(row: usize) -> Self {
        Self(ONE_ROW << (row * SIDE))
    }

    /// All cells of one column.
    pub const fn column(column: usize) -> Self {
        Self(FIRST_COLUMN << column)
    }

    /// Whether the cell is in the set.
    pub const fn contains(self, row: usize, column: usize) -> bool {
        self.0 >> (row * SIDE + column) & 1 == 1
    }

    /// Adds a cell.
    pub fn insert(&mut self, row: usize, column: usize) {
        self.0 |= 1 << (row * SIDE + column);
    }

    /// Takes a cell out.
    pub fn remove(&mut self, row: usize, column: usize) {
        self.0 &= !(1 << (row * SIDE + column));
    }

    /// Number of cells.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is no cell.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The cells in both sets.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The cells that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Everything one row up; the top row leaves the board.
    pub const fn shifted_up(self) -> Self {
        Self(self.0 >> SIDE)
    }

    /// Everything one row down; the bottom row leaves the board.
    pub const fn shifted_down(self) -> Self {
        Self((self.0 << SIDE) & EVERY_CELL)
    }

    /// Everything one row down; the bottom row comes back at the top.
    pub const fn rolled_down(self) -> Self {
        Self(self.shifted_down().0 | (self.0 >> (CELLS - SIDE)))
    }

    /// Everything one column to the left; the first column leaves the board.
    pub const fn shifted_left(self) -> Self {
        Self((self.0 & !FIRST_COLUMN) >> 1)
    }

    /// Everything one column to the right; the last column leaves the board.
    pub const fn shifted_right(self) -> Self {
        Self((self.0 & !Self::column(SIDE - 1).0) << 1)
    }

    /// The row of the lowest cell, if there is one.
    pub const fn lowest_row(self) -> Option<usize> {
        match self.0.checked_ilog2() {
            Some(bit) => Some(bit as usize / SIDE),
            None => None,
        }
    }

    /// The cells' positions (`row * 10 + column`), ascending.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let position = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (position < CELLS).then_some(position)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(grid: Grid) -> Vec<(usize, usize)> {
        grid.positions().map(|position| (position / SIDE, position % SIDE)).collect()
    }

    fn corners() -> Grid {
        let mut grid = Grid::EMPTY;
        for (row, column) in [(0, 0), (0, 9), (9, 0), (9, 9)] {
            grid.insert(row, column);
        }
        grid
    }

    #[test]
    fn a_rectangle_holds_its_cells_and_no_other() {
        let grid = Grid::rectangle(1, 3, 2, 4);
        assert_eq!(cells(grid), [(1, 2), (1, 3), (2, 2), (2, 3)]);
        assert_eq!((grid.count(), grid.contains(2, 3), grid.contains(3, 3)), (4, true, false));
        assert_eq!(Grid::rectangle(0, SIDE, 0, SIDE).count(), 100);
    }

    #[test]
    fn what_shifts_over_an_edge_leaves_the_board() {
        assert_eq!(cells(corners().shifted_up()), [(8, 0), (8, 9)]);
        assert_eq!(cells(corners().shifted_down()), [(1, 0), (1, 9)]);
        assert_eq!(cells(corners().shifted_left()), [(0, 8), (9, 8)]);
        assert_eq!(cells(corners().shifted_right()), [(0, 1), (9, 1)]);
    }

    #[test]
    fn rolling_down_brings_the_bottom_row_to_the_top() {
        assert_eq!(cells(corners().rolled_down()), [(0, 0), (0, 9), (1, 0), (1, 9)]);
    }

    #[test]
    fn the_lowest_row_of_a_column_is_found() {
        let grid = Grid::rectangle(2, 5, 3, 4);
        assert_eq!(grid.intersection(Grid::column(3)).lowest_row(), Some(4));
        assert_eq!(grid.intersection(Grid::column(4)).lowest_row(), None);
        assert!(grid.without(Grid::column(3)).is_empty());
    }
}
