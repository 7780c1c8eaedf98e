//! Catch: a ball falls straight down a board, and a paddle in the bottom row has to be under it at the end.
//!
//! The rules and the board are those of the bsuite task of the same name (Osband et al., "Behaviour suite for
//! reinforcement learning", 2020). The only reward comes at the last step, so credit has to reach back over all.

use serde::{Deserialize, Serialize};

use crate::env::chance::Chance;
use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "Catch";

const ROWS: usize = 10;
const COLUMNS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    ball_row: usize,
    ball_column: usize,
    paddle: usize,
}

impl State {
    /// A ball in the top row, the paddle in the middle.
    fn start(chance: &mut impl Chance) -> Self {
        Self { ball_row: 0, ball_column: chance.below(COLUMNS), paddle: COLUMNS / 2 }
    }

    fn is_on_board(&self) -> bool {
        self.ball_row < ROWS && self.ball_column < COLUMNS && self.paddle < COLUMNS
    }
}

/// The environment. Observation: a `[10, 5, 1]` image, 1 at the ball and at the paddle, 0 elsewhere. Actions: 0
/// moves the paddle left, 1 leaves it, 2 moves it right. Each episode has nine steps; the last one's reward is 1
/// for a caught ball and -1 for a missed one.
pub struct Catch {
    spec: EnvSpec,
    state: State,
}

impl Catch {
    /// A ball over the first column, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![ROWS, COLUMNS, 1],
            action_space: ActionSpace::Discrete { n: 3 },
            masks_actions: false,
        };
        Self { spec, state: State { ball_row: 0, ball_column: 0, paddle: COLUMNS / 2 } }
    }
}

impl Default for Catch {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for Catch {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.state = State::start(&mut CounterRng::new(seed));
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let State { ball_row, ball_column, paddle } = &mut self.state;
        *paddle = match action.index() {
            0 => paddle.saturating_sub(1),
            1 => *paddle,
            _ => (*paddle + 1).min(COLUMNS - 1),
        };
        *ball_row = (*ball_row + 1).min(ROWS - 1);
        let terminated = *ball_row == ROWS - 1;
        let reward = match (terminated, paddle == ball_column) {
            (false, _) => 0.0,
            (true, true) => 1.0,
            (true, false) => -1.0,
        };
        Ok(Step { reward, terminated, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let mut board = [[0.0; COLUMNS]; ROWS];
        board[self.state.ball_row][self.state.ball_column] = 1.0;
        board[ROWS - 1][self.state.paddle] = 1.0;
        out.extend_from_slice(board.as_flattened());
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &self.state)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let saved: State = state::restore(NAME, NAME, bytes)?;
        if !saved.is_on_board() {
            return Err(state::refuse(NAME, "ball or paddle is off the board"));
        }
        self.state = saved;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::chance::replay::{Outcome, Replay};

    /// The contents of `tests/data/gymnasium/catch.json`: the rules written a second time, in Python.
    #[derive(Deserialize)]
    struct Trace {
        episodes: Vec<Episode>,
    }

    #[derive(Deserialize)]
    struct Episode {
        label: String,
        width: usize,
        column: usize,
        initial_board: String,
        steps: Vec<RecordedStep>,
    }

    #[derive(Deserialize)]
    struct RecordedStep {
        action: u8,
        board: String,
        reward: f32,
        terminated: bool,
    }

    fn board(environment: &Catch) -> String {
        let mut shown = Vec::new();
        environment.observe(&mut shown);
        shown.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn whole_episodes_match_the_rules_written_independently() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gymnasium/catch.json");
        let trace: Trace = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(trace.episodes.len(), 20);
        for Episode { label, width, column, initial_board, steps } in trace.episodes {
            let mut environment = Catch::new();
            let mut chance = Replay::new([Outcome::Below { n: width, value: column }]);
            environment.state = State::start(&mut chance);
            assert!(chance.is_exhausted());
            assert_eq!(board(&environment), initial_board, "{label}");
            assert_eq!(steps.len(), 9, "{label}");
            for recorded in steps {
                let step = environment.step(Action::new(&[f32::from(recorded.action)])).unwrap();
                assert_eq!(board(&environment), recorded.board, "{label}");
                assert_eq!((step.reward, step.terminated), (recorded.reward, recorded.terminated), "{label}");
            }
        }
    }

    #[test]
    fn balls_fall_in_every_column() {
        let mut environment = Catch::new();
        let mut seen = [false; COLUMNS];
        for seed in 0..100 {
            environment.reset(seed).unwrap();
            seen[environment.state.ball_column] = true;
        }
        assert_eq!(seen, [true; COLUMNS]);
    }
}
