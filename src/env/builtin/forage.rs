//! Forage: walk over a grid to a piece of food and grab it, choosing three things at once in every step.
//!
//! A small test of multi-discrete actions: how to move across, how to move along, and whether to grab are chosen
//! independently and of unequal size, and the choices that would leave the grid are masked.

use serde::{Deserialize, Serialize};

use crate::env::chance::Chance;
use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "Forage";

/// Cells along each side of the grid.
const SIDE: usize = 7;
/// Reward of every step that does not find the food.
const EFFORT: f32 = -0.02;
/// Reward of grabbing where there is no food, on top of the effort.
const MISS: f32 = -0.1;

/// A cell: column, then row.
type Cell = [usize; 2];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    agent: Cell,
    food: Cell,
}

impl State {
    fn start(chance: &mut impl Chance) -> Self {
        let mut cell = || [chance.below(SIDE), chance.below(SIDE)];
        Self { agent: cell(), food: cell() }
    }
}

/// The coordinate after a move of -1, 0 or 1, encoded as 0, 1, 2; `None` when it leaves the grid.
fn moved(coordinate: usize, choice: usize) -> Option<usize> {
    (coordinate + choice).checked_sub(1).filter(|&next| next < SIDE)
}

/// The environment. Observation: column and row of the agent, then of the food, each scaled to [-1, 1]. Actions:
/// three components, across (left, stay, right), along (up, stay, down) and grab (no, yes); the move comes before
/// the grab. Grabbing the food ends the episode with reward 1; every other step costs 0.02, and a grab that misses
/// 0.1 more.
pub struct Forage {
    spec: EnvSpec,
    state: State,
}

impl Forage {
    /// A grid with agent and food in one corner, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![4],
            action_space: ActionSpace::MultiDiscrete { sizes: vec![3, 3, 2] },
            masks_actions: true,
        };
        Self { spec, state: State::default() }
    }
}

impl Default for Forage {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for Forage {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.state = State::start(&mut CounterRng::new(seed));
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let [across, along, grab] = [0, 1, 2].map(|component| action.values()[component] as usize);
        let [column, row] = self.state.agent;
        let (Some(column), Some(row)) = (moved(column, across), moved(row, along)) else {
            let why = "the move leaves the grid; make one that the mask allows".into();
            return Err(EnvError::Failed { env: NAME.into(), why });
        };
        self.state.agent = [column, row];
        let reward = match (grab == 1, self.state.agent == self.state.food) {
            (true, true) => return Ok(Step { reward: 1.0, terminated: true, truncated: false }),
            (true, false) => EFFORT + MISS,
            (false, _) => EFFORT,
        };
        Ok(Step { reward, terminated: false, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let scale = |coordinate: usize| 2.0 * coordinate as f32 / (SIDE - 1) as f32 - 1.0;
        out.extend([self.state.agent, self.state.food].as_flattened().iter().copied().map(scale));
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        for coordinate in self.state.agent {
            out.extend([0, 1, 2].map(|choice| moved(coordinate, choice).is_some()));
        }
        out.extend([true, true]);
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &self.state)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let saved: State = state::restore(NAME, NAME, bytes)?;
        if [saved.agent, saved.food].as_flattened().iter().any(|&coordinate| coordinate >= SIDE) {
            return Err(state::refuse(NAME, "agent or food is off the grid"));
        }
        self.state = saved;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(agent: Cell, food: Cell) -> Forage {
        Forage { state: State { agent, food }, ..Forage::new() }
    }

    fn step(environment: &mut Forage, action: [u8; 3]) -> (f32, bool) {
        let step = environment.step(Action::new(&action.map(f32::from))).unwrap();
        (step.reward, step.terminated)
    }

    #[test]
    fn both_coordinates_move_at_once_and_then_the_grab_counts() {
        let mut environment = at([2, 3], [3, 2]);
        assert_eq!(step(&mut environment, [2, 0, 1]), (1.0, true));
        assert_eq!(environment.state.agent, [3, 2]);
    }

    #[test]
    fn effort_and_misses_cost() {
        let mut environment = at([2, 3], [6, 6]);
        assert_eq!(step(&mut environment, [1, 1, 0]), (EFFORT, false));
        assert_eq!(step(&mut environment, [1, 1, 1]), (EFFORT + MISS, false));
        assert_eq!(environment.state.agent, [2, 3]);
    }

    #[test]
    fn standing_on_the_food_is_not_enough() {
        assert_eq!(step(&mut at([5, 5], [5, 5]), [1, 1, 0]), (EFFORT, false));
    }

    #[test]
    fn moves_off_the_grid_are_masked_and_refused() {
        let mut environment = at([0, 6], [3, 3]);
        let mut mask = Vec::new();
        environment.action_mask(&mut mask);
        assert_eq!(mask, [false, true, true, true, true, false, true, true]);
        for action in [[0.0, 1.0, 0.0], [1.0, 2.0, 0.0]] {
            assert!(environment.step(Action::new(&action)).is_err(), "{action:?}");
        }
        assert_eq!(environment.state.agent, [0, 6]);
    }

    #[test]
    fn corners_are_shown_at_plus_and_minus_one() {
        let mut shown = Vec::new();
        at([0, 6], [3, 0]).observe(&mut shown);
        assert_eq!(shown, [-1.0, 1.0, 0.0, -1.0]);
    }

    #[test]
    fn walking_straight_to_the_food_earns_most_of_the_reward() {
        let mut environment = Forage::new();
        let games = 200;
        let mut total = 0.0;
        for seed in 0..games {
            environment.reset(seed).unwrap();
            loop {
                let State { agent, food } = environment.state;
                let [across, along] =
                    [0, 1].map(|axis| (1 + food[axis]).saturating_sub(agent[axis]).min(2) as u8);
                let arrives = (0..2).all(|axis| agent[axis].abs_diff(food[axis]) <= 1);
                let (reward, terminated) = step(&mut environment, [across, along, u8::from(arrives)]);
                total += reward;
                if terminated {
                    break;
                }
            }
        }
        let mean = total / games as f32;
        assert!(mean > 0.9, "mean return {mean}");
    }
}
