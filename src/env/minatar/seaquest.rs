//! Seaquest: a submarine shoots fish and enemy submarines, gathers divers, and surfaces before its oxygen ends.
//!
//! An enemy shot is worth one point. Surfacing with six divers is worth a point for each cell of the oxygen gauge;
//! surfacing refills the oxygen, costs a diver, and with ramping makes enemies come more often and swim faster. The
//! game is over when an enemy or its bullet is touched, when the oxygen is used up, or on surfacing without divers.
//!
//! Kept from the reference, because scores depend on them: surfacing with six divers leaves *minus one*, with which
//! surfacing is allowed any number of times; and the rare cases in which an entry of a list acts twice in a frame
//! (see `roster`).

mod swimmers;

use serde::{Deserialize, Serialize};

use self::swimmers::{Diver, Divers, Enemies, Enemy, EnemyBullets, Heading, LAST, OwnBullets, move_enemy};
use super::roster::Roster;
use super::{Canvas, Frame, Game, Move, Options, Rules};
use crate::env::Chance;

/// Channels of the observation.
mod channel {
    pub const FRONT: usize = 0;
    pub const BACK: usize = 1;
    pub const OWN_BULLET: usize = 2;
    pub const TRAIL: usize = 3;
    pub const ENEMY_BULLET: usize = 4;
    pub const FISH: usize = 5;
    pub const ENEMY_SUBMARINE: usize = 6;
    pub const OXYGEN_GAUGE: usize = 7;
    pub const DIVER_GAUGE: usize = 8;
    pub const DIVER: usize = 9;
}

const FULL_OXYGEN: i32 = 200;
const MOST_DIVERS: i32 = 6;
/// Frames between two shots of the player.
const SHOT_INTERVAL: u8 = 5;
/// Frames that an enemy submarine waits between two shots.
const ENEMY_SHOT_INTERVAL: u8 = 10;
const DIVER_SPAWN_INTERVAL: u8 = 30;
/// Frames that a diver waits between two moves.
const DIVER_MOVE_INTERVAL: u8 = 5;
const FIRST_SPAWN_INTERVAL: u8 = 20;
const FIRST_MOVE_INTERVAL: u8 = 5;
/// Enemies wait no fewer frames than this between two moves.
const LAST_MOVE_INTERVAL: u8 = 2;
const DEEPEST: i8 = LAST - 1;

/// Makes the game.
#[must_use]
pub fn make(options: &Options) -> Game<Seaquest> {
    Game::new(options)
}

/// The state of one episode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seaquest {
    ramping: bool,
    /// The player's front cell; the back cell is the one behind it.
    player: Heading,
    oxygen: i32,
    /// Divers on board. Negative after surfacing with all six, see the module's documentation.
    divers_on_board: i32,
    own_bullets: OwnBullets,
    enemy_bullets: EnemyBullets,
    fish: Enemies,
    submarines: Enemies,
    divers: Divers,
    spawn_interval: u8,
    spawn_timer: u8,
    diver_spawn_timer: u8,
    /// Frames that enemies wait between two moves.
    move_interval: u8,
    shot_timer: u8,
    /// How often the difficulty rose.
    ramps: u32,
    /// The player is at the surface and that has been counted.
    surfaced: bool,
}

impl Rules for Seaquest {
    const NAME: &'static str = "minatar/seaquest";
    const CHANNELS: usize = 10;
    const MINIMAL_MOVES: &'static [Move] = Move::ALL;

    fn start(ramping: bool, _chance: &mut impl Chance) -> Self {
        Self {
            ramping,
            player: Heading { column: 5, row: 0, rightward: false },
            oxygen: FULL_OXYGEN,
            divers_on_board: 0,
            own_bullets: Roster::default(),
            enemy_bullets: Roster::default(),
            fish: Roster::default(),
            submarines: Roster::default(),
            divers: Roster::default(),
            spawn_interval: FIRST_SPAWN_INTERVAL,
            spawn_timer: FIRST_SPAWN_INTERVAL,
            diver_spawn_timer: DIVER_SPAWN_INTERVAL,
            move_interval: FIRST_MOVE_INTERVAL,
            shot_timer: 0,
            ramps: 0,
            surfaced: true,
        }
    }

