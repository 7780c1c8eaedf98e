//! What an environment shows and accepts: observation shape, action space, and the encoding of one action.
//!
//! Every action is a row of `f32` of a fixed width, whatever its space, so that unrolls, requests and batches have
//! one layout: a discrete action is its index, a multi-discrete one its indices, a continuous one its values.

use serde::{Deserialize, Serialize};

/// The set of actions an environment accepts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ActionSpace {
    /// One of `n` choices.
    Discrete {
        /// Number of choices.
        n: usize,
    },
    /// Several independent choices at once.
    MultiDiscrete {
        /// Number of choices of each component.
        sizes: Vec<usize>,
    },
    /// A vector of real numbers between bounds.
    Box {
        /// Lower bound of each component.
        low: Vec<f32>,
        /// Upper bound of each component.
        high: Vec<f32>,
    },
}

impl ActionSpace {
    /// Length of an encoded action row.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Discrete { .. } => 1,
            Self::MultiDiscrete { sizes } => sizes.len(),
            Self::Box { low, .. } => low.len(),
        }
    }

    /// Number of flags in an action mask: one for each choice of each component; 0 for continuous actions.
    #[must_use]
    pub fn choices(&self) -> usize {
        match self {
            Self::Discrete { n } => *n,
            Self::MultiDiscrete { sizes } => sizes.iter().sum(),
            Self::Box { .. } => 0,
        }
    }
}

/// What an environment shows and accepts, and what it is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// The registered name.
    pub name: String,
    /// Shape of one observation; images are `[height, width, channels]` (channels last).
    pub observation_shape: Vec<usize>,
    /// The actions accepted.
    pub action_space: ActionSpace,
    /// Whether `action_mask` says which choices are allowed (discrete and multi-discrete spaces only).
    pub masks_actions: bool,
}

impl EnvSpec {
    /// Number of values in one observation.
    #[must_use]
    pub fn observation_len(&self) -> usize {
        self.observation_shape.iter().product()
    }

    /// Number of flags in one action mask, 0 when the environment gives none.
    #[must_use]
    pub fn mask_len(&self) -> usize {
        if self.masks_actions { self.action_space.choices() } else { 0 }
    }
}

/// One encoded action (see the module's documentation).
#[derive(Debug, Clone, Copy)]
pub struct Action<'a>(&'a [f32]);

impl<'a> Action<'a> {
    /// Wraps an encoded row of the action space's width.
    #[must_use]
    pub fn new(row: &'a [f32]) -> Self {
        Self(row)
    }

    /// The choice, for a discrete space.
    #[must_use]
    pub fn index(self) -> usize {
        self.0[0] as usize
    }

    /// The choice of every component, for a multi-discrete space.
    pub fn indices(self) -> impl Iterator<Item = usize> + 'a {
        self.0.iter().map(|&v| v as usize)
    }

    /// The values, for a continuous space.
    #[must_use]
    pub fn values(self) -> &'a [f32] {
        self.0
    }
}
