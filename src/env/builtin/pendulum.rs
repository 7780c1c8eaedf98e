//! Pendulum-v1: swing a pendulum up and hold it there with a limited, continuous torque.
//!
//! Dynamics, bounds and rewards are those of gymnasium's `Pendulum-v1`.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "Pendulum-v1";

const SPEED_LIMIT: f64 = 8.0;
const TORQUE_LIMIT: f32 = 2.0;
/// Seconds in one step.
const TIME_STEP: f64 = 0.05;
const GRAVITY: f64 = 10.0;
const MASS: f64 = 1.0;
const LENGTH: f64 = 1.0;

/// Radians against straight up, and per second. The angle is not wrapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct State {
    angle: f64,
    velocity: f64,
}

/// `angle` moved by whole turns into [-pi, pi).
fn wrap(angle: f64) -> f64 {
    (angle + PI).rem_euclid(2.0 * PI) - PI
}

/// The environment. Observation: cosine and sine of the angle, angular velocity. Action: one torque in [-2, 2], cut
/// to it otherwise. Reward: minus a cost of the angle, the velocity and the torque, in [-16.3, 0]; no episode ends
/// by itself.
pub struct Pendulum {
    spec: EnvSpec,
    state: State,
}

impl Pendulum {
    /// A pendulum standing upright at rest, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![3],
            action_space: ActionSpace::Box { low: vec![-TORQUE_LIMIT], high: vec![TORQUE_LIMIT] },
            masks_actions: false,
        };
        Self { spec, state: State::default() }
    }
}

impl Default for Pendulum {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for Pendulum {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        let mut random = CounterRng::new(seed);
        self.state = State { angle: random.uniform_in(-PI, PI), velocity: random.uniform_in(-1.0, 1.0) };
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let State { angle, velocity } = self.state;
        let torque = action.values()[0].clamp(-TORQUE_LIMIT, TORQUE_LIMIT);
        // The reference's torque is single precision, and so are its products with constants.
        let torque_cost = f64::from(0.001 * (torque * torque));
        let push = f64::from((3.0 / (MASS * LENGTH * LENGTH)) as f32 * torque);
        let wrapped = wrap(angle);
        let cost = wrapped * wrapped + 0.1 * (velocity * velocity) + torque_cost;
        let velocity = velocity + (3.0 * GRAVITY / (2.0 * LENGTH) * angle.sin() + push) * TIME_STEP;
        let velocity = velocity.clamp(-SPEED_LIMIT, SPEED_LIMIT);
        self.state = State { angle: angle + velocity * TIME_STEP, velocity };
        Ok(Step { reward: -cost as f32, terminated: false, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let State { angle, velocity } = self.state;
        out.extend([angle.cos(), angle.sin(), velocity].map(|value| value as f32));
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

    impl Injectable for Pendulum {
        fn inject(&mut self, state: &[f64]) {
            let [angle, velocity] = state.try_into().unwrap();
            self.state = State { angle, velocity };
        }

        fn state(&self) -> Vec<f64> {
            vec![self.state.angle, self.state.velocity]
        }
    }

    #[test]
    fn each_step_matches_gymnasium_from_its_own_state() {
        Trace::read("pendulum.json").check_single_steps(&mut Pendulum::new());
    }

    #[test]
    fn whole_episodes_match_gymnasium() {
        Trace::read("pendulum.json").check_episodes(Pendulum::new);
    }

    #[test]
    fn a_reset_starts_within_the_bounds_of_gymnasium() {
        let mut environment = Pendulum::new();
        let starts = (0..200).map(|seed| {
            environment.reset(seed).unwrap();
            environment.state
        });
        let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
        for State { angle, velocity } in starts {
            assert!(angle.abs() <= PI && velocity.abs() <= 1.0);
            lowest = lowest.min(angle);
            highest = highest.max(angle);
        }
        assert!(lowest < -2.9 && highest > 2.9, "angles in {lowest}..{highest}");
    }
}