    fn play(&mut self, player: Move, chance: &mut impl Chance) -> Frame {
        if self.spawn_timer == 0 {
            self.spawn_enemy(chance);
            self.spawn_timer = self.spawn_interval;
        }
        if self.diver_spawn_timer == 0 {
            self.spawn_diver(chance);
            self.diver_spawn_timer = DIVER_SPAWN_INTERVAL;
        }
        self.steer(player);

        let mut frame = Frame::default();
        self.move_own_bullets(&mut frame);
        self.move_divers();
        self.move_submarines(&mut frame);
        self.move_enemy_bullets(&mut frame);
        self.move_fish(&mut frame);

        self.spawn_timer = self.spawn_timer.saturating_sub(1);
        self.diver_spawn_timer = self.diver_spawn_timer.saturating_sub(1);
        self.shot_timer = self.shot_timer.saturating_sub(1);
        self.breathe(&mut frame);
        frame
    }

    fn paint(&self, canvas: &mut Canvas<'_>) {
        let Heading { column, row, rightward } = self.player;
        canvas.set(row as usize, column as usize, channel::FRONT);
        // On the board, because the player faces an edge that it stands at.
        let back = column + if rightward { -1 } else { 1 };
        canvas.set(row as usize, back as usize, channel::BACK);

        let gauges = LAST as usize;
        for cell in 0..gauge(self.oxygen.max(0)) as usize {
            canvas.set(gauges, cell, channel::OXYGEN_GAUGE);
        }
        for cell in 1..=self.divers_on_board.max(0) as usize {
            canvas.set(gauges, gauges - cell, channel::DIVER_GAUGE);
        }
        for bullet in &self.own_bullets[..] {
            canvas.set(bullet.row as usize, bullet.column as usize, channel::OWN_BULLET);
        }
        for bullet in &self.enemy_bullets[..] {
            canvas.set(bullet.row as usize, bullet.column as usize, channel::ENEMY_BULLET);
        }
        for fish in &self.fish[..] {
            fish.at.paint(channel::FISH, canvas);
        }
        for submarine in &self.submarines[..] {
            submarine.at.paint(channel::ENEMY_SUBMARINE, canvas);
        }
        for diver in &self.divers[..] {
            diver.at.paint(channel::DIVER, canvas);
        }
    }
}

/// Lit cells of the oxygen gauge, 0 to 10.
fn gauge(oxygen: i32) -> i32 {
    oxygen * 10 / FULL_OXYGEN
}

/// A random row between the surface and the gauges.
fn draw_row(chance: &mut impl Chance) -> i8 {
    1 + chance.below(DEEPEST as usize) as i8
}

impl Seaquest {
    /// An enemy enters, unless one in the same row swims the other way.
    fn spawn_enemy(&mut self, chance: &mut impl Chance) {
        let rightward = chance.bernoulli(0.5);
        let is_submarine = chance.bernoulli(1.0 / 3.0);
        let at = Heading::entering(rightward, draw_row(chance));
        let opposes = |enemy: &Enemy| enemy.at.row == at.row && enemy.at.rightward != rightward;
        if self.submarines.iter().chain(&self.fish[..]).any(opposes) {
            return;
        }
        let move_timer = self.move_interval;
        if is_submarine {
            self.submarines.push(Enemy { at, move_timer, shot_timer: ENEMY_SHOT_INTERVAL });
        } else {
            self.fish.push(Enemy { at, move_timer, shot_timer: 0 });
        }
    }

    fn spawn_diver(&mut self, chance: &mut impl Chance) {
        let rightward = chance.bernoulli(0.5);
        let at = Heading::entering(rightward, draw_row(chance));
        self.divers.push(Diver { at, move_timer: DIVER_MOVE_INTERVAL });
    }

    fn steer(&mut self, player: Move) {
        match player {
            Move::Fire if self.shot_timer == 0 => {
                self.own_bullets.push(self.player);
                self.shot_timer = SHOT_INTERVAL;
            }
            Move::Left => {
                self.player.column = (self.player.column - 1).max(0);
                self.player.rightward = false;
            }
            Move::Right => {
                self.player.column = (self.player.column + 1).min(LAST);
                self.player.rightward = true;
            }
            Move::Up => self.player.row = (self.player.row - 1).max(0),
            Move::Down => self.player.row = (self.player.row + 1).min(DEEPEST),
            Move::Stay | Move::Fire => {}
        }
    }

