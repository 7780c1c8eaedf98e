//! StatelessCartPole: CartPole that shows where cart and pole are but not how fast they move.
//!
//! The velocities can be told from two observations in a row, so a policy without memory fails and one with memory,
//! or with stacked frames, does as well as on CartPole.

use super::cart_pole::CartPole;
use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, EnvSpec};
use crate::env::state;

pub(super) const NAME: &str = "StatelessCartPole";

/// The environment. Observation: position and angle; everything else as in [`CartPole`].
pub struct StatelessCartPole {
    spec: EnvSpec,
    inner: CartPole,
}

impl StatelessCartPole {
    /// A cart at rest in the middle with its pole upright, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let inner = CartPole::new();
        let spec = EnvSpec { name: NAME.into(), observation_shape: vec![2], ..inner.spec().clone() };
        Self { spec, inner }
    }
}

impl Default for StatelessCartPole {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for StatelessCartPole {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.inner.start(seed);
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        Ok(self.inner.push(action.index() == 1))
    }

    fn observe(&self, out: &mut Vec<f32>) {
        out.extend([self.inner.state.position as f32, self.inner.state.angle as f32]);
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &self.inner.state)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        self.inner.state = state::restore(NAME, NAME, bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_as_cart_pole_does_and_hides_the_velocities() {
        let (mut full, mut hidden) = (CartPole::new(), StatelessCartPole::new());
        full.reset(3).unwrap();
        hidden.reset(3).unwrap();
        loop {
            let (mut seen, mut shown) = (Vec::new(), Vec::new());
            full.observe(&mut seen);
            hidden.observe(&mut shown);
            assert_eq!(shown, [seen[0], seen[2]]);
            let action = [f32::from(u8::from(seen[2] > 0.0))];
            let step = full.step(Action::new(&action)).unwrap();
            assert_eq!(hidden.step(Action::new(&action)).unwrap(), step);
            if step.done() {
                break;
            }
        }
    }
}
