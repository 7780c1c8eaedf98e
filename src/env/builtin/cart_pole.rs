//! CartPole-v1: keep a pole upright on a cart by pushing the cart left or right.
//!
//! Dynamics, thresholds and rewards are those of gymnasium's `CartPole-v1` (explicit Euler integration), after
//! Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems",
//! 1983, with the frictionless equations of Florian, "Correct equations for the dynamics of the cart-pole system".

use serde::{Deserialize, Serialize};

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "CartPole-v1";

const GRAVITY: f64 = 9.8;
const POLE_MASS: f64 = 0.1;
/// One over the mass of cart and pole together.
const PER_MASS: f64 = 1.0 / (POLE_MASS + 1.0);
/// Half the pole's length, in metres.
const HALF_LENGTH: f64 = 0.5;
const POLE_MOMENT: f64 = POLE_MASS * HALF_LENGTH;
/// The push, in newtons.
const FORCE: f64 = 10.0;
/// Seconds in one step.
const TIME_STEP: f64 = 0.02;
/// The pole has fallen beyond this angle (12 degrees, in radians).
const ANGLE_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
/// The cart has left the track beyond this position, in metres.
const POSITION_LIMIT: f64 = 2.4;

/// Sine and cosine, within one unit in the last place.
///
/// Up to a quarter, which no running episode exceeds, they are Taylor polynomials, whose first term left out is below
/// 1e-17 of the result: less work than the library's, and the same result on every machine.
#[inline]
fn sine_and_cosine(angle: f64) -> (f64, f64) {
    if angle.abs() > 0.25 {
        return angle.sin_cos();
    }
    let square = angle * angle;
    let sine = [-1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0];
    let cosine = [1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0];
    let series = |[a, b, c, d, e]: [f64; 5]| (((a * square + b) * square + c) * square + d) * square + e;
    (angle + angle * square * series(sine), 1.0 - (0.5 * square - square * square * series(cosine)))
}

/// Metres, radians, and both per second. In this order the compiler stores position and angle as one pair, which is
/// ready long before the velocities; paired with them, the next step would have to wait before its sine and cosine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct State {
    pub(super) position: f64,
    pub(super) angle: f64,
    pub(super) velocity: f64,
    pub(super) angular_velocity: f64,
}

/// The environment. Observation: position, velocity, angle, angular velocity. Actions: 0 pushes left, 1 right.
/// Reward 1 for every step, the last one included; the episode ends when the pole falls or the cart leaves.
pub struct CartPole {
    spec: EnvSpec,
    pub(super) state: State,
}

impl CartPole {
    /// A cart at rest in the middle with its pole upright, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![4],
            action_space: ActionSpace::Discrete { n: 2 },
            masks_actions: false,
        };
        Self { spec, state: State::default() }
    }

    /// Starts every quantity uniformly within 0.05 of zero.
    pub(super) fn start(&mut self, seed: u64) {
        let mut random = CounterRng::new(seed);
        let [position, angle, velocity, angular_velocity] = [(); 4].map(|()| random.uniform_in(-0.05, 0.05));
        self.state = State { position, angle, velocity, angular_velocity };
    }

    /// Pushes the cart for one time step.
    #[inline]
    pub(super) fn push(&mut self, right: bool) -> Step {
        let State { position, angle, velocity, angular_velocity } = self.state;
        let force = if right { FORCE } else { -FORCE };
        let (sine, cosine) = sine_and_cosine(angle);
        // A step waits for its angular velocity, which the next step needs first. What does not depend on it is
        // computed beside it, the only division of a step included; the reference divides one after another.
        let per_moment = 1.0 / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * PER_MASS * (cosine * cosine)));
        let swing = POLE_MOMENT * sine;
        let push = (force + angular_velocity * angular_velocity * swing) * PER_MASS;
        let angular_acceleration = (GRAVITY * sine - cosine * push) * per_moment;
        let acceleration = push - angular_acceleration * (POLE_MOMENT * PER_MASS * cosine);
        self.state = State {
            position: position + TIME_STEP * velocity,
            angle: angle + TIME_STEP * angular_velocity,
            velocity: velocity + TIME_STEP * acceleration,
            angular_velocity: angular_velocity + TIME_STEP * angular_acceleration,
        };
        let terminated = self.state.position.abs() > POSITION_LIMIT || self.state.angle.abs() > ANGLE_LIMIT;
        Step { reward: 1.0, terminated, truncated: false }
    }
}

impl Default for CartPole {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for CartPole {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.start(seed);
        Ok(())
    }

    #[inline]
    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        Ok(self.push(action.index() == 1))
    }

    #[inline]
    fn observe(&self, out: &mut Vec<f32>) {
        let State { position, angle, velocity, angular_velocity } = self.state;
        out.extend([position, velocity, angle, angular_velocity].map(|value| value as f32));
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

    impl Injectable for CartPole {
        fn inject(&mut self, state: &[f64]) {
            let [position, velocity, angle, angular_velocity] = state.try_into().unwrap();
            self.state = State { position, angle, velocity, angular_velocity };
        }

        fn state(&self) -> Vec<f64> {
            let State { position, angle, velocity, angular_velocity } = self.state;
            vec![position, velocity, angle, angular_velocity]
        }
    }

    #[test]
    fn each_step_matches_gymnasium_from_its_own_state() {
        Trace::read("cart_pole.json").check_single_steps(&mut CartPole::new());
    }

    #[test]
    fn whole_episodes_match_gymnasium() {
        Trace::read("cart_pole.json").check_episodes(CartPole::new);
    }

    #[test]
    fn sine_and_cosine_are_the_librarys_to_the_last_place() {
        for index in -30_000..=30_000 {
            let angle = f64::from(index) * 1e-5;
            let (sine, cosine) = sine_and_cosine(angle);
            let off = |value: f64, library: f64| value.to_bits().abs_diff(library.to_bits());
            assert!(off(sine, angle.sin()) <= 1 && off(cosine, angle.cos()) <= 1, "at {angle}");
        }
    }

    #[test]
    fn a_reset_starts_within_the_bounds_of_gymnasium() {
        let mut environment = CartPole::new();
        let starts: Vec<f64> = (0..200)
            .flat_map(|seed| {
                environment.reset(seed).unwrap();
                environment.state()
            })
            .collect();
        assert!(starts.iter().all(|value| value.abs() <= 0.05));
        assert!(starts.iter().any(|&value| value > 0.045) && starts.iter().any(|&value| value < -0.045));
    }
}
