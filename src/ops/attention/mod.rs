//! Causal softmax attention with grouped key and value heads, in three forms that give the same bits: over a packed
//! batch with gradients ([`attention`]), and over pages of cached keys and values without ([`PagedAttention`]), one
//! new row at a time or many.
//!
//! `o_r = Σ_t p_rt v_t` with `p_rt = exp(scale q_r·k_t) / Σ_t' exp(scale q_r·k_t')` over the tokens t that row r sees:
//! its sequence's, up to itself. Head h of the queries reads head `h / (H / G)` of keys and values.
//!
//! One kernel ([`forward`]) serves all forms. It walks tiles of [`KEY_TILE`] tokens from position 0 of a sequence, so
//! a row's bits depend on its query and on the keys and values it sees, not on the batch, on how a sequence was split
//! into calls, on whether its prefix is shared, or on threads. A token that is not seen is never read as a number: a
//! NaN in it, or whatever lies in the unwritten part of a page, changes nothing. No matrix of all pairs is held:
//! backward ([`backward`]) recomputes the probabilities tile by tile from the kept logarithms of the sums.

mod accumulate;
mod backward;
mod composed;
mod forward;
mod operator;
mod paged;
mod tasks;
#[cfg(test)]
mod tests;
mod tiles;

use std::ops::Range;
use std::sync::OnceLock;

use candle_core::{Result, Tensor};

use super::storage::{self, refuse};
use super::tape;
use composed::composed;
use operator::Attention;
use tiles::Sizes;

pub use paged::{Page, PagedAttention, PagedRows};
pub use tiles::KEY_TILE;

/// One sequence of a packed batch. Its tokens are the rows of `prefix`, then those of `rows`, at positions 0, 1, ...
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequence {
    /// Rows of the same batch that this sequence continues, such as a prompt that several completions share; they are
    /// rows of another sequence. Empty for a sequence that stands alone.
    pub prefix: Range<usize>,
    /// The sequence's own rows.
    pub rows: Range<usize>,
}

impl Sequence {
    /// A sequence that stands alone.
    #[must_use]
    pub fn alone(rows: Range<usize>) -> Self {
        Self { prefix: 0..0, rows }
    }
}

/// Causal attention over a packed batch: a row sees its sequence's whole prefix, and its own rows up to itself.
///
/// Shapes: q `[N, H, D]`, k and v `[N, G, D]` with G a divisor of H, result `[N, H, D]`; one float type. `scale`
/// multiplies the products of queries and keys. Differentiable in q, k and v; a shared prefix gets the sum of the
/// gradients of all who share it, in the order of `sequences`. Own kernels for `f32` and `f64` on the CPU, else
/// candle's operators. Errors when a shape does not fit, a row belongs to no sequence or to two, or a prefix reaches
/// beyond the batch or into its own sequence.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &[Sequence], scale: f64) -> Result<Tensor> {
    let sizes = check(q, k, v, scale)?;
    check_sequences(sequences, q.dim(0)?)?;
    if storage::is_native(q) || has_kernel(q) {
        let operator = Attention {
            sizes,
            sequences: sequences.iter().filter(|sequence| !sequence.rows.is_empty()).cloned().collect(),
            log_sums: OnceLock::new(),
            #[cfg(feature = "cuda")]
            on_device: OnceLock::new(),
        };
        tape::apply3(&q.contiguous()?, &k.contiguous()?, &v.contiguous()?, operator)
    } else {
        composed(q, k, v, sequences, scale)
    }
}

/// Whether a kernel of `super::cuda` serves these queries.
fn has_kernel(q: &Tensor) -> bool {
    #[cfg(feature = "cuda")]
    let fits = q.dims().last().is_some_and(|&width| width <= super::cuda::attention::MOST_COLUMNS);
    #[cfg(not(feature = "cuda"))]
    let fits = false;
    fits && storage::has_kernel(q)
}

fn check(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64) -> Result<Sizes> {
    if q.dtype() != k.dtype() || q.dtype() != v.dtype() {
        let types = [q.dtype(), k.dtype(), v.dtype()];
        return refuse("attention", format!("q, k and v have the types {types:?}"));
    }
    match (q.dims(), k.dims(), v.dims()) {
        (&[n, heads, dimension], &[rows, kv_heads, key_dimension], values)
            if (n, dimension) == (rows, key_dimension) && values == k.dims() =>
        {
            Sizes::new(heads, kv_heads, dimension, scale)
        }
        (q, k, v) => refuse(
            "attention",
            format!("q {q:?}, k {k:?} and v {v:?} must be [N, H, D], [N, G, D] and [N, G, D]"),
        ),
    }
}

/// Makes sure that the sequences' rows are 0..n, each once, and that each prefix is rows of other sequences.
fn check_sequences(sequences: &[Sequence], n: usize) -> Result<()> {
    for (index, Sequence { prefix, rows }) in sequences.iter().enumerate() {
        let problem = if rows.start > rows.end || rows.end > n {
            format!("rows {rows:?}")
        } else if prefix.start > prefix.end || prefix.end > n {
            format!("prefix {prefix:?}")
        } else if !prefix.is_empty() && prefix.start < rows.end && rows.start < prefix.end {
            return refuse(
                "attention",
                format!("prefix {prefix:?} of sequence {index} overlaps its rows {rows:?}"),
            );
        } else {
            continue;
        };
        return refuse("attention", format!("{problem} of sequence {index} are no part of the {n} rows"));
    }
    let mut all: Vec<&Range<usize>> = sequences.iter().map(|s| &s.rows).filter(|r| !r.is_empty()).collect();
    all.sort_by_key(|rows| rows.start);
    let mut next = 0;
    for rows in all {
        if rows.start < next {
            return refuse("attention", format!("row {} belongs to two sequences", rows.start));
        }
        if rows.start > next {
            break;
        }
        next = rows.end;
    }
    if next < n {
        return refuse("attention", format!("row {next} belongs to no sequence"));
    }
    Ok(())
}
