//! Asterix: the player moves freely and meets enemies and treasure that cross the board along eight rows.
//!
//! A new thing enters a free row from the left or the right, a third of them treasure. Touching treasure is worth
//! one point, touching an enemy ends the game. Everything moves at one common pace; with ramping both this pace and
//! the rate of new things rise with time.

use serde::{Deserialize, Serialize};

use super::grid::SIDE;
use super::{Canvas, Frame, Game, Move, Options, Rules};
use crate::env::Chance;

/// Channels of the observation.
mod channel {
    pub const PLAYER: usize = 0;
    pub const ENEMY: usize = 1;
    pub const TRAIL: usize = 2;
    pub const GOLD: usize = 3;
}

/// Frames between two rises of the difficulty, less the two that the count itself takes.
const RAMP_INTERVAL: i8 = 100;
const FIRST_SPAWN_INTERVAL: u8 = 10;
const FIRST_MOVE_INTERVAL: u8 = 5;
/// Rows that things travel on: slot 0 is row 1 of the board.
const SLOTS: usize = 8;
const LAST: i8 = SIDE as i8 - 1;

/// Makes the game.
#[must_use]
pub fn make(options: &Options) -> Game<Asterix> {
    Game::new(options)
}

/// An enemy or a treasure; its row is that of its slot.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Traveller {
    column: i8,
    rightward: bool,
    gold: bool,
}

/// The state of one episode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asterix {
    ramping: bool,
    column: i8,
    row: i8,
    slots: [Option<Traveller>; SLOTS],
    /// Frames between two arrivals, and until the next one.
    spawn_interval: u8,
    spawn_timer: u8,
    /// Frames between two moves of everything but the player, and until the next one.
    move_interval: u8,
    move_timer: u8,
    /// Falls to -1, then the difficulty rises.
    ramp_timer: i8,
    /// How often it rose.
    ramps: u32,
}

impl Rules for Asterix {
    const NAME: &'static str = "minatar/asterix";
    const CHANNELS: usize = 4;
    const MINIMAL_MOVES: &'static [Move] = &[Move::Stay, Move::Left, Move::Up, Move::Right, Move::Down];

    fn start(ramping: bool, _chance: &mut impl Chance) -> Self {
        Self {
            ramping,
            column: 5,
            row: 5,
            slots: [None; SLOTS],
            spawn_interval: FIRST_SPAWN_INTERVAL,
            spawn_timer: FIRST_SPAWN_INTERVAL,
            move_interval: FIRST_MOVE_INTERVAL,
            move_timer: FIRST_MOVE_INTERVAL,
            ramp_timer: RAMP_INTERVAL,
            ramps: 0,
        }
    }

    fn play(&mut self, player: Move, chance: &mut impl Chance) -> Frame {
        if self.spawn_timer == 0 {
            self.spawn(chance);
            self.spawn_timer = self.spawn_interval;
        }
        match player {
            Move::Left => self.column = (self.column - 1).max(0),
            Move::Right => self.column = (self.column + 1).min(LAST),
            Move::Up => self.row = (self.row - 1).max(1),
            Move::Down => self.row = (self.row + 1).min(LAST - 1),
            Move::Stay | Move::Fire => {}
        }

        let mut frame = Frame::default();
        self.touch(&mut frame);
        if self.move_timer == 0 {
            self.move_timer = self.move_interval;
            for slot in &mut self.slots {
                if let Some(traveller) = slot {
                    traveller.column += if traveller.rightward { 1 } else { -1 };
                    if !(0..=LAST).contains(&traveller.column) {
                        *slot = None;
                    }
                }
            }
            self.touch(&mut frame);
        }
        self.spawn_timer -= 1;
        self.move_timer -= 1;
        self.ramp();
        frame
    }

    fn paint(&self, canvas: &mut Canvas<'_>) {
        canvas.set(self.row as usize, self.column as usize, channel::PLAYER);
        for (slot, traveller) in self.slots.iter().enumerate() {
            let Some(traveller) = traveller else { continue };
            let kind = if traveller.gold { channel::GOLD } else { channel::ENEMY };
            canvas.set(slot + 1, traveller.column as usize, kind);
            let behind = traveller.column + if traveller.rightward { -1 } else { 1 };
            if (0..=LAST).contains(&behind) {
                canvas.set(slot + 1, behind as usize, channel::TRAIL);
            }
        }
    }
}

impl Asterix {
    /// Something new enters a free row. Direction and kind are drawn even when no row is free.
    fn spawn(&mut self, chance: &mut impl Chance) {
        let rightward = chance.bernoulli(0.5);
        let gold = chance.bernoulli(1.0 / 3.0);
        let free = self.slots.iter().filter(|slot| slot.is_none()).count();
        if free == 0 {
            return;
        }
        let chosen = chance.below(free);
        if let Some(slot) = self.slots.iter_mut().filter(|slot| slot.is_none()).nth(chosen) {
            *slot = Some(Traveller { column: if rightward { 0 } else { LAST }, rightward, gold });
        }
    }

    /// Takes the treasure, or meets the enemy, in the player's cell.
    fn touch(&mut self, frame: &mut Frame) {
        let slot = &mut self.slots[self.row as usize - 1];
        match slot {
            Some(traveller) if traveller.column == self.column => {
                if traveller.gold {
                    *slot = None;
                    frame.reward += 1;
                } else {
                    frame.over = true;
                }
            }
            _ => {}
        }
    }

    /// Makes the game harder when it is time: arrivals on every rise, the pace on every other one.
    fn ramp(&mut self) {
        if !self.ramping || (self.spawn_interval == 1 && self.move_interval == 1) {
            return;
        }
        if self.ramp_timer >= 0 {
            self.ramp_timer -= 1;
            return;
        }
        if self.move_interval > 1 && self.ramps % 2 == 1 {
            self.move_interval -= 1;
        }
        if self.spawn_interval > 1 {
            self.spawn_interval -= 1;
        }
        self.ramps += 1;
        self.ramp_timer = RAMP_INTERVAL;
    }
}

#[cfg(test)]
impl Asterix {
    pub(super) fn intervals(&self) -> (u8, u8) {
        (self.spawn_interval, self.move_interval)
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }
}
