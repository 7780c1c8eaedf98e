//! The state of the actors between two steps, as a checkpoint keeps it.

use serde::{Deserialize, Serialize};

use crate::trajectory::Unroll;

/// How an environment in the middle of an episode is brought back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SavedEnv {
    /// From its own bytes.
    State(Vec<u8>),
    /// By resetting it with the same seed and taking the same actions again.
    Replay(Vec<f32>),
    /// Not at all: the episode was too long to replay.
    Lost,
}

/// One environment of a lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotSnapshot {
    /// Episode index.
    pub episode: u32,
    /// Steps taken in the episode.
    pub step: u32,
    /// Return so far.
    pub episode_return: f64,
    /// The environment.
    pub state: SavedEnv,
}

/// One lane with its partial unroll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneSnapshot {
    /// The unroll in production: rows up to the current one.
    pub unroll: Unroll,
    /// Steps of it already taken.
    pub step: usize,
    /// Environment steps booked for it; none when its first step was not yet taken.
    pub live_steps: Option<u64>,
    /// Whether an episode starts at the current row.
    pub starts: Vec<bool>,
    /// Recurrent state before the current row.
    pub core_state: Vec<f32>,
    /// The environments.
    pub slots: Vec<SlotSnapshot>,
}

/// One rollout actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutSnapshot {
    /// Which actor.
    pub actor: u32,
    /// Which life.
    pub incarnation: u32,
    /// Lane to step next.
    pub turn: usize,
    /// Its lanes.
    pub lanes: Vec<LaneSnapshot>,
    /// Complete unrolls that were still waiting to enter the queue; they count as standing in it.
    pub outbox: Vec<Unroll>,
}
