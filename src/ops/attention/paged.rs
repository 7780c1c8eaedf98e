//! Attention over cached keys and values on plain slices, for generators: no autograd, nothing copied.
//!
//! A row's keys and values are written by the task that attends with them, one for each sequence and KV head, so that
//! the part of a page that both touch comes from memory once.

use candle_core::Result;
use pulp::{Simd, WithSimd};

use super::super::lanes::on_this_processor;
use super::super::memory::READING;
use super::super::storage::refuse;
use super::forward::Forward;
use super::tasks::over_tasks;
use super::tiles::{HeadRows, KEY_TILE, RowSlices, Sizes, Tiles, read_column, write_column};

/// One layer's attention over pages of keys and values; gives the bits of [`super::attention`].
///
/// A page holds [`KEY_TILE`] tokens of one sequence: position p of it lies in page `p / KEY_TILE`. What a page holds
/// beyond the tokens written so far does not matter. Sequences with a common beginning may share its full pages.
#[derive(Debug, Clone, Copy)]
pub struct PagedAttention {
    sizes: Sizes,
}

/// New rows of one sequence.
#[derive(Debug)]
pub struct PagedRows<'a> {
    /// `[n, H, D]`, of the tokens at `first_position` and after.
    pub queries: &'a [f32],
    /// Keys of the same tokens, `[n, G, D]`, which are written into their pages.
    pub keys: &'a [f32],
    /// Values, likewise.
    pub values: &'a [f32],
    /// How many tokens of the sequence come before.
    pub first_position: usize,
    /// The sequence's pages, with those of the new tokens.
    pub pages: Vec<Page<'a>>,
    /// Result: `[n, H, D]`.
    pub output: &'a mut [f32],
}

/// A page of a sequence.
#[derive(Debug)]
pub enum Page<'a> {
    /// Only read; others may read it too.
    Shared(&'a [f32]),
    /// Written if new tokens lie in it.
    Own(&'a mut [f32]),
}

impl<'a> Page<'a> {
    fn len(&self) -> usize {
        match self {
            Self::Shared(page) => page.len(),
            Self::Own(page) => page.len(),
        }
    }

    /// Its parts of `len` values.
    fn parts(self, len: usize) -> Box<dyn Iterator<Item = Page<'a>> + 'a> {
        match self {
            Self::Shared(page) => Box::new(page.chunks_exact(len).map(Page::Shared)),
            Self::Own(page) => Box::new(page.chunks_exact_mut(len).map(Page::Own)),
        }
    }

    fn into_shared(self) -> &'a [f32] {
        match self {
            Self::Shared(page) => page,
            Self::Own(page) => page,
        }
    }
}

/// One sequence's new rows in one KV head.
struct Task<'a> {
    sizes: Sizes,
    /// Of the head's group.
    queries: HeadRows<'a, f32>,
    keys: HeadRows<'a, f32>,
    values: HeadRows<'a, f32>,
    first_position: usize,
    /// The head's part of each page.
    tiles: Vec<Page<'a>>,
    /// Result: one slice `[group, D]` for each row.
    output: Vec<&'a mut [f32]>,
}

impl Task<'_> {
    /// What it takes, in multiply-adds: reading the tokens that came before, unless there are so many rows that
    /// computing takes longer.
    fn cost(&self) -> usize {
        let (rows, positions) = (self.output.len(), self.first_position + self.output.len());
        self.sizes.cost(self.first_position, rows).max(READING * 2 * self.sizes.dimension * positions)
    }
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, queries, keys, values, first_position, mut tiles, output } = self;
        for row in 0..output.len() {
            let position = first_position + row;
            if let Page::Own(tile) = &mut tiles[position / KEY_TILE] {
                write_token(tile, position % KEY_TILE, keys.row(row), values.row(row));
            }
        }
        let tiles: Vec<&[f32]> = tiles.into_iter().map(Page::into_shared).collect();
        let tiles = Tiles { pages: &tiles, offset: 0, dimension: sizes.dimension };
        Forward { sizes, queries, first_position, tiles, output, log_sums: &mut [] }.with_simd(simd);
    }
}

/// Writes a token's key and value `[D]` into a tile.
fn write_token(tile: &mut [f32], slot: usize, key: &[f32], value: &[f32]) {
    let (keys, values) = tile.split_at_mut(key.len() * KEY_TILE);
    write_column(keys, slot, key);
    values[slot * value.len()..][..value.len()].copy_from_slice(value);
}

impl PagedAttention {
    /// H heads of queries over G heads of keys and values, D values each; `scale` multiplies the products of queries
    /// and keys. Errors when G does not divide H or one of them is 0.
    pub fn new(heads: usize, kv_heads: usize, dimension: usize, scale: f64) -> Result<Self> {
        Ok(Self { sizes: Sizes::new(heads, kv_heads, dimension, scale)? })
    }

