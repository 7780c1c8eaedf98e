//! Cuts an episode off after a number of steps.
//!
//! The cut is reported as `truncated`, so that the learner bootstraps from the final observation, which stays
//! visible until the next reset. A step that ends the episode by the rules of the task is never also truncated.

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, EnvSpec};
use crate::env::state;

/// What this wrapper's own bytes are saved under.
const LABEL: &str = "time limit";

/// An environment whose episodes have at most `limit` steps.
pub struct TimeLimit {
    inner: Box<dyn Environment>,
    limit: u32,
    /// Steps taken since the last reset.
    elapsed: u32,
}

impl TimeLimit {
    /// Truncates the episodes of `inner` at their `limit`-th step; `limit` is at least 1.
    #[must_use]
    pub fn new(inner: Box<dyn Environment>, limit: u32) -> Self {
        debug_assert!(limit > 0, "a time limit of 0 steps");
        Self { inner, limit, elapsed: 0 }
    }
}

impl Environment for TimeLimit {
    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.inner.reset(seed)?;
        self.elapsed = 0;
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let mut step = self.inner.step(action)?;
        self.elapsed += 1;
        step.truncated |= self.elapsed >= self.limit && !step.terminated;
        Ok(step)
    }

    fn observe(&self, out: &mut Vec<f32>) {
        self.inner.observe(out);
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        self.inner.action_mask(out);
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(LABEL, &(self.elapsed, self.inner.save()?))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let (elapsed, inner): (u32, Vec<u8>) = state::restore(&self.spec().name, LABEL, bytes)?;
        self.inner.restore(&inner)?;
        self.elapsed = elapsed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::wrappers::tests::Counter;

    fn run(environment: &mut TimeLimit, steps: usize) -> Vec<(bool, bool)> {
        (0..steps)
            .map(|_| environment.step(Action::new(&[0.0])).unwrap())
            .map(|step| (step.terminated, step.truncated))
            .collect()
    }

    fn observation(environment: &TimeLimit) -> Vec<f32> {
        let mut out = Vec::new();
        environment.observe(&mut out);
        out
    }

    #[test]
    fn the_step_at_the_limit_is_truncated_and_shows_the_true_final_observation() {
        let mut environment = TimeLimit::new(Box::new(Counter::vector(100)), 3);
        environment.reset(0).unwrap();
        assert_eq!(run(&mut environment, 3), [(false, false), (false, false), (false, true)]);
        assert_eq!(observation(&environment), [3.0, -3.0]);
    }

    #[test]
    fn a_terminated_step_at_the_limit_is_not_truncated() {
        let mut environment = TimeLimit::new(Box::new(Counter::vector(3)), 3);
        environment.reset(0).unwrap();
        assert_eq!(run(&mut environment, 3)[2], (true, false));
    }

    #[test]
    fn a_reset_starts_the_count_anew() {
        let mut environment = TimeLimit::new(Box::new(Counter::vector(100)), 2);
        for _ in 0..2 {
            environment.reset(0).unwrap();
            assert_eq!(run(&mut environment, 2), [(false, false), (false, true)]);
        }
    }

    #[test]
    fn a_restored_episode_is_cut_at_the_same_step_with_the_same_state() {
        let mut environment = TimeLimit::new(Box::new(Counter::vector(100)), 5);
        environment.reset(0).unwrap();
        run(&mut environment, 3);
        let mut restored = TimeLimit::new(Box::new(Counter::vector(100)), 5);
        restored.restore(&environment.save().unwrap()).unwrap();
        assert_eq!(observation(&restored), [3.0, -3.0]);
        assert_eq!(run(&mut restored, 2), [(false, false), (false, true)]);
    }

    #[test]
    fn a_refused_state_leaves_the_episode_as_it_was() {
        let mut environment = TimeLimit::new(Box::new(Counter::vector(100)), 5);
        environment.reset(0).unwrap();
        run(&mut environment, 2);
        assert!(environment.restore(&state::save(LABEL, &(4_u32, vec![1_u8, 2])).unwrap()).is_err());
        assert_eq!(run(&mut environment, 3)[2], (false, true));
    }
}
