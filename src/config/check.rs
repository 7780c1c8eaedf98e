//! Checks that concern more than one field, or a field and the environment.

use super::{Config, InferenceMode};
use crate::actors::Fault;
use crate::env::{ActionSpace, EnvSpec, Registry};
use crate::learner::ObjectiveConfig;
use crate::learner::advantage::AdvantageError;
use crate::policy::{CoreConfig, TorsoConfig};

/// Settings that can never work, or not together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}`: {why}", fields.join("`, `"))]
pub struct Contradiction {
    /// Full paths of all fields concerned.
    pub fields: Vec<String>,
    /// What is wrong and what would be right.
    pub why: String,
}

impl Config {
    /// Refuses settings that contradict each other or can never work; the first contradiction is named.
    ///
    /// # Errors
    /// The contradiction, with the names of all fields concerned.
    pub fn check(&self, registry: &Registry) -> Result<(), Contradiction> {
        registry.get(&self.env.name).map_err(|error| refuse(&["env.name"], error.to_string()))?;
        self.check_positive()?;
        self.check_numbers()?;
        self.check_objective()?;
        let stop = &self.stop;
        if stop.env_steps.is_none()
            && stop.updates.is_none()
            && stop.seconds.is_none()
            && stop.target_return.is_none()
        {
            return Err(refuse(
                &["stop"],
                "the run would never end; set env_steps, updates, seconds or target_return",
            ));
        }
        if let Some(capacity) = self.queue.capacity.filter(|&capacity| capacity < self.learner.batch_unrolls)
        {
            return Err(refuse(
                &["queue.capacity", "learner.batch_unrolls"],
                format!("a queue of {capacity} never holds a batch of {}", self.learner.batch_unrolls),
            ));
        }
        if self.policy.separate_value && self.policy.core.is_some() {
            return Err(refuse(
                &["policy.separate_value", "policy.core"],
                "a separate value network has no recurrent state; use one or the other",
            ));
        }
        if self.rollout.inference == InferenceMode::Central && self.devices.inference.is_empty() {
            return Err(refuse(
                &["rollout.inference", "devices.inference"],
                "central inference needs a device",
            ));
        }
        check_faults(&self.faults, "rollout.actors", self.rollout.actors)
    }

    /// Refuses a network that does not fit the environment's observations.
    ///
    /// # Errors
    /// As for [`Config::check`].
    pub fn check_spec(&self, spec: &EnvSpec) -> Result<(), Contradiction> {
        let convolves = !matches!(self.policy.torso, TorsoConfig::Mlp { .. });
        let shape = &spec.observation_shape;
        let image = matches!(shape.len(), 2 | 3) && shape[0] >= 3 && shape[1] >= 3;
        if convolves && !image {
            return Err(refuse(
                &["policy.torso", "env.name"],
                format!(
                    "a convolution needs images of at least 3x3, {} shows {shape:?}; use kind = \"mlp\"",
                    spec.name
                ),
            ));
        }
        if let (ActionSpace::Box { low, .. }, true) =
            (&spec.action_space, self.policy.initial_log_std.is_nan())
        {
            return Err(refuse(
                &["policy.initial_log_std"],
                format!("must be a number for {} continuous actions", low.len()),
            ));
        }
        Ok(())
    }

