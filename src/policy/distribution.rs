//! Action distributions: how a row of network outputs becomes an action, a log-probability and an entropy.
//!
//! Sampling works on slices (an actor's rows), evaluation on tensors with gradients (the learner's batch); both call
//! the same row functions of `ops`, so their log-probabilities agree bit for bit on CPU.
//!
//! - categorical and multi-categorical: the row holds logits; a multi-categorical log-probability is the sum over
//!   components in order. A forbidden choice has the logit -1e9, finite so that nothing becomes NaN.
//! - squashed Gaussian: the row holds mean and log standard deviation; the recorded action is the value *before*
//!   tanh, so that the learner needs no inverse.

use candle_core::{DType, Result, Tensor};

use crate::env::ActionSpace;
use crate::ops;
use crate::random::{normal_pair, unit_f32};

/// A family of distributions over the actions of one space.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// One choice out of `n`.
    Categorical {
        /// Number of choices.
        n: usize,
    },
    /// Independent choices.
    MultiCategorical {
        /// Number of choices of each component.
        sizes: Vec<usize>,
    },
    /// tanh of independent normal variables, scaled to the bounds.
    SquashedGaussian {
        /// Lower bounds.
        low: Vec<f32>,
        /// Upper bounds.
        high: Vec<f32>,
    },
}

impl Distribution {
    /// The family that fits a space.
    #[must_use]
    pub fn for_space(space: &ActionSpace) -> Self {
        match space {
            ActionSpace::Discrete { n } => Self::Categorical { n: *n },
            ActionSpace::MultiDiscrete { sizes } => Self::MultiCategorical { sizes: sizes.clone() },
            ActionSpace::Box { low, high } => Self::SquashedGaussian { low: low.clone(), high: high.clone() },
        }
    }

    /// Length of a row of parameters.
    #[must_use]
    pub fn parameter_len(&self) -> usize {
        match self {
            Self::Categorical { n } => *n,
            Self::MultiCategorical { sizes } => sizes.iter().sum(),
            Self::SquashedGaussian { low, .. } => 2 * low.len(),
        }
    }

    /// Length of a recorded action.
    #[must_use]
    pub fn action_width(&self) -> usize {
        match self {
            Self::Categorical { .. } => 1,
            Self::MultiCategorical { sizes } => sizes.len(),
            Self::SquashedGaussian { low, .. } => low.len(),
        }
    }

