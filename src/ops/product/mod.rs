//! Matrix products: one that treats every row alike, and the general one of the `gemm` crate for gradients.
//!
//! [`rows`] is the forward product. Each output is one chain of multiply-adds over the inputs in order of their
//! index, whatever the number of rows, their position, the thread and the vector width, so a row's result depends on
//! that row only, bit for bit. (A general product cannot promise this: it changes its path with the shape; `gemm` sums
//! in another order for a few rows or a few outputs.) [`multiply`] serves the gradients.

mod forward;
mod general;
mod panels;
mod weight_gradient;

pub(super) use forward::{Weight, rows};
pub(super) use general::{Matrix, inputs_gradient, multiply};
pub(super) use panels::PackedWeight;
#[cfg(target_arch = "x86_64")]
pub(super) use panels::transpose_avx;
pub(super) use weight_gradient::{add_weight_gradient, weight_gradient};
