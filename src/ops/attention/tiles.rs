//! How the keys and values of a sequence lie in memory, and where its queries come from.

use std::ops::Range;

use candle_core::Result;

use super::super::lanes::Element;
use super::super::storage::refuse;
use super::Sequence;

/// Tokens in a tile of keys and values, and in a page of a generator's cache.
///
/// Attention walks tiles from position 0 of a sequence and corrects its running sums after each, so this width is part
/// of what a result's bits depend on: training, prefill and decode must all use it. A multiple of every register's
/// width.
pub const KEY_TILE: usize = 64;

/// The sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// H, heads of queries.
    pub(super) heads: usize,
    /// G, heads of keys and values.
    pub(super) kv_heads: usize,
    /// D, values of a head.
    pub(super) dimension: usize,
    /// Multiplies the product of a query and a key.
    pub(super) scale: f64,
}

impl Sizes {
    /// Refuses heads that cannot be grouped.
    pub(super) fn new(heads: usize, kv_heads: usize, dimension: usize, scale: f64) -> Result<Self> {
        if heads == 0 || kv_heads == 0 || dimension == 0 || !heads.is_multiple_of(kv_heads) {
            return refuse(
                "attention",
                format!(
                    "{heads} heads of {dimension} values cannot share {kv_heads} heads of keys and values"
                ),
            );
        }
        Ok(Self { heads, kv_heads, dimension, scale })
    }

    /// Heads of queries that share one head of keys and values.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Values in a tile of one KV head: keys `[D, KEY_TILE]`, then values `[KEY_TILE, D]`.
    pub(super) fn tile_len(&self) -> usize {
        2 * self.dimension * KEY_TILE
    }

    /// The work of one KV head on rows at the positions `first..first + rows`, in multiply-adds.
    pub(super) fn cost(&self, first: usize, rows: usize) -> usize {
        2 * self.group() * self.dimension * rows * (first + rows / 2 + 1)
    }
}

/// The tiles of one sequence and KV head.
#[derive(Clone, Copy)]
pub(super) struct Tiles<'a, T> {
    /// One page for each tile.
    pub(super) pages: &'a [&'a [T]],
    /// Where in a page the head's tile starts.
    pub(super) offset: usize,
    /// D.
    pub(super) dimension: usize,
}

impl<'a, T> Tiles<'a, T> {
    /// Keys `[D, KEY_TILE]` and values `[KEY_TILE, D]` of a tile.
    pub(super) fn tile(&self, index: usize) -> (&'a [T], &'a [T]) {
        let half = self.dimension * KEY_TILE;
        self.pages[index][self.offset..][..2 * half].split_at(half)
    }
}

/// Writes a token's key `[D]` as a column of keys `[D, KEY_TILE]`.
pub(super) fn write_column<T: Copy>(tile: &mut [T], slot: usize, key: &[T]) {
    for (to, &value) in tile[slot..].iter_mut().step_by(KEY_TILE).zip(key) {
        *to = value;
    }
}

/// Reads what [`write_column`] wrote.
pub(super) fn read_column<T: Copy>(tile: &[T], slot: usize, key: &mut [T]) {
    for (to, &value) in key.iter_mut().zip(tile[slot..].iter().step_by(KEY_TILE)) {
        *to = value;
    }
}

/// One KV head of rows `[N, heads · D]`: its values in each row are contiguous.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'a, T> {
    values: &'a [T],
    /// Values in a whole row.
    stride: usize,
    /// Where the head's values start in a row, and how many they are.
    offset: usize,
    width: usize,
}

impl<'a, T: Element> HeadRows<'a, T> {
    /// Head `head` of heads of `width` values each; `values` starts at the row that will be number 0.
    pub(super) fn new(values: &'a [T], stride: usize, head: usize, width: usize) -> Self {
        Self { values, stride, offset: head * width, width }
    }

    /// The head's values in a row.
    pub(super) fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.stride + self.offset..][..self.width]
    }

    /// Copies rows into `[rows, width]`.
    pub(super) fn copy(&self, rows: Range<usize>, to: &mut Vec<T>) {
        to.clear();
        for row in rows {
            to.extend_from_slice(self.row(row));
        }
    }
}

/// A sequence's rows in order of position.
fn positions(sequence: &Sequence) -> impl Iterator<Item = usize> {
    sequence.prefix.clone().chain(sequence.rows.clone())
}

/// A sequence's keys and values, laid out as pages of one head: `[tiles, tile_len]`.
pub(super) fn pack<T: Element>(keys: HeadRows<T>, values: HeadRows<T>, sequence: &Sequence) -> Vec<T> {
    let dimension = keys.width;
    let half = dimension * KEY_TILE;
    let count = sequence.prefix.len() + sequence.rows.len();
    let mut tiles = vec![T::zero(); count.div_ceil(KEY_TILE) * 2 * half];
    for (position, row) in positions(sequence).enumerate() {
        let (tile, slot) = (position / KEY_TILE, position % KEY_TILE);
        let tile = &mut tiles[tile * 2 * half..][..2 * half];
        write_column(&mut tile[..half], slot, keys.row(row));
        tile[half + slot * dimension..][..dimension].copy_from_slice(values.row(row));
    }
    tiles
}

/// A sequence's rows as tiles of columns, `[tiles, D, KEY_TILE]`.
pub(super) fn columns<T: Element>(rows: HeadRows<T>, sequence: &Sequence) -> Vec<T> {
    let size = rows.width * KEY_TILE;
    let count = sequence.prefix.len() + sequence.rows.len();
    let mut tiles = vec![T::zero(); count.div_ceil(KEY_TILE) * size];
    for (position, row) in positions(sequence).enumerate() {
        write_column(&mut tiles[position / KEY_TILE * size..][..size], position % KEY_TILE, rows.row(row));
    }
    tiles
}

/// A sequence's rows, `[positions, D]`.
pub(super) fn rows_of<T: Element>(rows: HeadRows<T>, sequence: &Sequence) -> Vec<T> {
    let mut all = Vec::with_capacity((sequence.prefix.len() + sequence.rows.len()) * rows.width);
    positions(sequence).for_each(|row| all.extend_from_slice(rows.row(row)));
    all
}

/// Splits `[N, heads · width]` into one mutable slice for each row and head, to be handed out to tasks.
pub(super) struct RowSlices<'a, T> {
    slices: Vec<Option<&'a mut [T]>>,
    heads: usize,
}

impl<'a, T> RowSlices<'a, T> {
    /// `values` are rows of `heads` parts of `width` values each; none when it is empty.
    pub(super) fn new(values: &'a mut [T], heads: usize, width: usize) -> Self {
        Self { slices: values.chunks_mut(width).map(Some).collect(), heads }
    }

    /// The parts of one head in some rows; each can be taken once.
    pub(super) fn take(&mut self, rows: Range<usize>, head: usize) -> Vec<&'a mut [T]> {
        rows.filter_map(|row| self.slices.get_mut(row * self.heads + head)?.take()).collect()
    }
}
