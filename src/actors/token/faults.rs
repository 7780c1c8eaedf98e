//! Deliberate faults of generators, for tests and demonstrations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::actors::faults::{Fault, FaultKind};

/// The faults of all generators; "the n-th" counts steps of a generator's engine since the process began.
#[derive(Debug, Default)]
pub struct TokenFaults {
    faults: Vec<Fault>,
    steps: AtomicU64,
}

impl TokenFaults {
    /// Those that concern generators.
    #[must_use]
    pub fn new(all: &[Fault]) -> Self {
        let concern = |fault: &&Fault| matches!(fault.kind, FaultKind::Panic | FaultKind::Delay);
        Self { faults: all.iter().filter(concern).cloned().collect(), steps: AtomicU64::new(0) }
    }

    /// Called before each step of an engine.
    ///
    /// # Panics
    /// When a fault says so.
    pub fn engine_step(&self, generator: u32) {
        if self.faults.is_empty() {
            return;
        }
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        for fault in self.faults.iter().filter(|fault| fault.actor == generator && fault.strikes(step)) {
            match fault.kind {
                FaultKind::Delay => std::thread::sleep(fault.delay()),
                _ => panic!("deliberate panic at engine step {step}"),
            }
        }
    }
}
