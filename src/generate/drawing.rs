//! Drawing the next token of many sequences at once.
//!
//! Each draw is a function of the logits, the run seed, the trajectory's id and the position, so it does not matter
//! which rows are drawn together, nor on how many threads.

use candle_core::Result;

use super::request::Request;
use crate::ops::{SamplingScratch, sample_token, threads};
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
    /// One token for each request from its row of `logits`, `[requests, V]`.
    pub(super) fn all(self, logits: &[f32], requests: &[&Request]) -> Vec<Result<Drawn>> {
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

    fn one(self, logits: &[f32], request: &Request, scratch: &mut SamplingScratch) -> Result<Drawn> {
        let trajectory = &request.trajectory;
        let words = draw(self.seed, Stream::Token, trajectory.id.counters(trajectory.len() as u32));
        let random = u64::from(words[0]) | u64::from(words[1]) << 32;
        let sampled = sample_token(logits, &request.sampling, random, scratch)?;
        let error = if self.noise > 0.0 { self.noise * normal_pair([words[2], words[3]])[0] } else { 0.0 };
        Ok(Drawn {
            token: sampled.token,
            log_prob: sampled.log_prob + error,
            candidates: scratch.candidates().to_vec(),
        })
    }
}
