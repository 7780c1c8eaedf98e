//! What swims and flies in Seaquest: bullets, divers, and enemies with their own move.

use serde::{Deserialize, Serialize};

use super::channel;
use crate::env::minatar::grid::SIDE;
use crate::env::minatar::roster::Roster;
use crate::env::minatar::{Canvas, Frame};

/// The last column. The last row is kept for the gauges.
pub(super) const LAST: i8 = SIDE as i8 - 1;

// Capacities, from how long an entry lives at most: an enemy crosses in 30 frames once one comes every frame (in 60
// when one comes every twenty), a bullet in ten, a diver in sixty with one every thirty.
pub(super) type Enemies = Roster<Enemy, 32>;
pub(super) type OwnBullets = Roster<Bullet, 8>;
pub(super) type EnemyBullets = Roster<Bullet, 64>;
pub(super) type Divers = Roster<Diver, 8>;

/// Where something is and where it is heading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heading {
    pub column: i8,
    pub row: i8,
    pub rightward: bool,
}

impl Heading {
    /// In the first cell of a row, on the side where something of this direction enters.
    pub(super) fn entering(rightward: bool, row: i8) -> Self {
        Self { column: if rightward { 0 } else { LAST }, row, rightward }
    }

    /// One column on.
    pub(super) fn swim(&mut self) {
        self.column += if self.rightward { 1 } else { -1 };
    }

    /// Whether it has swum off the board.
    pub(super) fn has_left(self) -> bool {
        !(0..=LAST).contains(&self.column)
    }

    /// Whether both are in one cell.
    pub(super) fn meets(self, other: Self) -> bool {
        (self.column, self.row) == (other.column, other.row)
    }

    /// Paints this cell, and the trail in the cell behind it.
    pub(super) fn paint(self, kind: usize, canvas: &mut Canvas<'_>) {
        canvas.set(self.row as usize, self.column as usize, kind);
        let behind = self.column + if self.rightward { -1 } else { 1 };
        if (0..=LAST).contains(&behind) {
            canvas.set(self.row as usize, behind as usize, channel::TRAIL);
        }
    }
}

/// Bullets of either side move one column every frame.
pub(super) type Bullet = Heading;

/// Someone to rescue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Diver {
    pub at: Heading,
    pub move_timer: u8,
}

/// A fish or an enemy submarine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Enemy {
    pub at: Heading,
    pub move_timer: u8,
    /// Of submarines; fish do not shoot.
    pub shot_timer: u8,
}

/// One frame of the enemy at `index`: what became of it, and its place when it is still on the board.
pub(super) fn move_enemy(
    enemies: &mut Enemies,
    index: usize,
    move_interval: u8,
    player: Heading,
    own_bullets: &mut OwnBullets,
    frame: &mut Frame,
) -> (Enemy, Option<usize>) {
    let enemy = &mut enemies[index];
    frame.over |= enemy.at.meets(player);
    if enemy.move_timer > 0 {
        enemy.move_timer -= 1;
        return (*enemy, Some(index));
    }
    enemy.move_timer = move_interval;
    enemy.at.swim();
    let enemy = *enemy;
    let gone = if enemy.at.has_left() {
        true
    } else if enemy.at.meets(player) {
        frame.over = true;
        false
    } else {
        let hit = own_bullets.remove_first(|bullet| bullet.meets(enemy.at)).is_some();
        frame.reward += u32::from(hit);
        hit
    };
    if !gone {
        return (enemy, Some(index));
    }
    // When an older equal enemy went in its stead, this one has moved down a place.
    let removed = enemies.remove_first(|other| *other == enemy);
    (enemy, if removed == Some(index) { None } else { Some(index - 1) })
}
