//! Acrobot-v1: swing the tip of a two-link arm above a line, with a torque only at the joint between the links.
//!
//! Dynamics, bounds and rewards are those of gymnasium's `Acrobot-v1`: the equations of Sutton and Barto,
//! "Reinforcement Learning: An Introduction" (the book's, not the earlier paper's), integrated by one fourth-order
//! Runge–Kutta step.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "Acrobot-v1";

const GRAVITY: f64 = 9.8;
/// Seconds in one step.
const TIME_STEP: f64 = 0.2;
/// Length of the first link, in metres; the second link's does not enter the dynamics.
const LENGTH: f64 = 1.0;
/// Mass of each link, in kilograms.
const MASS: f64 = 1.0;
/// Distance from a link's joint to its centre of mass.
const CENTRE: f64 = 0.5;
/// Moment of inertia of each link.
const INERTIA: f64 = 1.0;
const VELOCITY_LIMITS: [f64; 2] = [4.0 * PI, 9.0 * PI];

/// The angle of the first link against straight down, of the second against the first, and their velocities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct State {
    angles: [f64; 2],
    velocities: [f64; 2],
}

impl State {
    /// Moves along `rate` for `duration`.
    fn advance(self, duration: f64, rate: State) -> State {
        State {
            angles: [0, 1].map(|link| self.angles[link] + duration * rate.angles[link]),
            velocities: [0, 1].map(|link| self.velocities[link] + duration * rate.velocities[link]),
        }
    }
}

/// The rate of change of `state` under a torque at the joint between the links.
fn rate(state: State, torque: f64) -> State {
    let State { angles: [first, second], velocities: [first_velocity, second_velocity] } = state;
    let (sine, cosine) = second.sin_cos();
    // d1, d2, phi1 and phi2 in the book. The order of operations is the reference's.
    let inertia_first = MASS * (CENTRE * CENTRE)
        + MASS * (LENGTH * LENGTH + CENTRE * CENTRE + 2.0 * LENGTH * CENTRE * cosine)
        + INERTIA
        + INERTIA;
    let inertia_coupled = MASS * (CENTRE * CENTRE + LENGTH * CENTRE * cosine) + INERTIA;
    let gravity_second = MASS * CENTRE * GRAVITY * (first + second - PI / 2.0).cos();
    let gravity_first = -MASS * LENGTH * CENTRE * (second_velocity * second_velocity) * sine
        - 2.0 * MASS * LENGTH * CENTRE * second_velocity * first_velocity * sine
        + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * (first - PI / 2.0).cos()
        + gravity_second;
    let second_acceleration = (torque + inertia_coupled / inertia_first * gravity_first
        - MASS * LENGTH * CENTRE * (first_velocity * first_velocity) * sine
        - gravity_second)
        / (MASS * (CENTRE * CENTRE) + INERTIA - inertia_coupled * inertia_coupled / inertia_first);
    let first_acceleration = -(inertia_coupled * second_acceleration + gravity_first) / inertia_first;
    State { angles: [first_velocity, second_velocity], velocities: [first_acceleration, second_acceleration] }
}

/// One fourth-order Runge–Kutta step.
fn integrate(state: State, torque: f64) -> State {
    let half = TIME_STEP / 2.0;
    let k1 = rate(state, torque);
    let k2 = rate(state.advance(half, k1), torque);
    let k3 = rate(state.advance(half, k2), torque);
    let k4 = rate(state.advance(TIME_STEP, k3), torque);
    let sum = |a: f64, b: f64, c: f64, d: f64| a + 2.0 * b + 2.0 * c + d;
    let total = State {
        angles: [0, 1].map(|link| sum(k1.angles[link], k2.angles[link], k3.angles[link], k4.angles[link])),
        velocities: [0, 1].map(|link| {
            sum(k1.velocities[link], k2.velocities[link], k3.velocities[link], k4.velocities[link])
        }),
    };
    state.advance(TIME_STEP / 6.0, total)
}

/// `angle` moved by whole turns into [-pi, pi].
fn wrap(mut angle: f64) -> f64 {
    while angle > PI {
        angle -= 2.0 * PI;
    }
    while angle < -PI {
        angle += 2.0 * PI;
    }
    angle
}

/// The environment. Observation: cosine and sine of both angles, then both angular velocities. Actions: a torque of
/// -1, 0 or 1. Reward -1 for every step except the one that reaches the line, which ends the episode.
pub struct Acrobot {
    spec: EnvSpec,
    state: State,
}

impl Acrobot {
    /// An arm hanging at rest, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![6],
            action_space: ActionSpace::Discrete { n: 3 },
            masks_actions: false,
        };
        Self { spec, state: State::default() }
    }
}

impl Default for Acrobot {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for Acrobot {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        let mut random = CounterRng::new(seed);
        // The reference rounds its first state, and only that, to single precision.
        let mut draw = || f64::from(random.uniform_in(-0.1, 0.1) as f32);
        self.state = State { angles: [draw(), draw()], velocities: [draw(), draw()] };
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let torque = action.index() as f64 - 1.0;
        let mut next = integrate(self.state, torque);
        next.angles = next.angles.map(wrap);
        for (velocity, limit) in next.velocities.iter_mut().zip(VELOCITY_LIMITS) {
            *velocity = velocity.clamp(-limit, limit);
        }
        self.state = next;
        let [first, second] = next.angles;
        let terminated = -first.cos() - (second + first).cos() > 1.0;
        Ok(Step { reward: if terminated { 0.0 } else { -1.0 }, terminated, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let State { angles: [first, second], velocities } = self.state;
        out.extend([first.cos(), first.sin(), second.cos(), second.sin()].map(|value| value as f32));
        out.extend(velocities.map(|value| value as f32));
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

    impl Injectable for Acrobot {
        fn inject(&mut self, state: &[f64]) {
            let [first, second, first_velocity, second_velocity] = state.try_into().unwrap();
            self.state = State { angles: [first, second], velocities: [first_velocity, second_velocity] };
        }

        fn state(&self) -> Vec<f64> {
            [self.state.angles, self.state.velocities].concat()
        }
    }

    #[test]
    fn each_step_matches_gymnasium_from_its_own_state() {
        Trace::read("acrobot.json").check_single_steps(&mut Acrobot::new());
    }

    #[test]
    fn whole_episodes_match_gymnasium() {
        Trace::read("acrobot.json").check_episodes(Acrobot::new);
    }

    #[test]
    fn a_reset_starts_within_the_bounds_of_gymnasium() {
        let mut environment = Acrobot::new();
        for seed in 0..200 {
            environment.reset(seed).unwrap();
            assert!(environment.state().iter().all(|value| value.abs() <= 0.100_001));
            assert!(environment.state().iter().all(|&value| f64::from(value as f32) == value));
        }
    }
}
