//! The contract between an environment and whoever steps it.
//!
//! An environment is plain and synchronous; it knows nothing of actors, queues or learners. It never resets itself:
//! after a step that ends the episode, `observe` still shows the true final observation, and the caller calls
//! `reset` next.

use super::space::{Action, EnvSpec};

/// The outcome of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Step {
    /// Reward of the action just taken.
    pub reward: f32,
    /// The episode ended by the rules of the task: nothing follows, its value is zero.
    pub terminated: bool,
    /// The episode was cut off: the value of the final observation stands for what would have followed.
    pub truncated: bool,
}

impl Step {
    /// Whether the episode is over, for either reason.
    #[must_use]
    pub fn done(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// Something an agent can act in. See the module's documentation for the calling order.
pub trait Environment: Send {
    /// What this environment shows and accepts; the same for its whole life.
    fn spec(&self) -> &EnvSpec;

    /// Starts a new episode. Everything random in the episode derives from `seed`.
    ///
    /// # Errors
    /// When the environment cannot start an episode.
    fn reset(&mut self, seed: u64) -> Result<(), EnvError>;

    /// Takes one action, which is encoded as `spec().action_space` says.
    ///
    /// # Errors
    /// When the environment fails; the episode is then lost.
    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError>;

    /// Appends the current observation, exactly `spec().observation_len()` values, row-major.
    fn observe(&self, out: &mut Vec<f32>);

    /// Appends which choices are allowed now, exactly `spec().mask_len()` flags with at least one set for each
    /// component. Called only when `spec().masks_actions`.
    fn action_mask(&self, out: &mut Vec<bool>) {
        let _ = out;
    }

    /// The whole state of the episode as bytes, or `None` when it cannot be saved: then the episode is replayed
    /// from its seed and actions when a run is resumed.
    fn save(&self) -> Option<Vec<u8>> {
        None
    }

    /// Continues from bytes that `save` returned.
    ///
    /// # Errors
    /// When the bytes do not belong to this environment.
    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        let _ = state;
        Err(EnvError::Restore { env: self.spec().name.clone(), why: "it does not support saving".into() })
    }
}

/// What can go wrong with an environment.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// No environment of that name is registered.
    #[error("unknown environment `{name}`{hint}; `forebay envs` lists what there is")]
    Unknown {
        /// The name asked for.
        name: String,
        /// " (did you mean …?)" or nothing.
        hint: String,
    },
    /// An option of the environment is unknown or impossible.
    #[error("options of environment `{env}`: {why}")]
    Options {
        /// Registered name.
        env: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// The environment itself reported a failure.
    #[error("environment `{env}` failed: {why}")]
    Failed {
        /// Registered name.
        env: String,
        /// Its own words.
        why: String,
    },
    /// An observation, mask or reward breaks the contract.
    #[error("environment `{env}` broke its contract in {call}: {why}")]
    Contract {
        /// Registered name.
        env: String,
        /// `reset`, `step`, `observe` or `action_mask`.
        call: &'static str,
        /// What was expected and what came.
        why: String,
    },
    /// Saved bytes do not fit.
    #[error("environment `{env}` cannot restore its saved state: {why}")]
    Restore {
        /// Registered name.
        env: String,
        /// What is wrong.
        why: String,
    },
}
