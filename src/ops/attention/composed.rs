//! Attention out of candle's own differentiable operators.

use candle_core::{D, Result, Tensor};

use super::Sequence;

/// The function of [`super::attention`], one sequence after the other.
pub(super) fn composed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    sequences: &[Sequence],
    scale: f64,
) -> Result<Tensor> {
    let mut sorted: Vec<&Sequence> = sequences.iter().filter(|s| !s.rows.is_empty()).collect();
    sorted.sort_by_key(|s| s.rows.start);
    let results: Vec<Tensor> =
        sorted.into_iter().map(|sequence| one(q, k, v, sequence, scale)).collect::<Result<_>>()?;
    if results.is_empty() { q.zeros_like() } else { Tensor::cat(&results, 0) }
}

fn one(q: &Tensor, k: &Tensor, v: &Tensor, sequence: &Sequence, scale: f64) -> Result<Tensor> {
    let Sequence { prefix, rows } = sequence;
    let group = q.dim(1)? / k.dim(1)?;
    // [T, G, D] to [H, T, D].
    let tokens = |x: &Tensor| -> Result<Tensor> {
        let own = x.narrow(0, rows.start, rows.len())?;
        let all = if prefix.is_empty() {
            own
        } else {
            Tensor::cat(&[x.narrow(0, prefix.start, prefix.len())?, own], 0)?
        };
        let (t, g, d) = all.dims3()?;
        all.unsqueeze(2)?
            .broadcast_as((t, g, group, d))?
            .reshape((t, g * group, d))?
            .transpose(0, 1)?
            .contiguous()
    };
    let (keys, values) = (tokens(k)?, tokens(v)?);
    let queries = q.narrow(0, rows.start, rows.len())?.transpose(0, 1)?.contiguous()?;
    let scores = (queries.matmul(&keys.transpose(1, 2)?.contiguous()?)? * scale)?;
    let (n, t) = (rows.len(), prefix.len() + rows.len());
    let seen: Vec<u8> =
        (0..n).flat_map(|row| (0..t).map(move |token| u8::from(token <= t - n + row))).collect();
    let seen = Tensor::from_vec(seen, (n, t), q.device())?.broadcast_as(scores.shape())?;
    let hidden = Tensor::full(f32::NEG_INFINITY, scores.shape(), q.device())?.to_dtype(scores.dtype())?;
    let scores = seen.where_cond(&scores, &hidden)?;
    let weights = scores.broadcast_sub(&scores.detach().max_keepdim(D::Minus1)?)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
    weights.matmul(&values)?.transpose(0, 1)?.contiguous()
}
