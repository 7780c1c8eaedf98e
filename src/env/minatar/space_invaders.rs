//! Space Invaders: a cannon on the bottom row shoots at a block of aliens, which shoot back.
//!
//! The aliens walk sideways together and come one row down, turning around, when one stands at the edge they walk
//! towards. They walk faster the fewer they are; every tenth frame the one nearest to the cannon shoots. An alien
//! is worth one point; when all are gone a new block appears, with ramping one that is faster from the start. The
//! game is over when a bullet or an alien reaches the cannon, or an alien would walk off the bottom.

use serde::{Deserialize, Serialize};

use super::grid::{Grid, SIDE};
use super::{Canvas, Frame, Game, Move, Options, Rules};
use crate::env::Chance;

/// Channels of the observation.
mod channel {
    pub const CANNON: usize = 0;
    pub const ALIEN: usize = 1;
    pub const ALIENS_GO_LEFT: usize = 2;
    pub const ALIENS_GO_RIGHT: usize = 3;
    pub const OWN_BULLET: usize = 4;
    pub const ENEMY_BULLET: usize = 5;
}

const WAVE: Grid = Grid::rectangle(0, 4, 2, 8);
/// Frames between two shots of the cannon.
const SHOT_INTERVAL: u8 = 5;
/// Frames between two shots of the aliens.
const ENEMY_SHOT_INTERVAL: u8 = 10;
/// Longest time between two moves of the aliens, in the first wave and in the last that differs.
const FIRST_MOVE_INTERVAL: u8 = 12;
const LAST_MOVE_INTERVAL: u8 = 6;
/// The last row and the last column.
const LAST: usize = SIDE - 1;

/// Makes the game.
#[must_use]
pub fn make(options: &Options) -> Game<SpaceInvaders> {
    Game::new(options)
}

/// The state of one episode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceInvaders {
    ramping: bool,
    /// The cannon's column.
    cannon: usize,
    own_bullets: Grid,
    enemy_bullets: Grid,
    aliens: Grid,
    rightward: bool,
    /// Longest time between two moves of the aliens in this wave.
    move_interval: u8,
    move_timer: u8,
    enemy_shot_timer: u8,
    shot_timer: u8,
}

impl Rules for SpaceInvaders {
    const NAME: &'static str = "minatar/space_invaders";
    const CHANNELS: usize = 6;
    const MINIMAL_MOVES: &'static [Move] = &[Move::Stay, Move::Left, Move::Right, Move::Fire];

    fn start(ramping: bool, _chance: &mut impl Chance) -> Self {
        Self {
            ramping,
            cannon: 5,
            own_bullets: Grid::EMPTY,
            enemy_bullets: Grid::EMPTY,
            aliens: WAVE,
            rightward: false,
            move_interval: FIRST_MOVE_INTERVAL,
            move_timer: FIRST_MOVE_INTERVAL,
            enemy_shot_timer: ENEMY_SHOT_INTERVAL,
            shot_timer: 0,
        }
    }

    fn play(&mut self, player: Move, _chance: &mut impl Chance) -> Frame {
        match player {
            Move::Fire if self.shot_timer == 0 => {
                self.own_bullets.insert(LAST, self.cannon);
                self.shot_timer = SHOT_INTERVAL;
            }
            Move::Left => self.cannon = self.cannon.saturating_sub(1),
            Move::Right => self.cannon = (self.cannon + 1).min(LAST),
            _ => {}
        }

        self.own_bullets = self.own_bullets.shifted_up();
        self.enemy_bullets = self.enemy_bullets.shifted_down();
        let mut frame = Frame::default();
        frame.over |=
            self.enemy_bullets.contains(LAST, self.cannon) || self.aliens.contains(LAST, self.cannon);
        if self.move_timer == 0 {
            self.move_timer = (self.aliens.count() as u8).min(self.move_interval);
            frame.over |= self.move_aliens();
        }
        if self.enemy_shot_timer == 0 {
            self.enemy_shot_timer = ENEMY_SHOT_INTERVAL;
            if let Some((row, column)) = self.nearest_alien() {
                self.enemy_bullets.insert(row, column);
            }
        }

        let hit = self.aliens.intersection(self.own_bullets);
        frame.reward = hit.count();
        self.aliens = self.aliens.without(hit);
        self.own_bullets = self.own_bullets.without(hit);

        self.shot_timer = self.shot_timer.saturating_sub(1);
        self.move_timer -= 1;
        self.enemy_shot_timer -= 1;
        if self.aliens.is_empty() {
            if self.ramping && self.move_interval > LAST_MOVE_INTERVAL {
                self.move_interval -= 1;
            }
            self.aliens = WAVE;
        }
        frame
    }

    fn paint(&self, canvas: &mut Canvas<'_>) {
        canvas.set(LAST, self.cannon, channel::CANNON);
        canvas.fill(self.aliens, channel::ALIEN);
        let direction = if self.rightward { channel::ALIENS_GO_RIGHT } else { channel::ALIENS_GO_LEFT };
        canvas.fill(self.aliens, direction);
        canvas.fill(self.own_bullets, channel::OWN_BULLET);
        canvas.fill(self.enemy_bullets, channel::ENEMY_BULLET);
    }
}

impl SpaceInvaders {
    /// Moves the block by one cell and says whether that ends the game.
    fn move_aliens(&mut self) -> bool {
        let edge = Grid::column(if self.rightward { LAST } else { 0 });
        let mut landed = false;
        if !self.aliens.intersection(edge).is_empty() {
            self.rightward = !self.rightward;
            landed = !self.aliens.intersection(Grid::row(LAST)).is_empty();
            // The final observation shows those that walked off the bottom at the top.
            self.aliens = self.aliens.rolled_down();
        } else if self.rightward {
            self.aliens = self.aliens.shifted_right();
        } else {
            self.aliens = self.aliens.shifted_left();
        }
        landed || self.aliens.contains(LAST, self.cannon)
    }

    /// The lowest alien of the column nearest to the cannon, the left one of two equally near: (row, column).
    fn nearest_alien(&self) -> Option<(usize, usize)> {
        let lowest =
            |column: usize| Some((self.aliens.intersection(Grid::column(column)).lowest_row()?, column));
        (0..SIDE).find_map(|distance| {
            let left = self.cannon.checked_sub(distance);
            let right = Some(self.cannon + distance).filter(|&column| column < SIDE);
            left.and_then(lowest).or_else(|| right.and_then(lowest))
        })
    }
}

#[cfg(test)]
impl SpaceInvaders {
    pub(super) fn move_interval(&self) -> u8 {
        self.move_interval
    }

    /// Whether a block of aliens has come down so far that its lowest row is back at the top.
    pub(super) fn has_landed(&self) -> bool {
        [0, LAST].into_iter().all(|row| !self.aliens.intersection(Grid::row(row)).is_empty())
    }
}
