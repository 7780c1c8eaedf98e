//! Greedy evaluation: whole episodes under one version, taking the most likely action at every step.
//!
//! Episode `i` depends on (seed, i) alone, so the result does not depend on how many environments run side by side.
//! Every episode that is started is finished and counted: a mean over the first ones to finish would favour short
//! episodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parameter_bus::Published;
use super::role::RoleError;
use crate::env::{Action, Checked, EnvError};
use crate::policy::{Policy, StepInput};
use crate::random::{Stream, derive_seed};

/// When and how long to evaluate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Environment steps between evaluations during training; absent: none.
    pub every_env_steps: Option<u64>,
    /// Episodes of each evaluation during training.
    pub episodes: usize,
    /// Episodes of the evaluation of the final parameters; 0: none.
    pub final_episodes: usize,
    /// Environments stepped side by side.
    pub envs: usize,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self { every_env_steps: None, episodes: 20, final_episodes: 100, envs: 32 }
    }
}

/// Returns of greedy episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// Undiscounted, unclipped return of each episode.
    pub returns: Vec<f64>,
    /// Length of each episode, steps.
    pub lengths: Vec<u32>,
}

impl EvaluationResult {
    /// Mean return.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.returns.iter().sum::<f64>() / self.returns.len().max(1) as f64
    }

    /// Standard deviation of the returns (divisor: their number).
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.returns.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (squares / self.returns.len().max(1) as f64).sqrt()
    }

    /// Least and greatest return.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let fold = |start, f: fn(f64, f64) -> f64| self.returns.iter().copied().fold(start, f);
        (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
    }
}

/// One environment at work on an episode.
struct Seat {
    env: Checked,
    episode: Option<usize>,
}

/// The rows that the policy reads, for all seats.
struct Rows {
    observations: Vec<f32>,
    masks: Vec<bool>,
    previous_actions: Vec<f32>,
    previous_rewards: Vec<f32>,
    starts: Vec<bool>,
    core_state: Vec<f32>,
}

/// Runs `episodes` episodes of `published` in the environments given; `None` when `go_on` said no before the end.
///
/// # Errors
/// When an environment or a forward pass fails.
pub fn evaluate(
    policy: &Policy,
    published: &Published,
    envs: Vec<Checked>,
    seed: u64,
    episodes: usize,
    reward_clip: Option<f32>,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<EvaluationResult>, RoleError> {
    let mut seats: Vec<Seat> =
        envs.into_iter().take(episodes).map(|env| Seat { env, episode: None }).collect();
    let mut result = EvaluationResult { returns: vec![0.0; episodes], lengths: vec![0; episodes] };
    let clip = reward_clip.unwrap_or(f32::INFINITY);
    let (mut started, mut finished) = (0, 0);
    let n = seats.len();
    let distribution = policy.distribution();
    let width = distribution.action_width();
    let mut rows = Rows {
        observations: Vec::new(),
        masks: Vec::new(),
        previous_actions: vec![0.0; n * width],
        previous_rewards: vec![0.0; n],
        starts: vec![true; n],
        core_state: vec![0.0; n * policy.core_len()],
    };
    let device = candle_core::Device::Cpu;
    let mut env_action = Vec::new();
    while finished < episodes {
        if !go_on() {
            return Ok(None);
        }
        for (seat, start) in seats.iter_mut().zip(&mut rows.starts) {
            *start = seat.episode.is_none();
            if seat.episode.is_none() && started < episodes {
                seat.env.reset(derive_seed(seed, Stream::Evaluation, [started as u32, 0, 0, 0]))?;
                seat.episode = Some(started);
                started += 1;
            }
        }
        observe(&seats, &mut rows)?;
        let input = StepInput {
            observations: &rows.observations,
            previous_actions: &rows.previous_actions,
            previous_rewards: &rows.previous_rewards,
            starts: &rows.starts,
            core_state: &rows.core_state,
        };
        let mut output = policy
            .step(&published.parameters, published.normalizer.as_ref(), input, &device)
            .map_err(|source| RoleError::Inference { device: "cpu".into(), source })?;
        let mask_len = rows.masks.len() / n;
        for (i, row) in output.distribution.chunks_exact_mut(distribution.parameter_len()).enumerate() {
            let seat = &mut seats[i];
            let Some(episode) = seat.episode else { continue };
            let action = &mut rows.previous_actions[i * width..][..width];
            distribution.mode(row, &rows.masks[i * mask_len..][..mask_len], action);
            distribution.to_env(action, &mut env_action);
            let step = seat.env.step(Action::new(&env_action))?;
            // The network sees rewards as it did in training; returns are counted unclipped.
            rows.previous_rewards[i] = step.reward.clamp(-clip, clip);
            result.returns[episode] += f64::from(step.reward);
            result.lengths[episode] += 1;
            if step.done() {
                finished += 1;
                seat.episode = None;
            }
        }
        rows.core_state = output.core_state;
    }
    Ok(Some(result))
}

/// Reads all seats; one without an episode shows whatever it last showed.
fn observe(seats: &[Seat], rows: &mut Rows) -> Result<(), EnvError> {
    rows.observations.clear();
    rows.masks.clear();
    for seat in seats {
        seat.env.observe(&mut rows.observations)?;
        if seat.env.spec().masks_actions {
            if seat.episode.is_some() {
                seat.env.action_mask(&mut rows.masks)?;
            } else {
                rows.masks.resize(rows.masks.len() + seat.env.spec().mask_len(), true);
            }
        }
    }
    Ok(())
}
