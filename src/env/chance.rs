//! Where an environment's random outcomes come from.
//!
//! Environments draw through [`Chance`] instead of naming a generator, so that a test can hand them the outcomes
//! which a reference implementation drew and compare the two step by step.

use crate::random::CounterRng;

/// A source of random outcomes.
pub trait Chance: Send {
    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64;

    /// Uniform over `0..n`. `n` must be positive.
    fn below(&mut self, n: usize) -> usize;

    /// True with probability `p`.
    fn bernoulli(&mut self, p: f64) -> bool {
        self.uniform() < p
    }
}

impl Chance for CounterRng {
    fn uniform(&mut self) -> f64 {
        CounterRng::uniform(self)
    }

    fn below(&mut self, n: usize) -> usize {
        CounterRng::below(self, n)
    }
}
