//! TMaze: a cue shown at the start tells which way to turn at the far end of a corridor.
//!
//! The classic test of memory (Bakker, "Reinforcement learning with long short-term memory", 2001): at the junction
//! nothing but what was seen at the start tells the two turns apart, so a policy without memory earns 0 on average
//! and one with memory earns 1.

use serde::{Deserialize, Serialize};

use crate::env::chance::Chance;
use crate::env::environment::{EnvError, Environment, Step};
use crate::env::options::EnvOptions;
use crate::env::space::{Action, ActionSpace, EnvSpec};
use crate::env::state;
use crate::random::CounterRng;

pub(super) const NAME: &str = "TMaze";

/// The longest corridor; a random walker still passes it within the default time limit.
const LONGEST: usize = 100;
/// Reward of walking into a wall.
const BUMP: f32 = -0.1;

/// What can be chosen about the maze.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TMazeOptions {
    /// Steps from the start to the junction, 1 to 100. The cue is seen only at the start.
    pub length: usize,
}

impl Default for TMazeOptions {
    fn default() -> Self {
        Self { length: 10 }
    }
}

impl TMazeOptions {
    /// The options given, with the length in its range.
    pub(super) fn read(options: &EnvOptions<'_>) -> Result<Self, EnvError> {
        let read: Self = options.parse()?;
        if (1..=LONGEST).contains(&read.length) {
            return Ok(read);
        }
        Err(options.refuse("length", &format!("is {}; give 1 to {LONGEST} steps", read.length)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Whether the goal lies up the junction; down otherwise.
    goal_is_up: bool,
    /// Steps from the start; the junction is at `length`.
    position: usize,
    /// The maze's own length, to refuse the state of another maze.
    length: usize,
}

/// The environment. Observation: four flags, exactly one of them set: cue up, cue down (both only at the start), in
/// the corridor, at the junction. Actions: 0 walks on, 1 turns up, 2 turns down. Turning at the junction ends the
/// episode with reward 1 for the cued way and -1 for the other; any move into a wall costs 0.1 and leads nowhere.
pub struct TMaze {
    spec: EnvSpec,
    state: State,
}

impl TMaze {
    /// A maze with the cue down, to be reset before use. A length of 0 is taken as 1.
    #[must_use]
    pub fn new(options: TMazeOptions) -> Self {
        let spec = EnvSpec {
            name: NAME.into(),
            observation_shape: vec![4],
            action_space: ActionSpace::Discrete { n: 3 },
            masks_actions: false,
        };
        Self { spec, state: State { goal_is_up: false, position: 0, length: options.length.max(1) } }
    }
}

impl Environment for TMaze {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.state.goal_is_up = Chance::bernoulli(&mut CounterRng::new(seed), 0.5);
        self.state.position = 0;
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let State { goal_is_up, position, length } = &mut self.state;
        let at_junction = position == length;
        let walks_on = action.index() == 0;
        let (reward, terminated) = match (at_junction, walks_on) {
            (false, true) => {
                *position += 1;
                (0.0, false)
            }
            (true, false) if (action.index() == 1) == *goal_is_up => (1.0, true),
            (true, false) => (-1.0, true),
            (false, false) | (true, true) => (BUMP, false),
        };
        Ok(Step { reward, terminated, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let State { goal_is_up, position, length } = self.state;
        let seen = match position {
            0 if goal_is_up => 0,
            0 => 1,
            _ if position < length => 2,
            _ => 3,
        };
        out.extend((0..4).map(|flag| f32::from(u8::from(flag == seen))));
    }

    fn save(&self) -> Option<Vec<u8>> {
        state::save(NAME, &self.state)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let saved: State = state::restore(NAME, NAME, bytes)?;
        let length = self.state.length;
        if saved.length != length || saved.position > length {
            let why = format!("it was saved in a maze of length {}, this one has {length}", saved.length);
            return Err(state::refuse(NAME, &why));
        }
        self.state = saved;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALK: [f32; 1] = [0.0];
    const UP: [f32; 1] = [1.0];
    const DOWN: [f32; 1] = [2.0];

    fn maze(length: usize, goal_is_up: bool) -> TMaze {
        let mut maze = TMaze::new(TMazeOptions { length });
        maze.state.goal_is_up = goal_is_up;
        maze
    }

    fn seen(maze: &TMaze) -> Vec<f32> {
        let mut out = Vec::new();
        maze.observe(&mut out);
        out
    }

    fn step(maze: &mut TMaze, action: [f32; 1]) -> (f32, bool) {
        let step = maze.step(Action::new(&action)).unwrap();
        (step.reward, step.terminated)
    }

    #[test]
    fn the_cue_is_seen_at_the_start_and_nowhere_else() {
        let (mut up, mut down) = (maze(3, true), maze(3, false));
        assert_eq!(seen(&up), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(seen(&down), [0.0, 1.0, 0.0, 0.0]);
        for expected in [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]] {
            assert_eq!(step(&mut up, WALK), (0.0, false));
            assert_eq!(step(&mut down, WALK), (0.0, false));
            assert_eq!((seen(&up), seen(&down)), (expected.to_vec(), expected.to_vec()));
        }
    }

    #[test]
    fn only_the_cued_turn_is_rewarded() {
        for (goal_is_up, turn, reward) in
            [(true, UP, 1.0), (true, DOWN, -1.0), (false, UP, -1.0), (false, DOWN, 1.0)]
        {
            let mut maze = maze(1, goal_is_up);
            step(&mut maze, WALK);
            assert_eq!(step(&mut maze, turn), (reward, true));
        }
    }

    #[test]
    fn walls_cost_and_lead_nowhere() {
        let mut maze = maze(1, true);
        assert_eq!(step(&mut maze, UP), (BUMP, false));
        assert_eq!(maze.state.position, 0);
        step(&mut maze, WALK);
        assert_eq!(step(&mut maze, WALK), (BUMP, false));
        assert_eq!(seen(&maze), [0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn both_cues_are_drawn_equally_often() {
        let mut maze = maze(1, true);
        let ups = (0..1000).filter(|&seed| {
            maze.reset(seed).unwrap();
            maze.state.goal_is_up
        });
        let ups = ups.count();
        assert!((430..570).contains(&ups), "{ups} of 1000");
    }

    #[test]
    fn the_state_of_a_maze_of_another_length_is_refused() {
        let error = maze(3, true).restore(&maze(4, true).save().unwrap()).unwrap_err();
        assert!(error.to_string().contains("length 4"), "{error}");
    }
}
