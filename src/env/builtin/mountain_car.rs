//! MountainCar-v0: drive an underpowered car out of a valley by first swinging back.
//!
//! Dynamics, bounds and rewards are those of gymnasium's `MountainCar-v0`, after Moore, "Efficient memory-based
//! learning for robot control", 1990.

use serde::{Deserialize, Serialize};

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "MountainCar-v0";

const LEFT_WALL: f64 = -1.2;
const RIGHT_END: f64 = 0.6;
const GOAL: f64 = 0.5;
const SPEED_LIMIT: f64 = 0.07;
const FORCE: f64 = 0.001;
const GRAVITY: f64 = 0.0025;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct State {
    position: f64,
    velocity: f64,
}

/// The environment. Observation: position and velocity. Actions: 0 pushes left, 1 nothing, 2 right. Reward -1 for
/// every step; the episode ends at the top of the right hill.
pub struct MountainCar {
    spec: EnvSpec,
    state: State,
}

impl MountainCar {
    /// A car at rest, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![2],
            action_space: ActionSpace::Discrete { n: 3 },
            masks_actions: false,
        };
        Self { spec, state: State::default() }
    }
}

impl Default for MountainCar {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for MountainCar {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.state = State { position: CounterRng::new(seed).uniform_in(-0.6, -0.4), velocity: 0.0 };
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let State { position, velocity } = self.state;
        let direction = action.index() as f64 - 1.0;
        // The order of operations is the reference's: a rearrangement would round differently.
        let velocity = velocity + (direction * FORCE + (3.0 * position).cos() * -GRAVITY);
        let velocity = velocity.clamp(-SPEED_LIMIT, SPEED_LIMIT);
        let position = (position + velocity).clamp(LEFT_WALL, RIGHT_END);
        let hits_wall = position == LEFT_WALL && velocity < 0.0;
        let velocity = if hits_wall { 0.0 } else { velocity };
        self.state = State { position, velocity };
        let terminated = position >= GOAL && velocity >= 0.0;
        Ok(Step { reward: -1.0, terminated, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        out.extend([self.state.position as f32, self.state.velocity as f32]);
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &self.state)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        self.state = state::restore(NAME, NAME, bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::builtin::gymnasium::{Injectable, Trace};

    impl Injectable for MountainCar {
        fn inject(&mut self, state: &[f64]) {
            let [position, velocity] = state.try_into().unwrap();
            self.state = State { position, velocity };
        }

        fn state(&self) -> Vec<f64> {
            vec![self.state.position, self.state.velocity]
        }
    }

    #[test]
    fn each_step_matches_gymnasium_from_its_own_state() {
        Trace::read("mountain_car.json").check_single_steps(&mut MountainCar::new());
    }

    #[test]
    fn whole_episodes_match_gymnasium() {
        Trace::read("mountain_car.json").check_episodes(MountainCar::new);
    }

    #[test]
    fn a_reset_starts_at_rest_within_the_bounds_of_gymnasium() {
        let mut environment = MountainCar::new();
        for seed in 0..200 {
            environment.reset(seed).unwrap();
            assert!((-0.6..=-0.4).contains(&environment.state.position) && environment.state.velocity == 0.0);
        }
    }
}
