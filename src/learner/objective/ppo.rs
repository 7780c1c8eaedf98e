//! Proximal policy optimisation with a clipped surrogate.

use candle_core::WithDType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::{Parts, Selection, Term, combine};
use super::value_loss::{ValueClip, clipped_squared_error, squared_error};
use super::{Clipped, Diagnostics, Evaluation, Loss, LossConfig, ObjectiveError};
use crate::learner::Real;

/// Settings of [`ppo_loss`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PpoConfig {
    /// The ratio π(a)/μ(a) may fall to 1 − this before the gradient stops.
    pub clip_low: f64,
    /// The ratio π(a)/μ(a) may rise to 1 + this before the gradient stops.
    pub clip_high: f64,
    /// How far a value may move from the one at collection before its gradient stops; absent: no bound.
    pub value_clip: Option<f64>,
    /// Whether advantages are brought to mean 0 and standard deviation 1 over the entries of each call.
    pub normalize_advantages: bool,
}

impl Default for PpoConfig {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.2, value_clip: None, normalize_advantages: true }
    }
}

impl PpoConfig {
    /// Refuses negative or missing ranges.
    pub fn validate(&self) -> Result<(), ObjectiveError> {
        let refuse = |name, value, expected| Err(ObjectiveError::Setting { name, value, expected });
        match self {
            _ if !(0.0..=1.0).contains(&self.clip_low) => {
                refuse("clip_low", self.clip_low, "between 0 and 1")
            }
            _ if self.clip_high.is_nan() || self.clip_high < 0.0 => {
                refuse("clip_high", self.clip_high, "at least 0")
            }
            Self { value_clip: Some(range), .. } if range.is_nan() || *range <= 0.0 => {
                refuse("value_clip", *range, "positive, or absent")
            }
            _ => Ok(()),
        }
    }
}

/// What [`ppo_loss`] reads beside the policy; every array has one entry for each of the policy's.
#[derive(Debug, Clone, Copy)]
pub struct PpoBatch<'a, F> {
    /// log μ(a) recorded while sampling, nats.
    pub behaviour_log_probs: &'a [F],
    /// Advantages, usually of [`gae`](crate::learner::advantage::gae).
    pub advantages: &'a [F],
    /// Targets of the value function.
    pub returns: &'a [F],
    /// Values at collection; read only with `value_clip`.
    pub old_values: &'a [F],
}

/// The clipped surrogate of PPO, with r = exp(log π(a) − log μ(a)):
///
/// ```text
/// policy_loss   = S[ −min(r A, clip(r, 1 − clip_low, 1 + clip_high) A) ]
/// baseline_loss = the value loss of the module `value_loss`              entropy = S[ H(π) ]
/// total_loss    = policy_loss + value_coef · baseline_loss − entropy_coef · entropy
/// ```
///
/// Source: Schulman et al., "Proximal policy optimization algorithms", 2017 (arXiv 1707.06347), equation 7. The
/// gradient is that of the smaller branch: none where clipping acts. No gradient flows through A, the targets or the
/// recorded log-probabilities. S sums over the entries where `mask` is set (all without a mask); with
/// [`Reduction::Mean`](super::Reduction::Mean) it is divided by their number, at least 1, clipped entries included.
///
/// # Errors
/// When a setting is out of range, numbers of entries differ or a tensor operation fails.
pub fn ppo_loss<F: Real + WithDType>(
    config: &LossConfig,
    ppo: &PpoConfig,
    policy: &Evaluation<F>,
    batch: &PpoBatch<'_, F>,
    mask: Option<&[bool]>,
) -> Result<Loss, ObjectiveError> {
    ppo.validate()?;
    let entries = policy.entries();
    ObjectiveError::check_length("advantages", batch.advantages.len(), entries)?;
    ObjectiveError::check_length("returns", batch.returns.len(), entries)?;
    let log_ratios = policy.log_ratios(batch.behaviour_log_probs)?;
    let selection = Selection::new(mask, entries)?;
    let mut diagnostics =
        Diagnostics::describe(selection, &log_ratios, batch.advantages, policy.values(), batch.returns);

    let mut advantages = batch.advantages.to_vec();
    if ppo.normalize_advantages {
        normalize(&mut advantages, selection);
    }
    let (lowest, highest) = (F::narrow(1.0 - ppo.clip_low), F::narrow(1.0 + ppo.clip_high));
    let (mut high, mut low) = (0_usize, 0_usize);
    let surrogate = Term::over(selection, |index| {
        let (ratio, advantage) = (log_ratios[index].exp(), advantages[index]);
        if ratio > highest && advantage > F::zero() {
            high += 1;
            (-(highest * advantage).widen(), F::zero())
        } else if ratio < lowest && advantage < F::zero() {
            low += 1;
            (-(lowest * advantage).widen(), F::zero())
        } else {
            // d(r A)/d log π = r A.
            (-(ratio * advantage).widen(), -(ratio * advantage))
        }
    });
    let fraction = |count: usize| count as f64 / selection.count().max(1) as f64;
    let (baseline, value_clipped) = match ppo.value_clip {
        None => (squared_error(selection, policy.values(), batch.returns), None),
        Some(range) => {
            let clip = ValueClip { old_values: batch.old_values, range: F::narrow(range) };
            let (term, clipped) = clipped_squared_error(selection, policy.values(), batch.returns, clip)?;
            (term, Some(fraction(clipped)))
        }
    };
    diagnostics.clipped =
        Clipped::Surrogate { high: fraction(high), low: fraction(low), value: value_clipped };
    combine(config, policy, selection, Parts { policy: surrogate, baseline }, diagnostics)
}

/// Spread below which advantages count as all equal, relative to the larger of 1 and their mean's size.
const EQUAL_ADVANTAGES: f64 = 1e-6;

/// Brings the advantages of the entries where `mask` is set (all without a mask) to mean 0 and standard deviation 1
/// (divisor: their number), computed in `f64`. Advantages that are all equal become exactly 0 instead of amplified
/// rounding noise. Masked entries are left alone.
///
/// # Errors
/// When the mask has another number of entries.
pub fn normalize_advantages<F: Real>(
    advantages: &mut [F],
    mask: Option<&[bool]>,
) -> Result<(), ObjectiveError> {
    let selection = Selection::new(mask, advantages.len())?;
    normalize(advantages, selection);
    Ok(())
}

fn normalize<F: Real>(advantages: &mut [F], selection: Selection<'_>) {
    let count = selection.count().max(1) as f64;
    let mean = selection.indices().map(|index| advantages[index].widen()).sum::<f64>() / count;
    let deviations = selection.indices().map(|index| advantages[index].widen() - mean);
    let variance = deviations.map(|deviation| deviation * deviation).sum::<f64>() / count;
    let deviation = variance.sqrt();
    let all_equal = deviation <= EQUAL_ADVANTAGES * mean.abs().max(1.0);
    for index in selection.indices() {
        let centred = advantages[index].widen() - mean;
        advantages[index] = F::narrow(if all_equal { 0.0 } else { centred / deviation });
    }
}
