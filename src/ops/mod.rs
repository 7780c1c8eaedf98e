//! Differentiable operators for the CPU, each one fused pass with a backward pass of its own; most have a twin for CUDA
//! devices (feature `cuda`).
//!
//! On the CPU they serve `f32` (to compute with) and `f64` (to check gradients with), the twins serve `f32` and `bf16`;
//! on other devices and types each falls back to the same function composed of candle's differentiable operators.
//! Invariants, for all of them on the CPU:
//!
//! - *row invariance*: what comes out for one row (image, sequence) depends on that row only, bit for bit, whatever
//!   the batch around it and the number of threads;
//! - a tracked input always gets a gradient, an untracked one costs none;
//! - inputs may be views at any offset; strided ones are made contiguous first;
//! - a NaN going in comes out: no comparison hides it.
//!
//! | operator | inputs | result |
//! |---|---|---|
//! | [`linear`]`(x, weight, bias, activation)` | `[N, K]`, `[O, K]`, `[O]` or none | `[N, O]` |
//! | [`activate`]`(z, activation)` | any | alike |
//! | [`conv2d`]`(x, weight, bias, stride, padding, activation)` | `[N, H, W, C]`, `[O, kh, kw, C]`, `[O]` | `[N, OH, OW, O]` |
//! | [`max_pool2d`]`(x, kernel, stride, padding)` | `[N, H, W, C]` | `[N, OH, OW, C]` |
//! | [`mask_logits`]`(logits, mask)` | `[N, A]`, `u8` `[N, A]` | `[N, A]` |
//! | [`categorical`]`(logits, actions)` | `[N, A]`, `u32` `[N]` | `[N, 2]`: log-probability, entropy |
//! | [`squashed_gaussian`]`(mean, log_std, before)` | `[N, D]` each | `[N, 2]`: log-probability, entropy |
//! | [`lstm_step`]`(x, state, parameters)` | `[N, I]`, `[N, 2H]` (h, c) | `[N, 2H]` |
//! | [`lstm_unroll`]`(x, state, starts, parameters)` | `[T, N, I]`, `[N, 2H]`, `u8` `[T, N]` | `[T, N, H]`, `[T, N, 2H]` |
//! | [`embedding`]`(weight, ids)` | `[V, D]`, `u32` `[..]` | `[.., D]` |
//! | [`rms_norm`]`(x, weight, epsilon)` | `[.., D]`, `[D]` | `[.., D]` |
//! | [`layer_norm`]`(x, weight, bias, epsilon)` | `[.., D]`, `[D]`, `[D]` | `[.., D]` |
//! | [`rotary`]`(x, cosine, sine, positions)` | `[N, H, D]`, `[P, D/2]` twice, `u32` `[N]` | `[N, H, D]` |
//! | [`attention`]`(q, k, v, sequences, scale)` | `[N, H, D]`, `[N, G, D]` twice | `[N, H, D]` |
//! | [`swiglu`]`(gate, up)` | any shape, twice | the same |
//! | [`sum`]`(x, y)` | any shape, twice | the same |
//! | [`vocabulary_log_prob`]`(x, weight, targets, temperature)` | `[N, D]`, `[V, D]`, `u32` `[N]` | `[N, 2]`: log-probability, entropy |
//! | [`candidate_log_prob`]`(x, weight, targets, sets, temperature)` | as above, and N sets of ids | `[N, 2]`: the same among the ids |
//! | [`route`]`(logits, k, normalise, forced)` | `[N, E]`, `u32` `[N, k]` | `u32` `[N, k]`: expert ids, `[N, k]`: weights |
//! | [`dispatch`]`(x, plan)` | `[N, D]` | `[N·k, D]`, grouped by expert |
//! | [`expert_linear`]`(x, weight, plan)` | `[N·k, K]`, `[E, O, K]` | `[N·k, O]` |
//! | [`combine`]`(y, weights, plan)` | `[N·k, D]`, `[N, k]` | `[N, D]` |
//! | [`mixture`]`(x, ids, weights, gate, up, down)` | `[N, D]`, `u32` `[N, k]`, `[N, k]`, `[E, F, D]` twice, `[E, D, F]` | `[N, D]` |
//!
//! Weights may be given laid out ([`PreparedWeight`]), which gives the same bits. So do the twins for actors that work
//! on plain slices: [`log_prob_and_entropy`], [`sample_categorical`], [`squashed_log_prob_and_entropy`],
//! [`sample_before_squashing`], [`PagedAttention`], [`sample_token`]. The thread policy is in [`with_threads`]. The
//! operators of dense layers may be differentiated along a [`Tape`] instead of candle's graph.

// Inner loops must be inlined into the function that was compiled for the chosen instruction set.
#![allow(clippy::inline_always)]

mod activation;
mod attention;
mod categorical;
mod columns;
mod conv;
#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
pub(crate) mod cuda;
mod elementary;
mod embedding;
mod experts;
mod gaussian;
mod gradient_sum;
mod lanes;
mod linear;
mod lstm;
mod max_pool;
mod memory;
mod norm;
mod parallel;
mod patches;
mod prepared;
mod product;
mod reduce;
mod rotary;
#[cfg(test)]
mod row_invariance;
mod sampling;
mod storage;
mod sum;
mod swiglu;
mod tape;
#[cfg(test)]
mod testing;
mod vocabulary;

pub use activation::{Activation, activate};
pub use attention::{KEY_TILE, Page, PagedAttention, PagedRows, Sequence, attention};
pub use categorical::{MASKED, argmax, categorical, log_prob_and_entropy, mask_logits, sample_categorical};
pub use conv::conv2d;
pub use embedding::embedding;
pub use experts::{ExpertPlan, combine, dispatch, expert_linear, mixture, route};
pub use gaussian::{sample_before_squashing, squashed_gaussian, squashed_log_prob_and_entropy};
pub use gradient_sum::GradientSum;
pub use linear::linear;
pub use lstm::{LstmParameters, lstm_cell, lstm_step, lstm_unroll};
pub use max_pool::max_pool2d;
pub use norm::{layer_norm, rms_norm};
pub use parallel::{threads, with_threads};
pub use prepared::{PreparedWeight, WeightRef};
pub use rotary::rotary;
pub use sampling::{Sampled, Sampling, SamplingScratch, sample_token};
pub use sum::sum;
pub use swiglu::swiglu;
pub use tape::{Tape, reshape};
pub use vocabulary::{CandidateSets, candidate_log_prob, vocabulary_log_prob};
