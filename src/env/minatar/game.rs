//! What the five games share: the controls, sticky actions, seeding, saving, and the face of an environment.
//!
//! A game is its [`Rules`], a plain value without a generator; [`Game`] supplies the rest. Invariants: an episode is
//! a function of its seed and its actions, and nothing of one episode reaches into the next.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Options, canvas::Canvas, grid::SIDE};
use crate::env::state;
use crate::env::{Action, ActionSpace, Chance, EnvError, EnvSpec, Environment, Step};
use crate::random::CounterRng;

/// What the player can do in one frame, in the order of the full action set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Move {
    /// Nothing.
    Stay,
    /// One column to the left.
    Left,
    /// One row up.
    Up,
    /// One column to the right.
    Right,
    /// One row down.
    Down,
    /// Shoot, where the game has something to shoot with.
    Fire,
}

impl Move {
    /// The full action set, which every game accepts by default.
    pub const ALL: &[Self] = &[Self::Stay, Self::Left, Self::Up, Self::Right, Self::Down, Self::Fire];
}

/// What one frame brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame {
    /// Points won.
    pub reward: u32,
    /// Whether the game is over.
    pub over: bool,
}

/// The rules of one game and the state of one episode of it.
pub trait Rules: Clone + Send + Serialize + DeserializeOwned {
    /// The registered name.
    const NAME: &'static str;
    /// Channels of the observation.
    const CHANNELS: usize;
    /// The moves that make a difference in this game.
    const MINIMAL_MOVES: &'static [Move];

    /// The first frame of an episode. `ramping` says whether the game gets harder with time, where it can.
    fn start(ramping: bool, chance: &mut impl Chance) -> Self;

    /// Plays one frame.
    fn play(&mut self, player: Move, chance: &mut impl Chance) -> Frame;

    /// Paints what the player sees onto a blank canvas.
    fn paint(&self, canvas: &mut Canvas<'_>);
}

/// One of the games as an environment. `C` is where its random outcomes come from.
pub struct Game<R, C = CounterRng> {
    /// Derived once from the rules and the options.
    spec: EnvSpec,
    options: Options,
    /// The move that each action index stands for.
    moves: &'static [Move],
    chance: C,
    /// What a sticky frame repeats: the move that was played last, or `Stay` at the start.
    last_move: Move,
    /// Set by the frame that ended the game; later frames change nothing.
    over: bool,
    rules: R,
}

impl<R: Rules> Game<R> {
    /// The game at the start of the episode with seed 0.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self::with_chance(options, CounterRng::new(0))
    }
}

impl<R: Rules, C: Chance> Game<R, C> {
    /// The game at the start of an episode whose random outcomes come from `chance`.
    pub(super) fn with_chance(options: &Options, mut chance: C) -> Self {
        let moves = if options.minimal_actions { R::MINIMAL_MOVES } else { Move::ALL };
        let spec = EnvSpec {
            name: R::NAME.into(),
            observation_shape: vec![SIDE, SIDE, R::CHANNELS],
            action_space: ActionSpace::Discrete { n: moves.len() },
            masks_actions: false,
        };
        let rules = R::start(options.difficulty_ramping, &mut chance);
        Self { spec, options: options.clone(), moves, chance, last_move: Move::Stay, over: false, rules }
    }

    /// Plays one frame with the wanted move, or with the last one when the frame is sticky.
    pub(super) fn advance(&mut self, wanted: Move) -> Step {
        if self.over {
            return Step { reward: 0.0, terminated: true, truncated: false };
        }
        if !self.chance.bernoulli(self.options.sticky_action_prob) {
            self.last_move = wanted;
        }
        let frame = self.rules.play(self.last_move, &mut self.chance);
        self.over = frame.over;
        Step { reward: frame.reward as f32, terminated: frame.over, truncated: false }
    }

    /// Appends the observation to `out`.
    pub(super) fn paint(&self, out: &mut Vec<f32>) {
        self.rules.paint(&mut Canvas::append(out, R::CHANNELS));
    }

    #[cfg(test)]
    pub(super) fn rules(&self) -> &R {
        &self.rules
    }

    #[cfg(test)]
    pub(super) fn chance(&self) -> &C {
        &self.chance
    }
}

impl<R: Rules> Environment for Game<R> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.chance = CounterRng::new(seed);
        self.last_move = Move::Stay;
        self.over = false;
        self.rules = R::start(self.options.difficulty_ramping, &mut self.chance);
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let index = action.index();
        let Some(&wanted) = self.moves.get(index) else {
            return Err(EnvError::Contract {
                env: R::NAME.into(),
                call: "step",
                why: format!(
                    "action {index} where {} are known; send 0 to {}",
                    self.moves.len(),
                    self.moves.len() - 1
                ),
            });
        };
        Ok(self.advance(wanted))
    }

    fn observe(&self, out: &mut Vec<f32>) {
        self.paint(out);
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(R::NAME, &(&self.chance, self.last_move, self.over, &self.rules))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let (chance, last_move, over, rules) = state::restore(R::NAME, R::NAME, bytes)?;
        (self.chance, self.last_move, self.over, self.rules) = (chance, last_move, over, rules);
        Ok(())
    }
}
