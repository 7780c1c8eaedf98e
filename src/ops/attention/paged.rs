//! Attention over cached keys and values on plain slices, for generators: no autograd, nothing copied.

use candle_core::Result;

use super::super::lanes::on_this_processor;
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
pub struct PagedQueries<'a> {
    /// `[n, H, D]`, of the tokens at `first_position` and after.
    pub queries: &'a [f32],
    /// How many tokens of the sequence come before.
    pub first_position: usize,
    /// The sequence's pages, in which the keys and values of the new tokens have been written too.
    pub pages: &'a [&'a [f32]],
    /// Result: `[n, H, D]`.
    pub output: &'a mut [f32],
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
                let (key_tile, value_tile) = tile.split_at_mut(dimension * KEY_TILE);
                write_column(key_tile, slot, key);
                value_tile[slot * dimension..][..dimension].copy_from_slice(value);
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

    /// Fills the output of every request, shared over the threads of the calling thread's policy by sequence and KV
    /// head. A row sees the tokens of its sequence up to itself. Errors, before anything is written, when a length
    /// does not fit or pages are missing.
    pub fn attend(&self, requests: &mut [PagedQueries]) -> Result<()> {
        let sizes = self.sizes;
        let width = sizes.heads * sizes.dimension;
        for (index, request) in requests.iter().enumerate() {
            self.check(request)
                .or_else(|problem| refuse("attention", format!("request {index}: {problem}")))?;
        }
        let mut tasks = Vec::new();
        for PagedQueries { queries, first_position, pages, output } in requests {
            let rows = queries.len() / width;
            let group = sizes.group() * sizes.dimension;
            let mut slices = RowSlices::new(output, sizes.kv_heads, group);
            tasks.extend((0..sizes.kv_heads).filter(|_| rows > 0).map(|head| Forward {
                sizes,
                queries: HeadRows::new(queries, width, head, group),
                first_position: *first_position,
                tiles: Tiles { pages, offset: head * sizes.tile_len(), dimension: sizes.dimension },
                output: slices.take(0..rows, head),
                log_sums: &mut [],
            }));
        }
        let cost = |task: &Forward<f32>| sizes.cost(task.first_position, task.output.len());
        over_tasks(tasks, cost, on_this_processor);
        Ok(())
    }

    fn check(&self, request: &PagedQueries) -> std::result::Result<(), String> {
        let PagedQueries { queries, first_position, pages, output } = request;
        let width = self.sizes.heads * self.sizes.dimension;
        if queries.len() != output.len() || !queries.len().is_multiple_of(width) {
            return Err(format!(
                "{} queries and {} results must be rows of {width}, as many",
                queries.len(),
                output.len()
            ));
        }
        let positions = first_position + queries.len() / width;
        if pages.len() < positions.div_ceil(KEY_TILE) {
            return Err(format!("{} pages of {KEY_TILE} do not hold {positions} positions", pages.len()));
        }
        match pages.iter().find(|page| page.len() != self.page_len()) {
            Some(page) => Err(format!("a page of {} values must have {}", page.len(), self.page_len())),
            None => Ok(()),
        }
    }
}
