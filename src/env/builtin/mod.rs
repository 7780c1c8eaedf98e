//! The environments that come with this crate.
//!
//! Classic control computes in double precision with the formulas of gymnasium and shows single precision; the
//! small tasks each exercise one feature: an image, memory, action masks, several choices at once. None limits its
//! episodes itself: the registry adds the default limits given here. All save and restore their whole state.

mod acrobot;
mod cart_pole;
mod catch;
mod forage;
#[cfg(test)]
mod gymnasium;
mod mountain_car;
mod pendulum;
mod stateless_cart_pole;
mod t_maze;
mod tic_tac_toe;

pub use acrobot::Acrobot;
pub use cart_pole::CartPole;
pub use catch::Catch;
pub use forage::Forage;
pub use mountain_car::MountainCar;
pub use pendulum::Pendulum;
pub use stateless_cart_pole::StatelessCartPole;
pub use t_maze::{TMaze, TMazeOptions};
pub use tic_tac_toe::TicTacToe;

use super::environment::Environment;
use super::options::NoOptions;
use super::registry::{EnvEntry, Registry};

/// Adds every built-in environment to `registry`.
pub(super) fn register(registry: &mut Registry) {
    let entries = [
        plain(cart_pole::NAME, "balance a pole on a cart; seen in full", CartPole::new).with_time_limit(500),
        plain(acrobot::NAME, "swing a two-link arm above a line", Acrobot::new).with_time_limit(500),
        plain(mountain_car::NAME, "drive an underpowered car out of a valley", MountainCar::new)
            .with_time_limit(200),
        plain(pendulum::NAME, "swing a pendulum up and hold it, by a continuous torque", Pendulum::new)
            .with_time_limit(200),
        plain(
            stateless_cart_pole::NAME,
            "CartPole with the velocities hidden, which takes memory",
            StatelessCartPole::new,
        )
        .with_time_limit(500),
        plain(catch::NAME, "move a paddle under a falling ball; an image", Catch::new),
        EnvEntry::new(
            t_maze::NAME,
            "remember a cue through a corridor and turn by it at the end",
            |options| Ok(Box::new(TMaze::new(TMazeOptions::read(options)?))),
        )
        .with_time_limit(500),
        plain(tic_tac_toe::NAME, "beat a random player; taken squares are masked", TicTacToe::new),
        plain(
            forage::NAME,
            "walk to food and grab it, by three choices at once; walls are masked",
            Forage::new,
        )
        .with_time_limit(100),
    ];
    for entry in entries {
        registry.register(entry);
    }
}

/// An environment without options.
fn plain<E: Environment + 'static>(
    name: &'static str,
    summary: &'static str,
    make: impl Fn() -> E + Send + Sync + 'static,
) -> EnvEntry {
    EnvEntry::new(name, summary, move |options| {
        options.parse::<NoOptions>()?;
        Ok(Box::new(make()))
    })
}
