//! An environment that says where it is: every observation and reward names environment, episode and step, so that
//! whatever is lost, repeated or shifted on the way shows.
//!
//! It learns which episode of which environment it plays from its seed alone, which the test derives beforehand.

use std::collections::HashMap;
use std::sync::Arc;

use forebay::env::{Action, ActionSpace, EnvEntry, EnvError, EnvSpec, Environment, Registry, Step};
use forebay::random::{Stream, derive_seed};

pub const NAME: &str = "Counting";
/// Choices of an action.
pub const CHOICES: u32 = 3;

const ENVS: u32 = 16;
const EPISODES: u32 = 400;

/// Where an environment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub env: u32,
    pub episode: u32,
    pub step: u32,
    /// Action of the step before plus one; 0 at the first step.
    pub came_by: u32,
}

impl Place {
    /// The first step of an episode.
    pub fn start(env: u32, episode: u32) -> Self {
        Self { env, episode, step: 0, came_by: 0 }
    }

    /// What is seen there.
    pub fn observation(&self) -> [f32; 4] {
        [self.env, self.episode, self.step, self.came_by].map(|value| value as f32)
    }

    /// Which choices are allowed there.
    pub fn mask(&self) -> [bool; CHOICES as usize] {
        let forbidden = (self.env + self.episode + self.step) % CHOICES;
        std::array::from_fn(|choice| choice as u32 != forbidden)
    }

    /// The reward of an action taken there; no two places or actions have the same.
    pub fn reward(&self, action: u32) -> f32 {
        (self.env * 50_000 + self.episode * 100 + self.step * CHOICES + action) as f32
    }

    /// Where an action leads.
    pub fn after(&self, action: u32) -> Self {
        Self { step: self.step + 1, came_by: action + 1, ..*self }
    }

    /// Whether the episode is over there. Episodes have 1 to 7 steps.
    pub fn is_end(&self) -> bool {
        self.step == 1 + (3 * self.env + 5 * self.episode) % 7
    }

    /// Whether the episode is cut off at its end, rather than terminated.
    pub fn is_truncated(&self) -> bool {
        (self.env + self.episode) % 2 == 1
    }
}

struct Counting {
    spec: EnvSpec,
    episodes: Arc<HashMap<u64, (u32, u32)>>,
    saves: bool,
    place: Place,
}

impl Environment for Counting {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        let &(env, episode) = self.episodes.get(&seed).expect("the seed of one of the run's episodes");
        self.place = Place::start(env, episode);
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let action = action.index() as u32;
        let reward = self.place.reward(action);
        self.place = self.place.after(action);
        let (ends, truncated) = (self.place.is_end(), self.place.is_truncated());
        Ok(Step { reward, terminated: ends && !truncated, truncated: ends && truncated })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        out.extend(self.place.observation());
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        out.extend(self.place.mask());
    }

    fn save(&self) -> Option<Vec<u8>> {
        let Place { env, episode, step, came_by } = self.place;
        self.saves.then(|| [env, episode, step, came_by].into_iter().flat_map(u32::to_le_bytes).collect())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        let words: Vec<u32> =
            state.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        self.place = Place { env: words[0], episode: words[1], step: words[2], came_by: words[3] };
        Ok(())
    }
}

/// A registry that has it; `saves` says whether it can save its state.
pub fn registry(seed: u64, saves: bool) -> Registry {
    let key = |env, episode| derive_seed(seed, Stream::Episode, [env, episode, 0, 0]);
    let episodes = (0..ENVS).flat_map(|env| (0..EPISODES).map(move |episode| (env, episode)));
    let episodes: Arc<HashMap<_, _>> =
        Arc::new(episodes.map(|(env, episode)| (key(env, episode), (env, episode))).collect());
    let mut registry = Registry::new();
    registry.register(EnvEntry::new(NAME, "says where it is", move |_| {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![4],
            action_space: ActionSpace::Discrete { n: CHOICES as usize },
            masks_actions: true,
        };
        let place = Place::start(0, 0);
        Ok(Box::new(Counting { spec, episodes: Arc::clone(&episodes), saves, place }))
    }));
    registry
}