    fn check_positive(&self) -> Result<(), Contradiction> {
        let counts = [
            ("rollout.actors", self.rollout.actors),
            ("rollout.envs_per_actor", self.rollout.envs_per_actor),
            ("rollout.unroll_length", self.rollout.unroll_length),
            ("learner.batch_unrolls", self.learner.batch_unrolls),
            ("learner.threads", self.learner.threads),
            ("inference.max_rows", self.inference.max_rows),
            ("env.frame_stack", self.env.frame_stack),
            ("evaluation.envs", self.evaluation.envs),
            ("evaluation.episodes", self.evaluation.episodes),
            ("policy.torso", self.policy.torso.least_width()),
            ("policy.core.size", self.policy.core.as_ref().map_or(1, |CoreConfig::Lstm { size }| *size)),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((field, _)) => Err(refuse(&[field], "must be at least 1")),
            None => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), Contradiction> {
        let supervision = &self.supervision;
        let positive = [
            ("env.timeout_seconds", Some(self.env.timeout_seconds)),
            ("env.reward_clip", self.env.reward_clip.map(f64::from)),
            ("learner.clip_norm", self.learner.clip_norm),
            ("learner.schedule.learning_rate", Some(self.learner.schedule.learning_rate)),
            ("stop.seconds", self.stop.seconds),
            ("supervision.window_seconds", Some(supervision.window_seconds)),
        ];
        let refused = positive.iter().find(|(_, value)| value.is_some_and(|v| !(v > 0.0 && v.is_finite())));
        if let Some((field, Some(value))) = refused {
            return Err(refuse(&[field], format!("must be a positive number, not {value}")));
        }
        // More seconds than this overflow a duration.
        let long = [
            ("env.timeout_seconds", self.env.timeout_seconds),
            ("supervision.window_seconds", supervision.window_seconds),
            ("supervision.backoff_seconds", supervision.backoff_seconds),
            ("supervision.max_backoff_seconds", supervision.max_backoff_seconds),
            ("inference.max_wait_milliseconds", self.inference.max_wait_milliseconds / 1e3),
        ];
        if let Some((field, _)) = long.iter().find(|(_, seconds)| *seconds > 1e9) {
            return Err(refuse(&[field], "must be at most a billion seconds"));
        }
        let not_negative = [
            ("inference.max_wait_milliseconds", self.inference.max_wait_milliseconds),
            // 0 stands for never.
            ("checkpoint.every_seconds", self.checkpoint.every_seconds.unwrap_or(0.0)),
            ("supervision.backoff_seconds", supervision.backoff_seconds),
            ("supervision.max_backoff_seconds", supervision.max_backoff_seconds),
            ("learner.loss.value_coef", self.learner.loss.value_coef),
            ("learner.loss.entropy_coef", self.learner.loss.entropy_coef),
        ];
        if let Some((field, value)) = not_negative.iter().find(|(_, v)| !(*v >= 0.0 && v.is_finite())) {
            return Err(refuse(&[field], format!("must be a number of at least 0, not {value}")));
        }
        self.learner
            .optimizer
            .validate()
            .map_err(|error| refuse(&["learner.optimizer"], error.to_string()))?;
        if !(0.0..=1.0).contains(&self.learner.discount) {
            return Err(refuse(
                &["learner.discount"],
                format!("must be between 0 and 1, not {}", self.learner.discount),
            ));
        }
        Ok(())
    }

    fn check_objective(&self) -> Result<(), Contradiction> {
        match &self.learner.objective {
            ObjectiveConfig::Vtrace(vtrace) => vtrace.validate().map_err(|error| match error {
                AdvantageError::Setting { name, .. } => {
                    refuse(&[&format!("learner.objective.{name}")], error.to_string())
                }
                _ => refuse(&["learner.objective.rho_bar", "learner.objective.c_bar"], error.to_string()),
            }),
            ObjectiveConfig::ActorCritic(config) => match config.n_step {
                Some(0) => Err(refuse(&["learner.objective.n_step"], "must be at least 1")),
                _ => Ok(()),
            },
            ObjectiveConfig::Ppo(ppo) => {
                let columns = self.learner.batch_unrolls * self.rollout.envs_per_actor;
                if ppo.epochs == 0 || ppo.minibatches == 0 {
                    return Err(refuse(
                        &["learner.objective.epochs", "learner.objective.minibatches"],
                        "must be at least 1",
                    ));
                }
                if ppo.minibatches > columns {
                    return Err(refuse(
                        &["learner.objective.minibatches", "rollout.envs_per_actor"],
                        format!("a batch has only {columns} columns to divide"),
                    ));
                }
                if !(0.0..=1.0).contains(&ppo.gae_lambda) {
                    return Err(refuse(&["learner.objective.gae_lambda"], "must be between 0 and 1"));
                }
                ppo.surrogate
                    .validate()
                    .map_err(|error| refuse(&["learner.objective.surrogate"], error.to_string()))
            }
        }
    }
}

/// Refuses deliberate faults that would never strike; `actors` is how many the setting `of` makes.
pub(super) fn check_faults(faults: &[Fault], of: &str, actors: usize) -> Result<(), Contradiction> {
    for fault in faults {
        if fault.at == 0 || fault.every == Some(0) {
            return Err(refuse(
                &["faults.at", "faults.every"],
                "unrolls, steps and updates are counted from 1",
            ));
        }
        if fault.actor as usize >= actors {
            return Err(refuse(&["faults.actor", of], "there is no such actor"));
        }
        // More seconds than this overflow a duration.
        if fault.seconds > 1e9 {
            return Err(refuse(&["faults.seconds"], "must be at most a billion seconds"));
        }
    }
    Ok(())
}

pub(super) fn refuse(fields: &[&str], why: impl Into<String>) -> Contradiction {
    Contradiction { fields: fields.iter().map(ToString::to_string).collect(), why: why.into() }
}
