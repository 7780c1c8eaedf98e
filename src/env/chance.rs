//! The random outcomes that an environment asks for.
//!
//! Rules that draw through this trait can be driven by the counter-based generator of a run, or by outcomes that
//! were recorded from another implementation of the same rules, so that both can be compared step by step.

use crate::random::CounterRng;

/// A source of random outcomes.
pub trait Chance: Send {
    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64;

    /// Uniform over `0..n`; `n` must be positive.
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

/// Outcomes recorded elsewhere, given back in order. A request that differs from the recorded one panics: the two
/// implementations then do not draw alike.
#[cfg(test)]
pub(crate) mod replay {
    use std::collections::VecDeque;

    use super::Chance;

    /// One recorded outcome.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub(crate) enum Outcome {
        /// Of `uniform`.
        Uniform(f64),
        /// Of `below`.
        Below {
            /// The exclusive bound asked for.
            n: usize,
            /// What came.
            value: usize,
        },
    }

    /// The recorded outcomes not yet given back.
    #[derive(Debug, Default)]
    pub(crate) struct Replay(VecDeque<Outcome>);

    impl Replay {
        /// Gives back `outcomes`, first to last.
        pub(crate) fn new(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
            Self(outcomes.into_iter().collect())
        }

        /// Whether every outcome has been asked for.
        pub(crate) fn is_exhausted(&self) -> bool {
            self.0.is_empty()
        }
    }

    impl Chance for Replay {
        fn uniform(&mut self) -> f64 {
            match self.0.pop_front() {
                Some(Outcome::Uniform(value)) => value,
                other => panic!("asked for a uniform value, the record has {other:?}"),
            }
        }

        fn below(&mut self, n: usize) -> usize {
            match self.0.pop_front() {
                Some(Outcome::Below { n: recorded, value }) if recorded == n => value,
                other => panic!("asked for a value below {n}, the record has {other:?}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::replay::{Outcome, Replay};
    use super::*;

    #[test]
    fn the_generator_draws_the_same_through_the_trait() {
        let (mut plain, mut generator) = (CounterRng::new(5), CounterRng::new(5));
        let chance: &mut dyn Chance = &mut generator;
        assert_eq!((chance.uniform(), chance.below(10)), (plain.uniform(), plain.below(10)));
    }

    #[test]
    fn bernoulli_is_true_as_often_as_asked() {
        let mut chance = CounterRng::new(1);
        let hits = (0..10_000).filter(|_| chance.bernoulli(0.1)).count();
        assert!((900..1100).contains(&hits), "{hits} of 10000");
        assert!(!chance.bernoulli(0.0) && chance.bernoulli(1.0));
    }

    #[test]
    fn a_replay_gives_the_recorded_outcomes_in_order() {
        let mut replay = Replay::new([Outcome::Below { n: 5, value: 3 }, Outcome::Uniform(0.25)]);
        assert_eq!(replay.below(5), 3);
        assert!(!replay.is_exhausted());
        assert_eq!(replay.uniform(), 0.25);
        assert!(replay.is_exhausted());
    }

    #[test]
    #[should_panic(expected = "asked for a value below 4")]
    fn a_replay_refuses_a_request_that_was_not_recorded() {
        Replay::new([Outcome::Below { n: 5, value: 3 }]).below(4);
    }
}
