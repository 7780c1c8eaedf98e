//! Measures the work of steps and has the amount of it chosen, where the settings leave that open (`learner.auto`).
//!
//! The rule is [`Balance`], which knows no clock; this is where it is told the time. With `--serial` nothing is measured
//! and the least is taken throughout, so that a run stays a function of its settings.

use std::time::Duration;

use super::TokenLearnerRole;
use crate::actors::token::plane::ReadyGroup;
use crate::learner::token::TokenLearnerConfig;
use crate::schedule::{Automatic, Balance, Bounds, Work};

/// See the module's documentation.
#[derive(Debug)]
pub struct Balancer {
    /// Running means and choices.
    pub(super) balance: Balance,
    bounds: Bounds,
    /// Whether times count.
    measures: bool,
    /// Time that generation had computed at the last look.
    generated: Duration,
}

impl Balancer {
    /// Goes on from what a checkpoint holds.
    #[must_use]
    pub fn new(config: &TokenLearnerConfig, serial: bool, balance: Balance) -> Self {
        Self {
            balance: if serial { Balance::default() } else { balance },
            bounds: config.bounds(),
            measures: !serial && !config.auto.is_empty(),
            generated: Duration::ZERO,
        }
    }

    /// Passes over a batch from now on, where they are chosen.
    #[must_use]
    pub fn epochs(&self) -> Option<usize> {
        self.bounds.epochs.map(|most| self.balance.epochs().min(most) as usize)
    }

    /// Answers to problems that are asked from now on, where they are chosen.
    #[must_use]
    pub fn answers(&self) -> Option<usize> {
        self.bounds.answers.map(|most| self.balance.answers().min(most) as usize)
    }

    /// An update was applied or skipped after generation had computed so long; `update` is what it came to, if it says
    /// how long one takes.
    fn measure(&mut self, generated: Duration, update: Option<(Duration, u64, f64)>) {
        let since = generated.saturating_sub(std::mem::replace(&mut self.generated, generated));
        if let (true, Some((train, epochs, answers))) = (self.measures, update) {
            let (generate, train) = (since.as_secs_f64(), train.as_secs_f64());
            self.balance.measure(Work { generate, train, epochs, answers }, self.bounds);
        }
    }

    /// The choices that are others than before.
    fn changed(&self, before: &Balance) -> Vec<(Automatic, u64)> {
        let choices = [
            (Automatic::Epochs, self.bounds.epochs, before.epochs(), self.balance.epochs()),
            (Automatic::GroupSize, self.bounds.answers, before.answers(), self.balance.answers()),
        ];
        let changed = choices.into_iter().filter(|(_, bound, before, now)| bound.is_some() && before != now);
        changed.map(|(setting, _, _, now)| (setting, now)).collect()
    }
}

impl TokenLearnerRole {
    /// The work of steps that follow is chosen by what this one took: `passes` over its batch, `None` of an update that
    /// was skipped or left the policy as it was.
    pub(super) fn balance(&mut self, batch_answers: f64, took: Duration, passes: Option<u64>) {
        let before = self.balancer.balance;
        let update = passes.map(|passes| (took, passes, batch_answers));
        self.balancer.measure(self.run.generator_busy.total(), update);
        let balance = &self.balancer.balance;
        if self.balancer.measures {
            self.record.generate_estimate_seconds = balance.generate_seconds();
            self.record.train_estimate_seconds = balance.train_seconds();
        }
        for (setting, now) in self.balancer.changed(&before) {
            tracing::info!("learner.auto: {setting:?} is {now} from here on");
        }
        if let Some(epochs) = self.balancer.epochs() {
            self.learner.set_epochs(epochs);
        }
        if let Some(answers) = self.balancer.answers() {
            self.run.plane.set_answers(answers);
        }
    }

    /// Answers that were sampled for each problem of a batch, on average.
    pub(super) fn answers_of(batch: &[ReadyGroup]) -> f64 {
        batch.iter().map(ReadyGroup::answers).sum::<usize>() as f64 / batch.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> TokenLearnerConfig {
        toml::from_str(text).unwrap()
    }

    const AUTO: &str = "epochs = 3\ngroup_size = 8\nkeep = 'best_and_worst'\nauto = ['epochs', 'group_size']";

    /// So many updates of one second, between which generation computes so long.
    fn updates(balancer: &mut Balancer, count: u64, generation: Duration) {
        for _ in 0..count {
            let generated = balancer.generated + generation;
            let epochs = balancer.epochs().unwrap_or(1) as u64;
            let update = Some((Duration::from_secs(epochs), epochs, balancer.answers().unwrap_or(8) as f64));
            balancer.measure(generated, update);
        }
    }

    #[test]
    fn what_is_not_left_open_is_not_chosen() {
        let mut balancer = Balancer::new(&config(""), false, Balance::default());
        updates(&mut balancer, 9, Duration::from_secs(9));
        assert_eq!((balancer.epochs(), balancer.answers()), (None, None));
        assert_eq!(balancer.balance, Balance::default());
    }

    #[test]
    fn a_serial_run_takes_the_least_whatever_was_measured_before() {
        let mut threaded = Balancer::new(&config(AUTO), false, Balance::default());
        updates(&mut threaded, 9, Duration::from_secs(9));
        assert_eq!((threaded.epochs(), threaded.answers()), (Some(3), Some(2)));
        let mut serial = Balancer::new(&config(AUTO), true, threaded.balance);
        updates(&mut serial, 9, Duration::from_secs(9));
        assert_eq!((serial.epochs(), serial.answers()), (Some(1), Some(2)));
        assert_eq!(serial.balance, Balance::default());
    }

    #[test]
    fn a_resumed_run_goes_on_with_its_choices_within_the_bounds_that_are_set_now() {
        let mut balancer = Balancer::new(&config(AUTO), false, Balance::default());
        updates(&mut balancer, 9, Duration::from_secs(9));
        let lower = config("epochs = 2\nauto = ['epochs']");
        assert_eq!(Balancer::new(&lower, false, balancer.balance).epochs(), Some(2));
        assert_eq!(Balancer::new(&lower, false, balancer.balance).answers(), None);
    }

    #[test]
    fn generation_for_an_update_that_says_nothing_is_not_counted_to_the_next() {
        let bounds = "epochs = 3\nauto = ['epochs']";
        let mut balancer = Balancer::new(&config(bounds), false, Balance::default());
        for _ in 0..9 {
            let skipped = balancer.generated + Duration::from_secs(90);
            balancer.measure(skipped, None);
            updates(&mut balancer, 1, Duration::from_secs(1));
        }
        assert_eq!(balancer.balance.generate_seconds(), Some(1.0));
        assert_eq!(balancer.epochs(), Some(1));
    }
}
