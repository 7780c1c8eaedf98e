//! How much work a step holds, so that neither generation nor learning waits for the other.
//!
//! Both go on at once, and the slower one sets the pace; the other has time to spare. With T_g the time that generation
//! takes for a batch and T_t that of an update, each for the least work of a step (two answers a problem, one pass):
//!
//! ```text
//! generation-bound   passes over each batch     T = ⌊T_g / T_t⌋     from 1 to the most
//! training-bound     answers to each problem    K = 2 ⌊T_t / T_g⌋   from 2 to the most, two of them kept
//! ```
//!
//! Source of the remedies: Noukhovitch et al., "Asynchronous RLHF", 2024 (arXiv 2410.18252); the rule is Forebay's own.
//!
//! Both times are running means. A quotient has to pass the next whole number by [`MARGIN`] before it counts, in either
//! direction, so that a choice near a border does not change with every measurement. Since a time is told per unit of
//! the work that was done, a choice does not undermine its own reason.
//!
//! Invariants: no clock is read here, so that the same measurements give the same choices; choices stay within their
//! bounds; without measurements they are the least.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measurements before anything is chosen: the first updates of a run are not like the others.
const WARMING: u64 = 3;
/// Weight of a new measurement in the running means, once there are enough.
const WEIGHT: f64 = 0.2;
/// How far a quotient has to be beyond a border.
pub const MARGIN: f64 = 1.1;

/// A setting that may be chosen in the course of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Automatic {
    /// `learner.epochs` is the most, and as many passes as fit into the time that generation takes are made.
    Epochs,
    /// `learner.group_size` is the most, and as many answers are sampled as fit into the time that an update takes.
    GroupSize,
}

/// The most that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Passes over a batch; `None`: they are not chosen.
    pub epochs: Option<u64>,
    /// Answers to a problem; `None`: they are not chosen.
    pub answers: Option<u64>,
}

/// What was done since the last update, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Time that generation computed, seconds.
    pub generate: f64,
    /// Time that the update took, seconds.
    pub train: f64,
    /// Passes that the update made over its batch.
    pub epochs: u64,
    /// Answers that were sampled for each problem of the batch, on average.
    pub answers: f64,
}

/// A mean that forgets; plain over the first measurements.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Running {
    mean: f64,
    count: u64,
}

impl Running {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let weight = WEIGHT.max(1.0 / self.count as f64);
        self.mean += weight * (value - self.mean);
    }

    fn settled(self) -> Option<f64> {
        (self.count >= WARMING && self.mean > 0.0).then_some(self.mean)
    }
}

/// Running means and the choices that follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Seconds for a batch: for two answers a problem where their number is chosen, for all otherwise.
    generate: Running,
    /// Seconds for an update: for one pass where their number is chosen, for all otherwise.
    train: Running,
    epochs: u64,
    pairs: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Self { generate: Running::default(), train: Running::default(), epochs: 1, pairs: 1 }
    }
}

impl Balance {
    /// Passes over a batch from now on.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Answers to problems that are asked from now on.
    #[must_use]
    pub fn answers(&self) -> u64 {
        2 * self.pairs
    }

    /// Running mean of the time that generation takes for the least work of a step, seconds; `None` before it has
    /// settled.
    #[must_use]
    pub fn generate_seconds(&self) -> Option<f64> {
        self.generate.settled()
    }

    /// The same of an update.
    #[must_use]
    pub fn train_seconds(&self) -> Option<f64> {
        self.train.settled()
    }

    /// Takes a measurement and chooses anew. What is not a positive time is passed over.
    pub fn measure(&mut self, work: Work, bounds: Bounds) {
        let of_generation = bounds.answers.map_or(1.0, |_| work.answers / 2.0);
        let of_learning = bounds.epochs.map_or(1.0, |_| work.epochs as f64);
        let (generate, train) = (work.generate / of_generation, work.train / of_learning);
        let usable = |time: f64| time.is_finite() && time > 0.0;
        if !usable(generate) || !usable(train) {
            return;
        }
        self.generate.add(generate);
        self.train.add(train);
        let (Some(generate), Some(train)) = (self.generate.settled(), self.train.settled()) else { return };
        if let Some(most) = bounds.epochs {
            self.epochs = choose(self.epochs, generate / train, most);
        }
        if let Some(most) = bounds.answers {
            self.pairs = choose(self.pairs, train / generate, most / 2);
        }
    }
}

