//! Deliberate faults, for tests and demonstrations: the `[[faults]]` tables of a configuration.
//!
//! Faults of rollout actors are injected by an environment that stands in front of the real one, so the code under
//! test is the code that runs without faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::env::{Action, EnvError, EnvSpec, Environment, Step};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A rollout actor panics.
    Panic,
    /// An environment step takes `seconds` longer.
    Delay,
    /// An environment step gives a reward that is not a number.
    NanReward,
    /// The gradient of an update is not a number.
    NanGradient,
    /// An update takes `seconds` longer.
    SlowUpdate,
    /// The process is killed (SIGKILL) while it generates: before a step of a generator, or in an unroll.
    KillGenerating,
    /// The process is killed with a batch in hand, before it learns from it.
    KillBeforeUpdate,
    /// The process is killed after an update was published, before anything is told of it or saved.
    KillAfterUpdate,
    /// The process is killed while it saves a checkpoint: the files are written, and it does not have its name yet.
    KillSaving,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Rollout actor or generator concerned (the first is 0).
    #[serde(default)]
    pub actor: u32,
    /// When: the rollout actor's n-th unroll or the generator's n-th step since the process began, restarts included; or
    /// the run's n-th update (the first is 1), or the checkpoint that follows it.
    pub at: u64,
    /// Again after every so many unrolls, steps or updates; only once by default.
    #[serde(default)]
    pub every: Option<u64>,
    /// Length of a delay, seconds.
    #[serde(default)]
    pub seconds: f64,
}

impl Fault {
    /// Whether it strikes at the n-th unroll, step or update.
    #[must_use]
    pub fn strikes(&self, n: u64) -> bool {
        match self.every {
            _ if n < self.at => false,
            Some(every) => (n - self.at).is_multiple_of(every.max(1)),
            None => n == self.at,
        }
    }

    /// The delay.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.0))
    }
}

/// The fault of this kind that strikes at the n-th update.
#[must_use]
pub fn struck(faults: &[Fault], kind: FaultKind, n: u64) -> Option<&Fault> {
    faults.iter().find(|fault| fault.kind == kind && fault.strikes(n))
}

/// Kills the process if a fault of this kind strikes at the n-th update.
pub fn kill_if_struck(faults: &[Fault], kind: FaultKind, n: u64) {
    if let Some(fault) = struck(faults, kind, n) {
        kill_process(fault);
    }
}

/// Ends the process as `kill -9` does: nothing is flushed, saved or cleaned up.
pub(super) fn kill_process(fault: &Fault) -> ! {
    eprintln!("the process kills itself, as one of `faults` says (at = {})", fault.at);
    #[cfg(unix)]
    // SAFETY: a signal to the own process touches no memory.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    std::process::abort()
}

/// The faults of one rollout actor; shared by all its lives, so that "the n-th unroll" means the process's.
#[derive(Debug, Default)]
pub struct ActorFaults {
    faults: Vec<Fault>,
    unrolls: AtomicU64,
    struck: AtomicU64,
}

impl ActorFaults {
    /// Those of `all` that concern `actor`.
    #[must_use]
    pub fn of_actor(all: &[Fault], actor: u32) -> Self {
        let concerns = |fault: &&Fault| {
            let kind = matches!(
                fault.kind,
                FaultKind::Panic | FaultKind::Delay | FaultKind::NanReward | FaultKind::KillGenerating
            );
            kind && fault.actor == actor
        };
        Self { faults: all.iter().filter(concerns).cloned().collect(), ..Self::default() }
    }

    /// The actor begins an unroll.
    pub fn unroll_begins(&self) {
        self.unrolls.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts the faults in front of an environment; without faults the environment itself comes back.
    #[must_use]
    pub fn wrap(self: &Arc<Self>, env: Box<dyn Environment>) -> Box<dyn Environment> {
        if self.faults.is_empty() { env } else { Box::new(Faulty { env, faults: Arc::clone(self) }) }
    }

    /// The fault that strikes now; each unroll is struck once.
    fn strike(&self) -> Option<&Fault> {
        let unroll = self.unrolls.load(Ordering::Relaxed);
        let fault = self.faults.iter().find(|fault| fault.strikes(unroll))?;
        (self.struck.swap(unroll, Ordering::Relaxed) != unroll).then_some(fault)
    }
}

struct Faulty {
    env: Box<dyn Environment>,
    faults: Arc<ActorFaults>,
}

impl Environment for Faulty {
    fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.env.reset(seed)
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let mut step = self.env.step(action)?;
        match self.faults.strike() {
            Some(Fault { kind: FaultKind::Panic, at, .. }) => panic!("injected fault (at = {at})"),
            Some(fault @ Fault { kind: FaultKind::Delay, .. }) => std::thread::sleep(fault.delay()),
            Some(Fault { kind: FaultKind::NanReward, .. }) => step.reward = f32::NAN,
            Some(fault @ Fault { kind: FaultKind::KillGenerating, .. }) => kill_process(fault),
            _ => {}
        }
        Ok(step)
    }

    fn observe(&self, out: &mut Vec<f32>) {
        self.env.observe(out);
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        self.env.action_mask(out);
    }

    fn save(&self) -> Option<Vec<u8>> {
        self.env.save()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        self.env.restore(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_at_its_number_and_then_every_so_many() {
        let mut fault = Fault { kind: FaultKind::Panic, actor: 0, at: 3, every: None, seconds: 0.0 };
        let struck = |fault: &Fault| (0..10).filter(|&n| fault.strikes(n)).collect::<Vec<u64>>();
        assert_eq!(struck(&fault), [3]);
        fault.every = Some(3);
        assert_eq!(struck(&fault), [3, 6, 9]);
    }
}
