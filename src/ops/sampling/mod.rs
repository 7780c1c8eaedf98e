//! Drawing the next token from its logits: temperature, the k most probable, the most probable up to a mass, greedy.
//!
//! A draw is a pure function of the logits, the settings and 64 random bits, which the caller takes from counter-based
//! randomness. It inverts the cumulative distribution in the order of token ids: the part of the sum that each chunk
//! of the vocabulary holds (summed as [`super::vocabulary_log_prob`] sums it) leads to a chunk, and only that chunk is
//! gone over again. Without a candidate set the log-probability therefore has the bits that the learner computes.
//!
//! With a candidate set (`top_k`, then `top_p` among those) the logits of the candidates, in the order of their ids,
//! take the place of the row: what is drawn, and its log-probability, are those of the renormalised set.

mod candidates;

use candle_core::Result;
use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::categorical::argmax;
use super::lanes::{Lanes, on_this_processor};
use super::storage::refuse;
use super::vocabulary::{CHUNK, LogSum, Part, inverse_temperature};

use candidates::Ranking;

/// How a token is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the most probable token (the lowest id on ties).
    pub temperature: f32,
    /// Draw from this many of the most probable tokens only; of equals at the border the lower ids stay.
    pub top_k: Option<usize>,
    /// Draw from the fewest most probable tokens only whose probabilities (at this temperature, among the `top_k`)
    /// add up to at least this; 1 leaves every token in.
    pub top_p: Option<f32>,
}

impl Default for Sampling {
    /// The distribution as it is.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None }
    }
}

impl Sampling {
    /// Temperatures between 0 and this one would only overflow the scaled logits; greedy is what they mean.
    pub const LOWEST_TEMPERATURE: f32 = 1e-3;

    /// Errors, naming the field, when a value is out of its range.
    pub fn validate(&self) -> Result<()> {
        let Self { temperature, top_k, top_p } = *self;
        if temperature != 0.0 && !(temperature >= Self::LOWEST_TEMPERATURE && temperature.is_finite()) {
            return refuse(
                "sampling",
                format!(
                    "temperature {temperature} must be 0 (greedy) or a number of at least {}",
                    Self::LOWEST_TEMPERATURE
                ),
            );
        }
        if top_k == Some(0) {
            return refuse("sampling", "top_k 0 must be at least 1; leave it out to draw from every token");
        }
        match top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => {
                refuse("sampling", format!("top_p {p} must be above 0 and at most 1"))
            }
            _ => Ok(()),
        }
    }
}

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Its log-probability, in nats, in the distribution it was drawn from: at the temperature, within the candidates.
    /// For a greedy draw, whose own distribution is certain, that of the model as it is (temperature 1, every token),
    /// which says something.
    pub log_prob: f32,
    /// Tokens it was drawn from: those not masked (-∞), or the size of the candidate set; 1 when greedy.
    pub candidates: u32,
}

/// Buffers that [`sample_token`] uses again from call to call.
#[derive(Debug, Default)]
pub struct SamplingScratch {
    parts: Vec<Part<f32>>,
    ranking: Ranking,
    /// Ids of the candidates, ascending, and their logits.
    ids: Vec<u32>,
    logits: Vec<f32>,
}

impl SamplingScratch {
    /// Ids of the tokens that the last draw was restricted to, ascending; empty when it was not restricted, or greedy.
    #[must_use]
    pub fn candidates(&self) -> &[u32] {
        &self.ids
    }
}

