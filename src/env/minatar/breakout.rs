//! Breakout: a paddle on the bottom row keeps a ball in play, which breaks three rows of bricks.
//!
//! The ball moves one cell along a diagonal each frame and is reflected by walls, bricks and the paddle: straight
//! up from the paddle's own column, back where it came from when it would enter that column. A brick is worth one
//! point; the ball passes through bricks on the frame after breaking one. An empty wall is rebuilt when the ball
//! comes to the bottom. The game is over when the ball reaches the bottom beside the paddle; it does not get harder.

use serde::{Deserialize, Serialize};

use super::grid::{Grid, SIDE};
use super::{Canvas, Frame, Game, Move, Options, Rules};
use crate::env::Chance;

/// Channels of the observation.
mod channel {
    pub const PADDLE: usize = 0;
    pub const BALL: usize = 1;
    pub const TRAIL: usize = 2;
    pub const BRICK: usize = 3;
}

const WALL: Grid = Grid::rectangle(1, 4, 0, SIDE);
const BOTTOM: i8 = SIDE as i8 - 1;

/// Makes the game.
#[must_use]
pub fn make(options: &Options) -> Game<Breakout> {
    Game::new(options)
}

/// A cell, which may lie one step outside of the board while a move is worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    row: i8,
    column: i8,
}

/// The state of one episode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Breakout {
    ball: Cell,
    /// Where the ball was a frame ago: its trail.
    previous: Cell,
    /// -1 or 1.
    row_direction: i8,
    /// -1 or 1.
    column_direction: i8,
    /// The paddle's column.
    paddle: i8,
    bricks: Grid,
    /// The ball has just broken a brick and passes through the next one.
    striking: bool,
}

impl Rules for Breakout {
    const NAME: &'static str = "minatar/breakout";
    const CHANNELS: usize = 4;
    const MINIMAL_MOVES: &'static [Move] = &[Move::Stay, Move::Left, Move::Right];

    fn start(_ramping: bool, chance: &mut impl Chance) -> Self {
        let (column, column_direction) = [(0, 1), (BOTTOM, -1)][chance.below(2)];
        let ball = Cell { row: 3, column };
        Self {
            ball,
            previous: ball,
            row_direction: 1,
            column_direction,
            paddle: 4,
            bricks: WALL,
            striking: false,
        }
    }

    fn play(&mut self, player: Move, _chance: &mut impl Chance) -> Frame {
        match player {
            Move::Left => self.paddle = (self.paddle - 1).max(0),
            Move::Right => self.paddle = (self.paddle + 1).min(BOTTOM),
            _ => {}
        }

        self.previous = self.ball;
        let mut next = Cell {
            row: self.ball.row + self.row_direction,
            column: self.ball.column + self.column_direction,
        };
        if !(0..=BOTTOM).contains(&next.column) {
            next.column = next.column.clamp(0, BOTTOM);
            self.column_direction = -self.column_direction;
        }

        let mut frame = Frame::default();
        let mut in_brick = false;
        if next.row < 0 {
            next.row = 0;
            self.row_direction = -self.row_direction;
        } else if self.bricks.contains(next.row as usize, next.column as usize) {
            in_brick = true;
            if !self.striking {
                frame.reward = 1;
                self.bricks.remove(next.row as usize, next.column as usize);
                next.row = self.ball.row;
                self.row_direction = -self.row_direction;
            }
        } else if next.row == BOTTOM {
            if self.bricks.is_empty() {
                self.bricks = WALL;
            }
            if self.ball.column == self.paddle {
                self.row_direction = -self.row_direction;
                next.row = self.ball.row;
            } else if next.column == self.paddle {
                self.row_direction = -self.row_direction;
                self.column_direction = -self.column_direction;
                next.row = self.ball.row;
            } else {
                frame.over = true;
            }
        }
        self.striking = in_brick;
        self.ball = next;
        frame
    }

    fn paint(&self, canvas: &mut Canvas<'_>) {
        canvas.set(BOTTOM as usize, self.paddle as usize, channel::PADDLE);
        canvas.set(self.ball.row as usize, self.ball.column as usize, channel::BALL);
        canvas.set(self.previous.row as usize, self.previous.column as usize, channel::TRAIL);
        canvas.fill(self.bricks, channel::BRICK);
    }
}

#[cfg(test)]
impl Breakout {
    pub(super) fn bricks_left(&self) -> u32 {
        self.bricks.count()
    }
}
