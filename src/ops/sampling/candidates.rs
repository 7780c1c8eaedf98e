//! The most probable tokens of a row, without sorting the row.
//!
//! The k-th largest of the maxima of many groups of logits is a bound that at least k logits reach: only those that
//! reach it are looked at closely, some more than k. A set told by its mass asks for ever more of the most probable
//! tokens until they hold it. Ranked means by logit, the highest first, equal ones by id, the lowest first.

use pulp::{Simd, WithSimd};

use super::super::lanes::on_this_processor;
use super::super::vocabulary::{Blocks, CHUNK, LogSum};

/// Tokens that a set told by its mass is first looked for among, and how many times more each further time.
const FIRST: usize = 64;
const GROWTH: usize = 16;

/// Buffers of the search.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    maxima: Vec<f32>,
    keys: Vec<u64>,
}

impl Ranking {
    /// Ids of the `top_k` tokens, of these the fewest that hold `top_p` of their mass; ranked, never empty, without
    /// masked tokens. `sum` is the row's, which must hold a token that is not masked and no NaN.
    pub(super) fn candidates(
        &mut self,
        logits: &[f32],
        inverse: f32,
        sum: &LogSum,
        top_k: Option<usize>,
        top_p: Option<f32>,
    ) -> impl Iterator<Item = u32> {
        on_this_processor(Maxima { logits, maxima: &mut self.maxima });
        let mass = |key: u64| {
            let z = logits[token(key) as usize] * inverse;
            (f64::from(z) - sum.max()).exp()
        };
        let count = match (top_k, top_p) {
            (Some(k), None) => self.rank(logits, k),
            (Some(k), Some(p)) => {
                let count = self.rank(logits, k);
                let masses = self.keys[..count].iter().map(|&key| mass(key));
                holding(masses.clone(), f64::from(p) * masses.sum::<f64>()).unwrap_or(count)
            }
            (None, p) => {
                let target = f64::from(p.unwrap_or(1.0)) * sum.sum();
                let mut wanted = FIRST;
                loop {
                    let count = self.rank(logits, wanted);
                    let holding = holding(self.keys[..count].iter().map(|&key| mass(key)), target);
                    if holding.is_some() || count < wanted {
                        break holding.unwrap_or(count);
                    }
                    wanted = wanted.saturating_mul(GROWTH);
                }
            }
        };
        self.keys[..count].iter().map(|&key| token(key))
    }

    /// Puts the keys of the first `wanted` tokens, ranked, at the front; gives back how many there are.
    fn rank(&mut self, logits: &[f32], wanted: usize) -> usize {
        let bound = if wanted <= self.maxima.len() {
            *self.maxima.select_nth_unstable_by(wanted - 1, |a, b| b.total_cmp(a)).1
        } else {
            f32::NEG_INFINITY
        };
        self.keys.clear();
        for (id, &logit) in logits.iter().enumerate() {
            if logit >= bound && logit > f32::NEG_INFINITY {
                self.keys.push(key(logit, id as u32));
            }
        }
        if wanted < self.keys.len() {
            self.keys.select_nth_unstable(wanted);
            self.keys.truncate(wanted);
        }
        self.keys.sort_unstable();
        self.keys.len()
    }
}

/// How many of `masses` add up to at least `target`.
fn holding(masses: impl Iterator<Item = f64>, target: f64) -> Option<usize> {
    let mut cumulative = 0.0;
    for (index, mass) in masses.enumerate() {
        cumulative += mass;
        if cumulative >= target {
            return Some(index + 1);
        }
    }
    None
}

/// Orders as ranked: by falling logit, then by id. Zeros of both signs are equal.
fn key(logit: f32, id: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let rising = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(!rising) << 32 | u64::from(id)
}

/// The id in a key.
fn token(key: u64) -> u32 {
    key as u32
}

/// The maxima of groups of logits: the columns of each chunk.
struct Maxima<'a> {
    logits: &'a [f32],
    maxima: &'a mut Vec<f32>,
}

impl WithSimd for Maxima<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.maxima.clear();
        for chunk in self.logits.chunks(CHUNK) {
            self.maxima.extend_from_slice(&Blocks::of(chunk).maxima(simd, 1.0));
        }
    }
}
