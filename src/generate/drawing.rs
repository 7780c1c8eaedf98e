//! Drawing the next token of many sequences at once.
//!
//! Each draw is a function of the logits, the run seed, the trajectory's id and the position, so it does not matter
//! which rows are drawn together, nor on how many threads. On a device, rows that are drawn from all tokens at one
//! temperature are drawn by a kernel, with the same randomness; the others need their candidates recorded, and are
//! copied to host memory and drawn there.

#[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
mod on_device;

use candle_core::{DType, Device, Result, Tensor};

use super::pages::slice;
use super::request::Request;
use crate::ops::{Sampling, SamplingScratch, sample_token, threads};
use crate::random::{Stream, draw, normal_pair};

/// Logits below this many are drawn from by the calling thread alone: waking another one takes as long.
const SHARING_THRESHOLD: usize = if cfg!(test) { 1 << 6 } else { 1 << 16 };

/// What was drawn for one sequence.
#[derive(Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) token: u32,
    pub(super) log_prob: f32,
    /// Tokens that it was drawn from, when those were not all.
    pub(super) candidates: Vec<u32>,
}

/// What all draws have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawing {
    /// Of the run.
    pub(super) seed: u64,
    /// Standard deviation of the error on the log-probabilities.
    pub(super) noise: f32,
}

impl Drawing {
    /// One token for each request from its row of `logits`, `[requests, V]`; `kernels`: where that can be, by a kernel.
    ///
    /// # Errors
    /// When a device fails. An impossible draw is an error of its row.
    pub(super) fn all(
        self,
        logits: &Tensor,
        requests: &[&Request],
        kernels: bool,
    ) -> Result<Vec<Result<Drawn>>> {
        #[cfg(any(feature = "cuda", feature = "kernel-emulation"))]
        if let Some(temperature) = common_temperature(requests, logits.dim(1)?).filter(|_| kernels) {
            return self.by_kernel(logits, requests, temperature);
        }
        #[cfg(not(any(feature = "cuda", feature = "kernel-emulation")))]
        debug_assert!(!kernels, "this build has no kernels");
        let logits = logits.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let (storage, layout) = logits.storage_and_layout();
        Ok(self.on_host(slice(&storage, layout)?, requests))
    }

    fn on_host(self, logits: &[f32], requests: &[&Request]) -> Vec<Result<Drawn>> {
        let count = requests.len();
        let width = logits.len().checked_div(count).unwrap_or(0);
        let shares = if logits.len() < SHARING_THRESHOLD { 1 } else { threads().clamp(1, count.max(1)) };
        let share = count.div_ceil(shares).max(1);
        let mut drawn: Vec<Option<Result<Drawn>>> = (0..count).map(|_| None).collect();
        let run = |logits: &[f32], requests: &[&Request], drawn: &mut [Option<Result<Drawn>>]| {
            let mut scratch = SamplingScratch::default();
            for ((row, request), place) in logits.chunks_exact(width).zip(requests).zip(drawn) {
                *place = Some(self.one(row, request, &mut scratch));
            }
        };
        if shares <= 1 {
            run(logits, requests, &mut drawn);
        } else {
            rayon::scope(|scope| {
                let rows = logits.chunks(share * width).zip(requests.chunks(share));
                for ((logits, requests), drawn) in rows.zip(drawn.chunks_mut(share)) {
                    scope.spawn(move |_| run(logits, requests, drawn));
                }
            });
        }
        drawn.into_iter().flatten().collect()
    }

    /// The words of a request's next draw: two for the token, two for the error on its log-probability.
    fn words(self, request: &Request) -> [u32; 4] {
        let trajectory = &request.trajectory;
        draw(self.seed, Stream::Token, trajectory.id.counters(trajectory.len() as u32))
    }

    /// The error on a log-probability.
    fn error(self, words: [u32; 4]) -> f32 {
        if self.noise > 0.0 { self.noise * normal_pair([words[2], words[3]])[0] } else { 0.0 }
    }

    fn one(self, logits: &[f32], request: &Request, scratch: &mut SamplingScratch) -> Result<Drawn> {
        let words = self.words(request);
        let random = u64::from(words[0]) | u64::from(words[1]) << 32;
        let sampled = sample_token(logits, &request.sampling, random, scratch)?;
        Ok(Drawn {
            token: sampled.token,
            log_prob: sampled.log_prob + self.error(words),
            candidates: scratch.candidates().to_vec(),
        })
    }
}

/// The temperature of all draws, when each of them is from all `vocabulary` tokens (or takes the most probable).
#[cfg_attr(
    not(any(feature = "cuda", feature = "kernel-emulation")),
    expect(dead_code, reason = "only kernels draw many rows alike")
)]
fn common_temperature(requests: &[&Request], vocabulary: usize) -> Option<f32> {
    let temperature = requests.first()?.sampling.temperature;
    let alike = |request: &&Request| {
        let Sampling { temperature: own, top_k, top_p } = request.sampling;
        let restricted = top_k.is_some_and(|k| k < vocabulary) || top_p.is_some_and(|p| p < 1.0);
        own == temperature && (own == 0.0 || !restricted)
    };
    requests.iter().all(alike).then_some(temperature)
}
