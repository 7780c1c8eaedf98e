//! Deliberate faults of generators, for tests and demonstrations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::actors::faults::{Fault, FaultKind, kill_process};

/// The faults of all generators; "the n-th" counts steps of a generator's engine since the process began.
#[derive(Debug, Default)]
pub struct TokenFaults {
    faults: Vec<Fault>,
    /// Steps of each generator.
    steps: Vec<AtomicU64>,
}

impl TokenFaults {
    /// Those that concern generators, of which there are so many.
    #[must_use]
    pub fn new(all: &[Fault], generators: usize) -> Self {
        let concern = |fault: &&Fault| {
            matches!(fault.kind, FaultKind::Panic | FaultKind::Delay | FaultKind::KillGenerating)
        };
        let steps = (0..generators).map(|_| AtomicU64::new(0)).collect();
        Self { faults: all.iter().filter(concern).cloned().collect(), steps }
    }

    /// Called before each step of an engine.
    ///
    /// # Panics
    /// When a fault says so.
    pub fn engine_step(&self, generator: usize) {
        if self.faults.is_empty() {
            return;
        }
        let step = self.steps[generator].fetch_add(1, Ordering::Relaxed) + 1;
        let own = |fault: &&Fault| fault.actor as usize == generator && fault.strikes(step);
        for fault in self.faults.iter().filter(own) {
            match fault.kind {
                FaultKind::Delay => std::thread::sleep(fault.delay()),
                FaultKind::KillGenerating => kill_process(fault),
                _ => panic!("deliberate panic at engine step {step}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_for_each_generator_by_itself() {
        let fault = Fault { kind: FaultKind::Panic, actor: 1, at: 2, every: None, seconds: 0.0 };
        let faults = TokenFaults::new(&[fault], 2);
        let panics = |generator| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| faults.engine_step(generator))).is_err()
        };
        assert_eq!([0, 1, 0, 1, 1].map(panics), [false, false, false, true, false]);
    }
}
