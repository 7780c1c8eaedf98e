//! Checks of a token run's settings that concern more than one field, or a field and the task or model.

use std::sync::Arc;

use super::check::{Contradiction, check_faults, refuse};
use super::{Precision, TokenConfig};
use crate::actors::TrainError;
use crate::actors::token::{LanguageModel, Rewarded};
use crate::env::task::{Split, Task, TaskRegistry};
use crate::policy::Decoder;
use crate::schedule::ScheduleConfig;
use crate::telemetry::{RunOutcome, TokenSummary};

impl super::TokenStopConfig {
    /// The condition that is reached, in words. `reward` is the mean of 10 updates, once there are so many.
    #[must_use]
    pub fn reached(
        &self,
        tokens: u64,
        updates: u64,
        seconds: f64,
        reward: Option<f64>,
        evaluation: Option<f64>,
    ) -> Option<String> {
        super::stop::first_reached([
            ("tokens", self.tokens.map(|limit| limit as f64), Some(tokens as f64)),
            ("updates", self.updates.map(|limit| limit as f64), Some(updates as f64)),
            ("seconds", self.seconds, Some(seconds)),
            ("target_reward", self.target_reward, reward),
            ("target_evaluation", self.target_evaluation, evaluation),
        ])
    }

    /// Whether a run that ended so would stop at once if it went on under these conditions.
    #[must_use]
    pub fn is_complete(&self, summary: &TokenSummary) -> bool {
        let TokenSummary { tokens, updates, wall_seconds, reward_mean, eval_mean, .. } = summary;
        summary.status == RunOutcome::Completed
            && self.reached(*tokens, *updates, *wall_seconds, *reward_mean, *eval_mean).is_some()
    }
}

impl TokenConfig {
    /// Refuses settings that contradict each other or can never work; the first contradiction is named.
    ///
    /// # Errors
    /// The contradiction, with the names of all fields concerned.
    pub fn check(&self, registry: &TaskRegistry) -> Result<(), Contradiction> {
        registry.get(&self.task.name).map_err(|error| refuse(&["task.name"], error.to_string()))?;
        self.check_positive()?;
        self.check_numbers()?;
        let stop = &self.stop;
        let ends = stop.tokens.is_some()
            || stop.updates.is_some()
            || stop.seconds.is_some()
            || stop.target_reward.is_some()
            || stop.target_evaluation.is_some();
        if !ends {
            return Err(refuse(
                &["stop"],
                "the run would never end; set tokens, updates, seconds, target_reward or target_evaluation",
            ));
        }
        if stop.target_evaluation.is_some() && self.evaluation.every_updates.is_none() {
            return Err(refuse(
                &["stop.target_evaluation", "evaluation.every_updates"],
                "nothing is evaluated during training; set the latter",
            ));
        }
        let engine = &self.generate.engine;
        engine.validate().map_err(|error| refuse(&["generate.engine"], error.to_string()))?;
        let sampling = self.generate.sampling();
        sampling.validate().map_err(|error| refuse(&["generate"], error.to_string()))?;
        if let Some(adapters) = &self.model.adapters {
            adapters.check_numbers().map_err(|why| refuse(&["model.adapters"], why))?;
        }
        if self.devices.generation.is_empty() {
            return Err(refuse(
                &["devices.generation"],
                "there must be at least one device, or nothing is generated",
            ));
        }
        check_faults(&self.faults, "devices.generation", self.devices.generation.len())?;
        self.check_precision()?;
        self.check_learner()?;
        self.check_schedule()
    }

    fn check_precision(&self) -> Result<(), Contradiction> {
        if self.model.precision == Precision::F32 {
            return Ok(());
        }
        if self.devices.learner == "cpu" {
            return Err(refuse(
                &["model.precision", "devices.learner"],
                "the CPU computes in f32; leave the former out, or let a CUDA device learn",
            ));
        }
        if self.generate.bf16_weights {
            return Err(refuse(
                &["generate.bf16_weights", "model.precision"],
                "the weights are bf16 already; leave the former out",
            ));
        }
        Ok(())
    }