    fn move_own_bullets(&mut self, frame: &mut Frame) {
        for index in (0..self.own_bullets.len()).rev() {
            self.own_bullets[index].swim();
            let bullet = self.own_bullets[index];
            let hits = |enemy: &Enemy| enemy.at.meets(bullet);
            let gone = if bullet.has_left() {
                true
            } else {
                let hit =
                    self.fish.remove_first(hits).or_else(|| self.submarines.remove_first(hits)).is_some();
                frame.reward += u32::from(hit);
                hit
            };
            if gone {
                self.own_bullets.remove_first(|other| *other == bullet);
            }
        }
    }

    fn move_divers(&mut self) {
        for index in (0..self.divers.len()).rev() {
            let mut taken = self.takes(self.divers[index]);
            if !taken {
                let diver = &mut self.divers[index];
                if diver.move_timer > 0 {
                    diver.move_timer -= 1;
                    continue;
                }
                diver.move_timer = DIVER_MOVE_INTERVAL;
                diver.at.swim();
                let diver = *diver;
                taken = self.takes(diver);
            }
            let diver = self.divers[index];
            if taken || diver.at.has_left() {
                self.divers.remove_first(|other| *other == diver);
                self.divers_on_board += i32::from(taken);
            }
        }
    }

    /// Whether the player stands on the diver and has room for it.
    fn takes(&self, diver: Diver) -> bool {
        diver.at.meets(self.player) && self.divers_on_board < MOST_DIVERS
    }

    fn move_fish(&mut self, frame: &mut Frame) {
        for index in (0..self.fish.len()).rev() {
            move_enemy(&mut self.fish, index, self.move_interval, self.player, &mut self.own_bullets, frame);
        }
    }

    /// Moves each submarine, then lets it shoot: even one that has just been shot or left the board, whose bullet
    /// the next step of the frame removes.
    fn move_submarines(&mut self, frame: &mut Frame) {
        for index in (0..self.submarines.len()).rev() {
            let (submarine, place) = move_enemy(
                &mut self.submarines,
                index,
                self.move_interval,
                self.player,
                &mut self.own_bullets,
                frame,
            );
            let shot_timer = if submarine.shot_timer == 0 {
                self.enemy_bullets.push(submarine.at);
                ENEMY_SHOT_INTERVAL
            } else {
                submarine.shot_timer - 1
            };
            if let Some(place) = place {
                self.submarines[place].shot_timer = shot_timer;
            }
        }
    }

    fn move_enemy_bullets(&mut self, frame: &mut Frame) {
        for index in (0..self.enemy_bullets.len()).rev() {
            frame.over |= self.enemy_bullets[index].meets(self.player);
            self.enemy_bullets[index].swim();
            let bullet = self.enemy_bullets[index];
            frame.over |= bullet.meets(self.player);
            if bullet.has_left() {
                self.enemy_bullets.remove_first(|other| *other == bullet);
            }
        }
    }

    /// Uses oxygen, and surfaces when the player has come to the top.
    fn breathe(&mut self, frame: &mut Frame) {
        frame.over |= self.oxygen <= 0;
        if self.player.row > 0 {
            self.oxygen -= 1;
            self.surfaced = false;
        } else if !self.surfaced {
            if self.divers_on_board == 0 {
                frame.over = true;
            } else {
                self.surface(frame);
            }
        }
    }

    fn surface(&mut self, frame: &mut Frame) {
        self.surfaced = true;
        if self.divers_on_board == MOST_DIVERS {
            self.divers_on_board = 0;
            frame.reward += gauge(self.oxygen.max(0)) as u32;
        }
        self.divers_on_board -= 1;
        self.oxygen = FULL_OXYGEN;
        if self.ramping && (self.spawn_interval > 1 || self.move_interval > LAST_MOVE_INTERVAL) {
            if self.move_interval > LAST_MOVE_INTERVAL && self.ramps % 2 == 1 {
                self.move_interval -= 1;
            }
            if self.spawn_interval > 1 {
                self.spawn_interval -= 1;
            }
            self.ramps += 1;
        }
    }
}

#[cfg(test)]
impl Seaquest {
    pub(super) fn intervals(&self) -> (u8, u8) {
        (self.spawn_interval, self.move_interval)
    }

    pub(super) fn divers_on_board(&self) -> i32 {
        self.divers_on_board
    }

    pub(super) fn is_out_of_oxygen(&self) -> bool {
        self.oxygen < 0
    }
}
