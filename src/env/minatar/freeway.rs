//! Freeway: a chicken walks up and down one column across eight lanes of traffic.
//!
//! It takes a step at most every third frame. Reaching the top row is worth one point, sends it back to the bottom
//! and draws new speeds for all cars; being hit by a car sends it back too. Cars that leave the board come back on the other
//! side. The game lasts 2501 frames and does not get harder.

use serde::{Deserialize, Serialize};

use super::grid::SIDE;
use super::{Canvas, Frame, Game, Move, Options, Rules};
use crate::env::Chance;

/// Channels of the observation. A car's trail shows its direction by its place and its speed by its channel.
mod channel {
    pub const CHICKEN: usize = 0;
    pub const CAR: usize = 1;
    /// Of the fastest cars; slower ones follow.
    pub const FIRST_SPEED: usize = 2;
}

const LANES: usize = 8;
const SLOWEST: usize = 5;
/// Frames between two steps of the chicken.
const WALK_INTERVAL: u8 = 3;
/// The game is over when this many frames and one more have been played.
const FRAMES: i16 = 2500;
/// The chicken's column.
const COLUMN: i8 = 4;
const LAST: i8 = SIDE as i8 - 1;

/// Makes the game.
#[must_use]
pub fn make(options: &Options) -> Game<Freeway> {
    Game::new(options)
}

/// A car; its row is its lane's number plus one.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Car {
    column: i8,
    rightward: bool,
    /// Frames that it stands between two moves, 1 to 5, and that are left until the next move.
    interval: u8,
    timer: u8,
}

/// The state of one episode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Freeway {
    cars: [Car; LANES],
    row: i8,
    walk_timer: u8,
    frames_left: i16,
}

impl Rules for Freeway {
    const NAME: &'static str = "minatar/freeway";
    const CHANNELS: usize = 7;
    const MINIMAL_MOVES: &'static [Move] = &[Move::Stay, Move::Up, Move::Down];

    fn start(_ramping: bool, chance: &mut impl Chance) -> Self {
        let mut cars = [Car::default(); LANES];
        draw_speeds(&mut cars, chance);
        Self { cars, row: LAST, walk_timer: WALK_INTERVAL, frames_left: FRAMES }
    }

    fn play(&mut self, player: Move, chance: &mut impl Chance) -> Frame {
        let mut frame = Frame::default();
        if self.walk_timer == 0 {
            match player {
                Move::Up => {
                    self.walk_timer = WALK_INTERVAL;
                    self.row = (self.row - 1).max(0);
                }
                Move::Down => {
                    self.walk_timer = WALK_INTERVAL;
                    self.row = (self.row + 1).min(LAST);
                }
                _ => {}
            }
        }
        if self.row == 0 {
            frame.reward = 1;
            draw_speeds(&mut self.cars, chance);
            self.row = LAST;
        }
        for (lane, car) in self.cars.iter_mut().enumerate() {
            let in_lane = self.row == lane as i8 + 1;
            let mut hit = in_lane && car.column == COLUMN;
            if car.timer == 0 {
                car.timer = car.interval;
                car.column = shifted_around(car.column, car.rightward);
                hit |= in_lane && car.column == COLUMN;
            } else {
                car.timer -= 1;
            }
            if hit {
                self.row = LAST;
            }
        }
        self.walk_timer = self.walk_timer.saturating_sub(1);
        self.frames_left -= 1;
        frame.over = self.frames_left < 0;
        frame
    }

    fn paint(&self, canvas: &mut Canvas<'_>) {
        canvas.set(self.row as usize, COLUMN as usize, channel::CHICKEN);
        for (lane, car) in self.cars.iter().enumerate() {
            canvas.set(lane + 1, car.column as usize, channel::CAR);
            let behind = shifted_around(car.column, !car.rightward);
            canvas.set(lane + 1, behind as usize, channel::FIRST_SPEED + car.interval as usize - 1);
        }
    }
}

/// Gives every car a new speed and direction where it is: first all speeds are drawn, then all directions.
fn draw_speeds(cars: &mut [Car; LANES], chance: &mut impl Chance) {
    for car in cars.iter_mut() {
        car.interval = 1 + chance.below(SLOWEST) as u8;
        car.timer = car.interval;
    }
    for car in cars {
        car.rightward = !chance.bernoulli(0.5);
    }
}

/// One column on, around the board.
fn shifted_around(column: i8, rightward: bool) -> i8 {
    match (column, rightward) {
        (LAST, true) => 0,
        (0, false) => LAST,
        (_, true) => column + 1,
        (_, false) => column - 1,
    }
}