    fn check_positive(&self) -> Result<(), Contradiction> {
        let counts = [
            ("generate.max_new_tokens", self.generate.max_new_tokens),
            ("generate.threads", self.generate.threads),
            ("grading.threads", self.grading.threads),
            ("learner.prompts", self.learner.prompts),
            ("learner.group_size", self.learner.group_size),
            ("learner.epochs", self.learner.epochs),
            ("learner.minibatches", self.learner.minibatches),
            ("learner.microbatch_tokens", self.learner.microbatch_tokens),
            ("learner.threads", self.learner.threads),
            ("evaluation.problems", self.evaluation.problems),
            ("warmup.batch", self.warmup.batch),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((field, _)) => Err(refuse(&[field], "must be at least 1")),
            None if self.learner.group_size > usize::from(u16::MAX) => {
                Err(refuse(&["learner.group_size"], "must be at most 65535"))
            }
            None => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), Contradiction> {
        let positive = [
            ("generate.temperature", f64::from(self.generate.temperature)),
            ("grading.timeout_seconds", self.grading.timeout_seconds),
            ("learner.schedule.learning_rate", self.learner.schedule.learning_rate),
            ("warmup.learning_rate", self.warmup.learning_rate),
            ("warmup.target_loss", self.warmup.target_loss.unwrap_or(1.0)),
            ("learner.clip_norm", self.learner.clip_norm.unwrap_or(1.0)),
            ("learner.critic.clip", self.learner.critic.clip.unwrap_or(1.0)),
            ("stop.seconds", self.stop.seconds.unwrap_or(1.0)),
        ];
        for (field, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(refuse(&[field], format!("is {value}, must be a positive number")));
            }
        }
        let not_negative = [
            ("evaluation.temperature", f64::from(self.evaluation.temperature)),
            ("learner.reward_kl", self.learner.reward_kl),
            ("learner.critic.coefficient", self.learner.critic.coefficient),
        ];
        for (field, value) in not_negative {
            if !(value.is_finite() && value >= 0.0) {
                return Err(refuse(&[field], format!("is {value}, must be 0 or a positive number")));
            }
        }
        if let Some(model) = &self.grading.reward_model {
            if !model.scale.is_finite() || model.scale == 0.0 {
                return Err(refuse(
                    &["grading.reward_model.scale"],
                    format!("is {}, must be a number other than 0", model.scale),
                ));
            }
            if !model.task_weight.is_finite() {
                return Err(refuse(
                    &["grading.reward_model.task_weight"],
                    format!("is {}, must be a number", model.task_weight),
                ));
            }
        }
        Ok(())
    }

    fn check_learner(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        learner.loss.validate().map_err(|error| refuse(&["learner.loss"], error.to_string()))?;
        learner.advantage.validate().map_err(|error| refuse(&["learner.advantage"], error.to_string()))?;
        learner.optimizer.validate().map_err(|error| refuse(&["learner.optimizer"], error.to_string()))?;
        self.check_rewards()?;
        self.check_reference()?;
        self.check_kept()?;
        self.check_automatic()?;
        let objective = &learner.loss.objective;
        if objective.compares_answers() && learner.group_size < 2 {
            return Err(refuse(
                &["learner.loss.objective", "learner.group_size"],
                format!("{} compares answers to the same problem; sample at least 2", objective.kind()),
            ));
        }
        if learner.advantage.is_group_relative() && learner.group_size < 2 {
            return Err(refuse(
                &["learner.advantage", "learner.group_size"],
                "answers are compared within their group, so there must be at least 2 of them; or take a `reinforce` \
                 or `skip_observation_gae` advantage",
            ));
        }
        self.check_critic_settings()?;
        self.check_off_policy()?;
        if learner.drop_zero_variance && !learner.advantage.is_group_relative() {
            return Err(refuse(
                &["learner.drop_zero_variance", "learner.advantage"],
                "a group whose rewards are alike still teaches something with this advantage",
            ));
        }
        if learner.minibatches > learner.prompts {
            return Err(refuse(
                &["learner.minibatches", "learner.prompts"],
                format!("{} groups cannot be cut into {} parts", learner.prompts, learner.minibatches),
            ));
        }
        if learner.replay_experts && !self.generate.engine.record_experts {
            return Err(refuse(
                &["learner.replay_experts", "generate.engine.record_experts"],
                "experts that are not recorded cannot be replayed",
            ));
        }
        self.check_teachers()
    }

