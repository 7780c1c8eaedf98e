//! MinAtar: five Atari games reduced to a board of ten by ten cells (Young and Tian, "MinAtar: an Atari-inspired
//! testbed for thorough and reproducible reinforcement learning experiments", arXiv:1903.03176).
//!
//! Behaviour is that of version 1.0.15 of the authors' Python package, frame by frame, oddities included: the tests
//! hand each game the random outcomes which the package drew and compare observation, reward and end of every frame
//! of whole episodes. One thing differs on purpose: the move that a sticky first frame repeats is `Stay`, where the
//! package carries over the last move of the episode before; here an episode depends on its seed and actions only.
//!
//! Observations are `[10, 10, channels]` of 0 and 1, channels last; each game's file lists its channels. The layout:
//!
//! - `game`: what the games share, and the [`Environment`] around a game's [`Rules`];
//! - one file a game: its state and its rules, nothing else;
//! - `grid`, `roster`, `canvas`: a set of cells, a list of moving things, and an observation being painted.

pub mod asterix;
pub mod breakout;
mod canvas;
pub mod freeway;
mod game;
mod grid;
#[cfg(test)]
mod replay;
mod roster;
pub mod seaquest;
pub mod space_invaders;

use serde::{Deserialize, Deserializer, Serialize, de::Error};

pub use canvas::Canvas;
pub use game::{Frame, Game, Move, Rules};

use crate::env::{EnvEntry, EnvOptions, Environment, Registry};

/// Frames after which an episode is cut off unless the configuration says otherwise. The package itself sets no
/// limit; without one a good policy's Breakout or Space Invaders episode may never end.
pub const DEFAULT_TIME_LIMIT: u32 = 5000;

/// The options of every game.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Probability, in 0..=1, that a frame repeats the last move in place of the wanted one.
    #[serde(deserialize_with = "probability")]
    pub sticky_action_prob: f64,
    /// Whether the game gets harder with time (Asterix, Seaquest, Space Invaders).
    pub difficulty_ramping: bool,
    /// Whether to accept only the moves that make a difference in the game, renumbered from 0.
    pub minimal_actions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sticky_action_prob: 0.1, difficulty_ramping: true, minimal_actions: false }
    }
}

fn probability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("a probability lies between 0 and 1, this is {value}")))
    }
}

/// One game as the registry wants it.
#[derive(Debug, Clone, Copy)]
pub struct GameEntry {
    /// The registered name.
    pub name: &'static str,
    /// What the player does, in one line.
    pub summary: &'static str,
    /// Makes the game.
    pub make: fn(&Options) -> Box<dyn Environment>,
}

/// All games, in alphabetical order.
pub const GAMES: [GameEntry; 5] = [
    GameEntry {
        name: asterix::Asterix::NAME,
        summary: "collect treasure and avoid enemies that cross the board",
        make: |options| Box::new(asterix::make(options)),
    },
    GameEntry {
        name: breakout::Breakout::NAME,
        summary: "keep a ball in play with a paddle and break bricks",
        make: |options| Box::new(breakout::make(options)),
    },
    GameEntry {
        name: freeway::Freeway::NAME,
        summary: "cross eight lanes of traffic as often as possible",
        make: |options| Box::new(freeway::make(options)),
    },
    GameEntry {
        name: seaquest::Seaquest::NAME,
        summary: "shoot enemies, rescue divers, surface before the oxygen ends",
        make: |options| Box::new(seaquest::make(options)),
    },
    GameEntry {
        name: space_invaders::SpaceInvaders::NAME,
        summary: "shoot down waves of descending aliens",
        make: |options| Box::new(space_invaders::make(options)),
    },
];

/// Adds the games to `registry`.
pub(super) fn register(registry: &mut Registry) {
    for game in GAMES {
        let make = move |options: &EnvOptions<'_>| Ok((game.make)(&options.parse()?));
        registry.register(EnvEntry::new(game.name, game.summary, make).with_time_limit(DEFAULT_TIME_LIMIT));
    }
}

#[cfg(test)]
mod tests;