    /// Values in a page: for each KV head keys `[D, KEY_TILE]`, then values `[KEY_TILE, D]`.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.sizes.kv_heads * self.sizes.tile_len()
    }

    /// Writes keys and values `[n, G, D]` of the tokens at `position` and after into the page of `position`, as many
    /// as fit, and gives back how many that were. Errors when a length does not fit.
    pub fn write(&self, page: &mut [f32], position: usize, keys: &[f32], values: &[f32]) -> Result<usize> {
        let Sizes { kv_heads, dimension, .. } = self.sizes;
        let width = kv_heads * dimension;
        if page.len() != self.page_len() || keys.len() != values.len() || !keys.len().is_multiple_of(width) {
            return refuse(
                "attention",
                format!(
                    "a page of {}, {} keys and {} values must be {} and twice rows of {width}",
                    page.len(),
                    keys.len(),
                    values.len(),
                    self.page_len()
                ),
            );
        }
        let tokens = keys.chunks_exact(width).zip(values.chunks_exact(width));
        let mut written = 0;
        for (slot, (keys, values)) in (position % KEY_TILE..KEY_TILE).zip(tokens) {
            let heads = keys.chunks_exact(dimension).zip(values.chunks_exact(dimension));
            for (tile, (key, value)) in page.chunks_exact_mut(self.sizes.tile_len()).zip(heads) {
                write_token(tile, slot, key, value);
            }
            written += 1;
        }
        Ok(written)
    }

    /// Keys and values `[count, G, D]` of the first tokens of a page, as [`Self::write`] was given them. Errors when a
    /// length does not fit.
    pub fn read(&self, page: &[f32], count: usize) -> Result<[Vec<f32>; 2]> {
        let Sizes { kv_heads, dimension, .. } = self.sizes;
        if page.len() != self.page_len() || count > KEY_TILE {
            let needed = self.page_len();
            return refuse(
                "attention",
                format!("{count} tokens of a page of {}; it has {needed} values of {KEY_TILE}", page.len()),
            );
        }
        let width = kv_heads * dimension;
        let mut found = [vec![0.0; count * width], vec![0.0; count * width]];
        for (head, tile) in page.chunks_exact(self.sizes.tile_len()).enumerate() {
            let (key_tile, value_tile) = tile.split_at(dimension * KEY_TILE);
            for slot in 0..count {
                let place = slot * width + head * dimension..slot * width + (head + 1) * dimension;
                read_column(key_tile, slot, &mut found[0][place.clone()]);
                found[1][place].copy_from_slice(&value_tile[slot * dimension..][..dimension]);
            }
        }
        Ok(found)
    }

    /// Writes the keys and values of every request into its pages, then fills its output; shared over the threads of the
    /// calling thread's policy by sequence and KV head. A row sees the tokens of its sequence up to itself. Errors,
    /// before anything is written, when a length does not fit, pages are missing, or one of new tokens is shared.
    pub fn attend(&self, requests: Vec<PagedRows>) -> Result<()> {
        let sizes = self.sizes;
        let Sizes { heads, kv_heads, dimension, .. } = sizes;
        for (index, request) in requests.iter().enumerate() {
            self.check(request)
                .or_else(|problem| refuse("attention", format!("request {index}: {problem}")))?;
        }
        let (group, mut tasks) = (sizes.group() * dimension, Vec::with_capacity(requests.len() * kv_heads));
        for PagedRows { queries, keys, values, first_position, pages, output } in requests {
            let rows = queries.len() / (heads * dimension);
            let used = (first_position + rows).div_ceil(KEY_TILE);
            let mut parts: Vec<_> =
                pages.into_iter().take(used).map(|page| page.parts(sizes.tile_len())).collect();
            let mut slices = RowSlices::new(output, kv_heads, group);
            tasks.extend((0..kv_heads).filter(|_| rows > 0).map(|head| Task {
                sizes,
                queries: HeadRows::new(queries, heads * dimension, head, group),
                keys: HeadRows::new(keys, kv_heads * dimension, head, dimension),
                values: HeadRows::new(values, kv_heads * dimension, head, dimension),
                first_position,
                tiles: parts.iter_mut().filter_map(Iterator::next).collect(),
                output: slices.take(0..rows, head),
            }));
        }
        over_tasks(tasks, Task::cost, on_this_processor);
        Ok(())
    }

    fn check(&self, request: &PagedRows) -> std::result::Result<(), String> {
        let PagedRows { queries, keys, values, first_position, pages, output } = request;
        let Sizes { heads, kv_heads, dimension, .. } = self.sizes;
        let width = heads * dimension;
        if queries.len() != output.len() || !queries.len().is_multiple_of(width) {
            return Err(format!(
                "{} queries and {} results must be rows of {width}, as many",
                queries.len(),
                output.len()
            ));
        }
        let rows = queries.len() / width;
        let expected = rows * kv_heads * dimension;
        if keys.len() != expected || values.len() != expected {
            return Err(format!(
                "{} keys and {} values of {rows} rows must be {expected} each",
                keys.len(),
                values.len()
            ));
        }
        let positions = first_position + rows;
        if pages.len() < positions.div_ceil(KEY_TILE) {
            return Err(format!("{} pages of {KEY_TILE} do not hold {positions} positions", pages.len()));
        }
        if let Some(page) = pages.iter().find(|page| page.len() != self.page_len()) {
            return Err(format!("a page of {} values must have {}", page.len(), self.page_len()));
        }
        let of_new_tokens = first_position / KEY_TILE..positions.div_ceil(KEY_TILE);
        if rows > 0 && pages[of_new_tokens].iter().any(|page| matches!(page, Page::Shared(_))) {
            return Err("a page of new tokens is shared".into());
        }
        Ok(())
    }
}