    fn check_schedule(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        if self.schedule != ScheduleConfig::Sync && learner.forced_lag.is_some() {
            return Err(refuse(
                &["learner.forced_lag", "schedule.kind"],
                "a forced lag sets the schedule itself; leave schedule.kind = \"sync\"",
            ));
        }
        if let ScheduleConfig::Async { max_groups: Some(0), .. } = &self.schedule {
            return Err(refuse(&["schedule.max_groups"], "must be at least 1, or nothing is ever generated"));
        }
        if let (Some(forced), Some(most)) = (learner.forced_lag, learner.max_lag)
            && most < forced
        {
            return Err(refuse(
                &["learner.forced_lag", "learner.max_lag"],
                format!("batches that are {forced} updates late would all be dropped"),
            ));
        }
        if let (ScheduleConfig::Async { lead: 1.., .. }, Some(0)) = (&self.schedule, learner.max_lag) {
            return Err(refuse(
                &["schedule.lead", "learner.max_lag"],
                "answers go on over updates, and those would all be dropped; allow them an update's lag, or set \
                 schedule.kind = \"sync\"",
            ));
        }
        if let (ScheduleConfig::OneStep, Some(0)) = (&self.schedule, learner.max_lag) {
            return Err(refuse(
                &["schedule.kind", "learner.max_lag"],
                "every batch is one update late, so all would be dropped",
            ));
        }
        self.check_flow()
    }

    /// The task that is configured, with its reward model if there is one.
    ///
    /// # Errors
    /// When its options are refused, its dataset cannot be read, or the reward model's files cannot be used.
    pub fn make_task(&self, registry: &TaskRegistry) -> Result<Arc<dyn Task>, TrainError> {
        let task = registry
            .make(&self.task.name, &self.task.options, self.seed)
            .map_err(|error| TrainError::Task(error.to_string()))?;
        let task: Arc<dyn Task> = match &self.grading.reward_model {
            None => task,
            Some(config) => Arc::new(Rewarded::new(task, config).map_err(TrainError::Model)?),
        };
        self.check_parts(&*task)?;
        self.check_taught(&*task)?;
        Ok(task)
    }

    /// Refuses a model that does not fit the rest.
    ///
    /// # Errors
    /// As for [`TokenConfig::check`].
    pub fn check_model(&self, model: &LanguageModel, task: &dyn Task) -> Result<(), Contradiction> {
        let (layout, frozen) = (model.decoder.layout(), &self.model.frozen);
        frozen.check(layout).map_err(|error| refuse(&["model.frozen"], error.to_string()))?;
        if !layout.names().any(|name| model.decoder.is_trained(name, frozen)) {
            return Err(refuse(
                &["model.frozen", "model.adapters"],
                "nothing is left to train: every parameter is frozen; take away a pattern",
            ));
        }
        if self.learner.has_separate_critic() && self.learner.critic.path.is_none() {
            let critic = Decoder::value_function(model.decoder.config(), model.decoder.device());
            let critic = critic.map_err(|error| refuse(&["learner.critic.trunk"], error.to_string()))?;
            self.check_critic(&critic)?;
        }
        // Replaying and forcing them need that they are recorded.
        if self.generate.engine.record_experts && model.decoder.config().experts.is_none() {
            return Err(refuse(
                &["generate.engine.record_experts", "model"],
                "a dense model has no experts; leave the setting out",
            ));
        }
        let context = model.decoder.config().context;
        let cache = self.generate.engine.positions();
        if cache < context {
            return Err(refuse(
                &["generate.engine.cache_tokens", "model.context"],
                format!(
                    "a cache of {cache} positions cannot hold a sequence of the context's {context}; raise the first, or \
                     lower the second to what prompts and answers need"
                ),
            ));
        }
        if self.warmup.updates > 0 && task.is_empty(Split::Train) {
            return Err(refuse(&["warmup.updates", "task"], "the task has no training problems"));
        }
        Ok(())
    }
}
