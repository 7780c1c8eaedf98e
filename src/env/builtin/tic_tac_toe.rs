//! TicTacToe: three in a row against a player who moves at random; taken squares are masked.
//!
//! A small test of action masks: the choices allowed shrink with every move, down to one. A coin decides who opens,
//! so that playing at random earns 0 on average; playing well earns more than 0.9.

use serde::{Deserialize, Serialize};

use crate::env::chance::Chance;
use crate::env::environment::{EnvError, Environment, Step};
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "TicTacToe";

const SQUARES: usize = 9;
const LINES: [[usize; 3]; 8] =
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Player {
    Agent,
    Opponent,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Board([Option<Player>; SQUARES]);

impl Board {
    fn free(self) -> impl Iterator<Item = usize> {
        (0..SQUARES).filter(move |&square| self.0[square].is_none())
    }

    fn has_won(self, player: Player) -> bool {
        LINES.iter().any(|line| line.iter().all(|&square| self.0[square] == Some(player)))
    }

    /// Puts the opponent's mark on a free square drawn uniformly; there is one.
    fn play_at_random(&mut self, chance: &mut impl Chance) {
        let drawn = chance.below(self.free().count());
        if let Some(square) = self.free().nth(drawn) {
            self.0[square] = Some(Player::Opponent);
        }
    }
}

/// The environment. Observation: nine flags for the agent's squares, then nine for the opponent's, both row by row.
/// Actions: the square to take, 0 to 8. The episode ends with reward 1 when the agent has three in a row, -1 when
/// the opponent has, 0 when the board is full.
pub struct TicTacToe {
    spec: EnvSpec,
    board: Board,
    /// Draws the opponent's moves.
    random: CounterRng,
}

impl TicTacToe {
    /// An empty board, to be reset before use.
    #[must_use]
    pub fn new() -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![2 * SQUARES],
            action_space: ActionSpace::Discrete { n: SQUARES },
            masks_actions: true,
        };
        Self { spec, board: Board::default(), random: CounterRng::new(0) }
    }
}

impl Default for TicTacToe {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for TicTacToe {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.random = CounterRng::new(seed);
        self.board = Board::default();
        if self.random.bernoulli(0.5) {
            self.board.play_at_random(&mut self.random);
        }
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let square = action.index();
        if self.board.0.get(square) != Some(&None) {
            let why = format!("square {square} is taken or does not exist; take one that the mask allows");
            return Err(EnvError::Failed { env: NAME.into(), why });
        }
        let ends = |reward| Ok(Step { reward, terminated: true, truncated: false });
        self.board.0[square] = Some(Player::Agent);
        if self.board.has_won(Player::Agent) {
            return ends(1.0);
        }
        if self.board.free().next().is_none() {
            return ends(0.0);
        }
        self.board.play_at_random(&mut self.random);
        if self.board.has_won(Player::Opponent) {
            return ends(-1.0);
        }
        if self.board.free().next().is_none() {
            return ends(0.0);
        }
        Ok(Step::default())
    }

    fn observe(&self, out: &mut Vec<f32>) {
        for player in [Player::Agent, Player::Opponent] {
            out.extend(self.board.0.map(|mark| f32::from(u8::from(mark == Some(player)))));
        }
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        // A full board leaves nothing to choose; a mask always allows something, and no move follows this one.
        let is_full = self.board.free().next().is_none();
        out.extend(self.board.0.map(|mark| is_full || mark.is_none()));
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &(self.board, &self.random))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        (self.board, self.random) = state::restore(NAME, NAME, bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board from nine characters: `x` the agent's, `o` the opponent's.
    fn board(squares: &str) -> Board {
        let marks: Vec<_> = squares
            .chars()
            .map(|mark| match mark {
                'x' => Some(Player::Agent),
                'o' => Some(Player::Opponent),
                _ => None,
            })
            .collect();
        Board(marks.try_into().unwrap())
    }

    fn step(squares: &str, square: u8) -> (f32, bool) {
        let mut environment = TicTacToe { board: board(squares), ..TicTacToe::new() };
        let step = environment.step(Action::new(&[f32::from(square)])).unwrap();
        (step.reward, step.terminated)
    }

    /// Mean return over many games of the policy `choose`, which gets the board and a generator.
    fn mean_return(choose: impl Fn(&Board, &mut CounterRng) -> usize) -> f32 {
        let mut environment = TicTacToe::new();
        let mut random = CounterRng::new(99);
        let games = 2000;
        let mut total = 0.0;
        for seed in 0..games {
            environment.reset(seed).unwrap();
            loop {
                let action = [choose(&environment.board, &mut random) as f32];
                let step = environment.step(Action::new(&action)).unwrap();
                total += step.reward;
                if step.done() {
                    break;
                }
            }
        }
        total / games as f32
    }

    /// The square that completes a line of `player`, if there is one.
    fn completing(board: &Board, player: Player) -> Option<usize> {
        board.free().find(|&square| {
            let mut next = *board;
            next.0[square] = Some(player);
            next.has_won(player)
        })
    }

    #[test]
    fn three_in_a_row_wins_in_every_line() {
        for line in LINES {
            let mut squares = ['.'; SQUARES];
            squares[line[0]] = 'x';
            squares[line[1]] = 'x';
            assert_eq!(step(&squares.iter().collect::<String>(), line[2] as u8), (1.0, true), "{line:?}");
        }
    }

    #[test]
    fn the_opponents_three_in_a_row_loses() {
        // The agent takes square 8; the only square left completes the opponent's first row.
        assert_eq!(step("oo.xxoox.", 8), (-1.0, true));
    }

    #[test]
    fn a_full_board_without_a_row_is_a_draw() {
        assert_eq!(step("xoxxoo.xo", 6), (1.0, true));
        assert_eq!(step("xoxxooox.", 8), (0.0, true));
    }

    #[test]
    fn exactly_the_free_squares_are_allowed() {
        let environment = TicTacToe { board: board("xo..x...o"), ..TicTacToe::new() };
        let mut mask = Vec::new();
        environment.action_mask(&mut mask);
        assert_eq!(mask, [false, false, true, true, false, true, true, true, false]);
    }

    #[test]
    fn a_taken_square_is_refused_and_the_board_stays() {
        let mut environment = TicTacToe { board: board("xo......."), ..TicTacToe::new() };
        for square in [0.0, 1.0, 9.0] {
            assert!(environment.step(Action::new(&[square])).is_err(), "square {square}");
        }
        assert_eq!(environment.board, board("xo......."));
    }

    #[test]
    fn playing_well_is_worth_more_than_playing_at_random() {
        let at_random = |board: &Board, random: &mut CounterRng| {
            let drawn = random.below(board.free().count());
            board.free().nth(drawn).unwrap()
        };
        let chance = mean_return(at_random);
        assert!(chance.abs() < 0.06, "random play returns {chance}");
        let skilled = mean_return(|board, random| {
            completing(board, Player::Agent)
                .or_else(|| completing(board, Player::Opponent))
                .or_else(|| board.free().find(|&square| square == 4))
                .unwrap_or_else(|| at_random(board, random))
        });
        assert!(skilled > 0.8, "skilled play returns {skilled}");
    }
}