    /// Number of inputs by which a previous action is shown to the network.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::SquashedGaussian { low, .. } => low.len(),
            _ => self.parameter_len(),
        }
    }

    /// Writes a recorded action as network inputs (one-hot, or the squashed values) into a zeroed row.
    pub fn encode(&self, action: &[f32], out: &mut [f32]) {
        match self {
            Self::Categorical { .. } => out[action[0] as usize] = 1.0,
            Self::MultiCategorical { sizes } => {
                let mut offset = 0;
                for (&choice, size) in action.iter().zip(sizes) {
                    out[offset + choice as usize] = 1.0;
                    offset += size;
                }
            }
            Self::SquashedGaussian { .. } => {
                out.iter_mut().zip(action).for_each(|(out, value)| *out = value.tanh());
            }
        }
    }

    /// Draws an action from one row and returns its log-probability. `mask` is empty or one flag a choice;
    /// `words(i)` gives the i-th block of randomness.
    pub fn sample(
        &self,
        row: &mut [f32],
        mask: &[bool],
        words: impl Fn(u32) -> [u32; 4],
        action: &mut [f32],
    ) -> f32 {
        mask_row(row, mask);
        match self {
            Self::Categorical { .. } => {
                let choice = ops::sample_categorical(row, unit_f32(words(0)[0]));
                action[0] = choice as f32;
                ops::log_prob_and_entropy(row, choice).0
            }
            Self::MultiCategorical { sizes } => {
                let mut log_prob = 0.0;
                for (component, (logits, action)) in components(row, sizes).zip(action).enumerate() {
                    let word = words(component as u32 / 4)[component % 4];
                    let choice = ops::sample_categorical(logits, unit_f32(word));
                    *action = choice as f32;
                    log_prob += ops::log_prob_and_entropy(logits, choice).0;
                }
                log_prob
            }
            Self::SquashedGaussian { low, .. } => {
                let (mean, log_std) = row.split_at(low.len());
                let normal: Vec<f32> = (0..low.len())
                    .map(|i| {
                        let [a, b, c, d] = words(i as u32 / 4);
                        let pair = if i % 4 < 2 { [a, b] } else { [c, d] };
                        normal_pair(pair)[i % 2]
                    })
                    .collect();
                ops::sample_before_squashing(mean, log_std, &normal, action);
                ops::squashed_log_prob_and_entropy(mean, log_std, action).0
            }
        }
    }

    /// The most likely action of one row (for the Gaussian: its mean), as greedy evaluation takes it.
    pub fn mode(&self, row: &mut [f32], mask: &[bool], action: &mut [f32]) {
        mask_row(row, mask);
        match self {
            Self::Categorical { .. } => action[0] = ops::argmax(row) as f32,
            Self::MultiCategorical { sizes } => {
                for (logits, action) in components(row, sizes).zip(action) {
                    *action = ops::argmax(logits) as f32;
                }
            }
            Self::SquashedGaussian { low, .. } => action.copy_from_slice(&row[..low.len()]),
        }
    }

    /// Turns a recorded action into what the environment receives.
    pub fn to_env(&self, action: &[f32], out: &mut Vec<f32>) {
        out.clear();
        match self {
            Self::SquashedGaussian { low, high } => {
                let scale = |((u, low), high): ((&f32, &f32), &f32)| {
                    (low + 0.5 * (u.tanh() + 1.0) * (high - low)).clamp(*low, *high)
                };
                out.extend(action.iter().zip(low).zip(high).map(scale));
            }
            _ => out.extend_from_slice(action),
        }
    }

    /// Log-probability and entropy of `actions` (`[N, action width]`, flat) under rows `[N, parameter_len]`, both
    /// `[N]`, differentiable in the rows. `masks` is empty or `[N, choices]`.
    pub fn evaluate(&self, rows: &Tensor, masks: &[bool], actions: &[f32]) -> Result<(Tensor, Tensor)> {
        let device = rows.device();
        let (n, width) = (rows.dim(0)?, self.action_width());
        let rows = if masks.is_empty() {
            rows.clone()
        } else {
            let flags: Vec<u8> = masks.iter().map(|&allowed| u8::from(allowed)).collect();
            ops::mask_logits(rows, &Tensor::from_vec(flags, rows.dims(), device)?)?
        };
        let choices = |component: usize| {
            let column: Vec<u32> = actions.iter().skip(component).step_by(width).map(|&a| a as u32).collect();
            Tensor::from_vec(column, n, device)
        };
        let both = match self {
            Self::Categorical { .. } => ops::categorical(&rows, &choices(0)?)?,
            Self::MultiCategorical { sizes } => {
                let (mut sum, mut offset) = (Tensor::zeros((n, 2), DType::F32, device)?, 0);
                for (component, &size) in sizes.iter().enumerate() {
                    let logits = rows.narrow(1, offset, size)?.contiguous()?;
                    sum = (sum + ops::categorical(&logits, &choices(component)?)?)?;
                    offset += size;
                }
                sum
            }
            Self::SquashedGaussian { low, .. } => {
                let mean = rows.narrow(1, 0, low.len())?.contiguous()?;
                let log_std = rows.narrow(1, low.len(), low.len())?.contiguous()?;
                let actions = Tensor::from_slice(actions, (n, width), device)?;
                ops::squashed_gaussian(&mean, &log_std, &actions)?
            }
        };
        Ok((both.narrow(1, 0, 1)?.squeeze(1)?, both.narrow(1, 1, 1)?.squeeze(1)?))
    }
}

/// Gives forbidden choices the logit that `ops::mask_logits` gives them.
fn mask_row(row: &mut [f32], mask: &[bool]) {
    for (logit, _) in row.iter_mut().zip(mask).filter(|(_, allowed)| !**allowed) {
        *logit = ops::MASKED;
    }
}

/// The row cut into one slice of logits for each component.
fn components<'a>(row: &'a [f32], sizes: &'a [usize]) -> impl Iterator<Item = &'a [f32]> {
    let mut rest = row;
    sizes.iter().map(move |&size| {
        let (logits, tail) = rest.split_at(size);
        rest = tail;
        logits
    })
}