/// The whole number below a quotient, from 1 to `most`, unless the quotient is within the margin of `now`.
fn choose(now: u64, quotient: f64, most: u64) -> u64 {
    let (low, high) = ((quotient / MARGIN).floor(), (quotient * MARGIN).floor());
    let now = now as f64;
    let chosen = if low > now { low } else { high.min(now) };
    chosen.clamp(1.0, most.max(1) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Bounds = Bounds { epochs: Some(3), answers: Some(8) };

    /// The choices after `updates` steps on a machine that needs so long for two answers a problem and for one pass.
    fn run(balance: &mut Balance, generate: f64, train: f64, updates: usize) -> (u64, u64) {
        for _ in 0..updates {
            let (epochs, answers) = (balance.epochs(), balance.answers() as f64);
            let work =
                Work { generate: generate * answers / 2.0, train: train * epochs as f64, epochs, answers };
            balance.measure(work, BOTH);
        }
        (balance.epochs(), balance.answers())
    }

    #[test]
    fn time_to_spare_becomes_passes_or_answers_up_to_their_bounds() {
        for (generate, train, expected) in [
            (1.0, 1.0, (1, 2)),
            (1.5, 1.0, (1, 2)),
            (2.5, 1.0, (2, 2)),
            (30.0, 1.0, (3, 2)),
            (1.0, 1.5, (1, 2)),
            (1.0, 2.5, (1, 4)),
            (1.0, 3.5, (1, 6)),
            (1.0, 30.0, (1, 8)),
        ] {
            assert_eq!(run(&mut Balance::default(), generate, train, 50), expected, "{generate} and {train}");
        }
    }

    #[test]
    fn nothing_is_chosen_from_the_first_measurements_or_from_none() {
        let mut balance = Balance::default();
        assert_eq!(run(&mut balance, 9.0, 1.0, 2), (1, 2));
        assert_eq!(balance.generate_seconds(), None);
        assert_eq!(run(&mut balance, 9.0, 1.0, 1), (3, 2));
        assert_eq!((balance.generate_seconds(), balance.train_seconds()), (Some(9.0), Some(1.0)));
    }

    #[test]
    fn what_is_not_chosen_stays_as_it_is_set() {
        let mut balance = Balance::default();
        let work = Work { generate: 9.0, train: 1.0, epochs: 2, answers: 16.0 };
        (0..5).for_each(|_| balance.measure(work, Bounds::default()));
        assert_eq!((balance.epochs(), balance.answers()), (1, 2));
        // Times are then those of the whole step.
        assert_eq!((balance.generate_seconds(), balance.train_seconds()), (Some(9.0), Some(1.0)));
    }

    #[test]
    fn measurements_that_straddle_a_border_do_not_make_a_choice_flap() {
        for border in [2.0, 3.0] {
            for generation_bound in [true, false] {
                let mut balance = Balance::default();
                let mut changes = 0;
                for update in 0..200 {
                    let before = (balance.epochs(), balance.answers());
                    let quotient = border * if update % 2 == 0 { 0.95 } else { 1.05 };
                    let (generate, train) = if generation_bound { (quotient, 1.0) } else { (1.0, quotient) };
                    let after = run(&mut balance, generate, train, 1);
                    changes += usize::from(before != after);
                }
                assert!(changes <= 1, "{changes} changes at {border}");
            }
        }
    }

    #[test]
    fn a_choice_is_taken_back_when_its_reason_goes_away() {
        let mut balance = Balance::default();
        assert_eq!(run(&mut balance, 5.0, 1.0, 10), (3, 2));
        assert_eq!(run(&mut balance, 1.0, 5.0, 40), (1, 8));
        assert_eq!(run(&mut balance, 1.0, 1.0, 40), (1, 2));
    }

    /// Part of an update does not grow with its passes: counting it to them may only make the choice more careful.
    #[test]
    fn an_update_never_takes_longer_than_generation_because_of_passes_that_were_added() {
        for preparation in [0.0, 0.3, 1.0, 3.0] {
            for generate in [1.5, 2.5, 4.0, 4.5, 8.0] {
                let (mut balance, bounds) = (Balance::default(), Bounds { epochs: Some(3), answers: None });
                let mut last = 1;
                for update in 0..200 {
                    let epochs = balance.epochs();
                    let train = preparation + epochs as f64;
                    balance.measure(Work { generate, train, epochs, answers: 8.0 }, bounds);
                    assert!(
                        update < 100 || epochs == last,
                        "{preparation}, {generate}: {epochs} after {last}"
                    );
                    last = epochs;
                }
                let train = preparation + last as f64;
                assert!(last == 1 || train <= MARGIN * generate, "{preparation}, {generate}: {last}");
            }
        }
    }

    #[test]
    fn times_that_are_none_are_passed_over() {
        let mut balance = Balance::default();
        for (generate, train) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0), (1.0, f64::INFINITY)] {
            for _ in 0..5 {
                balance.measure(Work { generate, train, epochs: 1, answers: 2.0 }, BOTH);
            }
        }
        assert_eq!(balance, Balance::default());
    }
}
