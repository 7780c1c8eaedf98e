//! Mixture of experts: a router picks k of E feed-forward networks for each row.
//!
//! [`route`] turns the router's logits into expert ids and weights, [`ExpertPlan`] says where each expert's rows are,
//! [`dispatch`] lays the rows out by expert, [`expert_linear`] multiplies each expert's rows with its own weight, and
//! [`combine`] adds up what the experts make of a row, by its weights. [`mixture`] is all of it:
//! `y_n = Σ_j w_nj · down_e (silu(gate_e x_n) ⊙ (up_e x_n))` with `e = ids_nj` (Shazeer et al., "Outrageously large
//! neural networks", 2017; the gated feed-forward network is that of Shazeer, "GLU variants improve transformer", 2020).
//!
//! Ids may be recorded by one program and forced on another: which experts run is then given, and the weights are
//! those of the fresh logits. Row-invariant: an expert's product treats every row alike and a row's k results are
//! added in the order of expert ids, so a row's result depends on that row, its ids and its weights only, bit for bit.

mod exchange;
mod grouped;
mod plan;
mod route;

use candle_core::{Result, Tensor};

use super::storage::refuse;
use super::swiglu::swiglu;

pub use exchange::{combine, dispatch};
pub use grouped::expert_linear;
pub use plan::ExpertPlan;
pub use route::route;

/// The feed-forward layer of a mixture of experts.
///
/// Shapes: x `[N, D]`, ids `[N, k]` (`u32`) and weights `[N, k]` as [`route`] gives them, gate and up `[E, F, D]`,
/// down `[E, D, F]`, result `[N, D]`. Differentiable in x, weights and the experts' own weights. Errors when a shape
/// does not fit, an id is not below E or one row has an id twice.
pub fn mixture(
    x: &Tensor,
    ids: &Tensor,
    weights: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    down: &Tensor,
) -> Result<Tensor> {
    let experts = check(x, ids, weights, [gate, up, down])?;
    let plan = ExpertPlan::new(ids, experts)?;
    let rows = dispatch(x, &plan)?;
    let hidden = swiglu(&expert_linear(&rows, gate, &plan)?, &expert_linear(&rows, up, &plan)?)?;
    combine(&expert_linear(&hidden, down, &plan)?, weights, &plan)
}

/// E, when every shape fits.
fn check(x: &Tensor, ids: &Tensor, weights: &Tensor, [gate, up, down]: [&Tensor; 3]) -> Result<usize> {
    match (x.dims(), ids.dims(), gate.dims()) {
        (&[n, d], &[rows, k], &[experts, f, inputs])
            if (rows, inputs) == (n, d)
                && weights.dims() == [n, k]
                && up.dims() == [experts, f, d]
                && down.dims() == [experts, d, f] =>
        {
            Ok(experts)
        }
        (x, ids, gate) => refuse(
            "mixture",
            format!(
                "x {x:?}, ids {ids:?}, weights {:?}, gate {gate:?}, up {:?} and down {:?} must be [N, D], [N, k], \
                 [N, k], [E, F, D], [E, F, D] and [E, D, F]",
                weights.dims(),
                up.dims(),
                down.dims()
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
