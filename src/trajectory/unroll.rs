//! An unroll: T consecutive steps of E parallel environments.
//!
//! Alignment. Row `t` holds observation `o_t`, the action `a_t` taken *at* it, the reward and end flags that `a_t`
//! led to, and the log-probability recorded while sampling. Observations have one row more, the bootstrap row `o_T`.
//! Where an episode ends at `t`, row `t + 1` already shows the next episode's first observation; the true final
//! observation of a truncated episode travels in `final_observations`. Nothing is stored twice: the previous action
//! and reward of row `t` are those of row `t - 1` unless an episode starts there, and those of row 0 have fields of
//! their own. All arrays are row-major, time first.

use serde::{Deserialize, Serialize};

use super::Version;

/// Names an unroll for ever: the `sequence`-th of one life (`incarnation`) of one lane of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnrollId {
    /// Rollout actor.
    pub actor: u32,
    /// Half of the actor's environments that steps together (0 unless sampling is double-buffered).
    pub lane: u32,
    /// Which life of the actor: a restarted actor gets a new one.
    pub incarnation: u32,
    /// Position in that life.
    pub sequence: u64,
}

/// The true last observation of an episode that was truncated inside the unroll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalObservation {
    /// Step at which the episode was cut off.
    pub step: u32,
    /// Column of the environment.
    pub column: u32,
    /// The observation, `[observation_len]`.
    pub observation: Vec<f32>,
}

/// An episode that ended inside the unroll.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpisodeEnd {
    /// Environment id, unique in the run.
    pub env: u32,
    /// Undiscounted, unclipped return.
    pub episode_return: f64,
    /// Steps taken.
    pub length: u32,
}

/// T steps of E environments; shapes are given with the fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unroll {
    /// Which unroll this is.
    pub id: UnrollId,
    /// T.
    pub steps: usize,
    /// E.
    pub columns: usize,
    /// Policy version that chose the actions of each step, `[T]`, non-decreasing.
    pub versions: Vec<Version>,
    /// `[T + 1, E, observation_len]`.
    pub observations: Vec<f32>,
    /// `[T + 1, E, mask_len]`; empty when the environment gives no masks.
    pub action_masks: Vec<bool>,
    /// `[T, E, action width]`, encoded as the action space says (for squashed Gaussian heads: before squashing).
    pub actions: Vec<f32>,
    /// Log-probability of each action when it was sampled, `[T, E]`, nats.
    pub log_probs: Vec<f32>,
    /// As the learner sees them (after clipping), `[T, E]`.
    pub rewards: Vec<f32>,
    /// `[T, E]`.
    pub terminated: Vec<bool>,
    /// `[T, E]`.
    pub truncated: Vec<bool>,
    /// One for each entry with `truncated` and not `terminated`, in order of (step, column).
    pub final_observations: Vec<FinalObservation>,
    /// Whether row 0 is the first of an episode, `[E]`; the two fields below are then ignored.
    pub starts: Vec<bool>,
    /// Action before row 0, `[E, action width]`.
    pub previous_actions: Vec<f32>,
    /// Reward before row 0, `[E]`.
    pub previous_rewards: Vec<f32>,
    /// Recurrent state before row 0, `[E, core state length]`; empty without a recurrent core.
    pub core_state: Vec<f32>,
    /// Episodes that ended inside, in order of time.
    pub episodes: Vec<EpisodeEnd>,
}

impl Unroll {
    /// Environment steps in this unroll.
    #[must_use]
    pub fn env_steps(&self) -> u64 {
        (self.steps * self.columns) as u64
    }

    /// Whether an episode starts at row `t` (0 ≤ t ≤ T) of column `e`.
    #[must_use]
    pub fn starts_at(&self, t: usize, e: usize) -> bool {
        if t == 0 {
            self.starts[e]
        } else {
            let previous = (t - 1) * self.columns + e;
            self.terminated[previous] || self.truncated[previous]
        }
    }
}