/// Draws one token from its logits `[V]`. `random` is 64 uniform bits, such as [`crate::random::derive_seed`] gives.
///
/// A logit of -∞ masks its token: it is never drawn. Errors when a setting is out of range, a logit is NaN or +∞, or
/// no token is left to draw.
pub fn sample_token(
    logits: &[f32],
    sampling: &Sampling,
    random: u64,
    scratch: &mut SamplingScratch,
) -> Result<Sampled> {
    sampling.validate()?;
    let greedy = sampling.temperature == 0.0;
    let temperature = if greedy { 1.0 } else { f64::from(sampling.temperature) };
    let inverse = inverse_temperature(temperature);
    let SamplingScratch { parts, ranking, ids, logits: kept } = scratch;
    ids.clear();
    let sum = sum(logits, inverse, parts);
    if sum.sum().is_nan() {
        return refuse("sample_token", "a logit is NaN or infinite");
    }
    if sum.sum() == 0.0 {
        return refuse("sample_token", format!("none of {} tokens is allowed", logits.len()));
    }
    if greedy {
        let token = argmax(logits);
        return Ok(Sampled { token: token as u32, log_prob: sum.log_prob(logits[token]), candidates: 1 });
    }
    let top_k = sampling.top_k.filter(|&k| k < logits.len());
    let top_p = sampling.top_p.filter(|&p| p < 1.0);
    if top_k.is_none() && top_p.is_none() {
        let token = draw(logits, inverse, parts, &sum, random);
        let log_prob = sum.log_prob(logits[token] * inverse);
        let candidates = logits.iter().filter(|&&logit| logit > f32::NEG_INFINITY).count();
        return Ok(Sampled { token: token as u32, log_prob, candidates: candidates as u32 });
    }
    ids.extend(ranking.candidates(logits, inverse, &sum, top_k, top_p));
    ids.sort_unstable();
    kept.clear();
    kept.extend(ids.iter().map(|&id| logits[id as usize]));
    let sum = self::sum(kept, inverse, parts);
    let place = draw(kept, inverse, parts, &sum, random);
    let log_prob = sum.log_prob(kept[place] * inverse);
    Ok(Sampled { token: ids[place], log_prob, candidates: ids.len() as u32 })
}

/// What a row comes to, and what each of its chunks does.
fn sum(logits: &[f32], inverse: f32, parts: &mut Vec<Part<f32>>) -> LogSum {
    on_this_processor(SumChunks { logits, inverse, parts });
    let mut sum = LogSum::EMPTY;
    for &part in parts.iter() {
        sum.add(part);
    }
    sum
}

/// Sums up each chunk of a row.
struct SumChunks<'a> {
    logits: &'a [f32],
    inverse: f32,
    parts: &'a mut Vec<Part<f32>>,
}

impl WithSimd for SumChunks<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.parts.clear();
        for chunk in self.logits.chunks(CHUNK) {
            self.parts.push(Part::of(simd, chunk, self.inverse));
        }
    }
}

/// The place at which the cumulative sum passes `random`; one of probability above 0.
fn draw(logits: &[f32], inverse: f32, parts: &[Part<f32>], sum: &LogSum, random: u64) -> usize {
    // 53 bits: every value is exact and below 1.
    let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let masses = parts.iter().map(|&part| sum.mass(part));
    let (chunk, uniform) = pass(masses, uniform * sum.sum());
    let (first, part) = (chunk * CHUNK, &parts[chunk]);
    let logits = &logits[first..logits.len().min(first + CHUNK)];
    let mut weights = [0.0; CHUNK];
    let weights = &mut weights[..logits.len()];
    on_this_processor(Exponentials { logits, inverse, max: part.max(), weights });
    // The parts were summed in another order: take the share of this sum.
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    first + pass(weights.iter().map(|&weight| f64::from(weight)), uniform * total).0
}

/// The first index at which the cumulative sum exceeds `target`, and how far into its own mass that is, in [0, 1).
/// When rounding leaves the target at the very end: the last index that has a mass, and its beginning.
fn pass(masses: impl Iterator<Item = f64>, mut target: f64) -> (usize, f64) {
    let mut last = 0;
    for (index, mass) in masses.enumerate() {
        if target < mass {
            return (index, target / mass);
        }
        if mass > 0.0 {
            last = index;
        }
        target -= mass;
    }
    (last, 0.0)
}

/// `exp(logit · inverse - max)` of the logits of a chunk.
struct Exponentials<'a> {
    logits: &'a [f32],
    inverse: f32,
    max: f32,
    weights: &'a mut [f32],
}

impl WithSimd for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = Lanes::<S, f32>::width();
        for (logits, weights) in self.logits.chunks(width).zip(self.weights.chunks_mut(width)) {
            let z = Lanes::load(simd, logits) * Lanes::splat(simd, self.inverse);
            (z - Lanes::splat(simd, self.max)).exp().store(weights);
        }
    }
}

#[cfg(test)]
mod tests;
