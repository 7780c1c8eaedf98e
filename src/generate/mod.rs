//! Token generation: a synchronous [`Engine`] that is stepped, over a [`crate::policy::Decoder`].
//!
//! Each step is one batched forward pass: a row for every sequence that decodes, and chunks of the prompts that are
//! still to be read. Keys and values live in pages of [`crate::ops::KEY_TILE`] positions; trajectories of one prompt
//! share its full pages. No channel, no clock, no thread of its own: who steps it decides about all of these.
//!
//! Invariants:
//!
//! - a trajectory is a function of its prompt, its id, the run seed, its settings and the weights. Batch, chunks, size
//!   of the cache, threads, preemption, and interruption with or without saved keys and values change no bit of it;
//! - the log-probability recorded for a token is, bit for bit, what a packed forward pass under the same weights gives.
//!   Only keys and values that are kept over a change of weights ([`ResumeMode::KeepKv`]) are excepted, and only for
//!   tokens sampled after the change;
//! - a full cache makes requests wait, never fail; the oldest running sequence always gets the pages it needs, so
//!   every request ends;
//! - pages are reference-counted, and all are free again when nothing is held. Their memory can be given back at any
//!   time between two steps; that, too, changes no bit.

mod config;
mod drawing;
mod engine;
mod error;
mod forward;
mod interrupt;
mod memory;
mod pages;
mod plan;
mod prompts;
mod request;
mod saved;
mod sequence;
mod stops;
#[cfg(test)]
mod tests;
mod usage;
mod weights;

pub use config::EngineConfig;
pub use engine::Engine;
pub use error::GenerateError;
pub use interrupt::{Interrupt, Paused};
pub use request::{Finished, Request};
pub use saved::SavedKv;
pub use stops::{Detokenizer, Stops};
pub use usage::Usage;
pub use weights::{ResumeMode, Weights};
