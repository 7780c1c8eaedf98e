//! Grading by a learned reward model, in place of the task's own grader or beside it.
//!
//! [`Rewarded`] wraps a task: its problems and turns are the task's, its grades `scale · score + task_weight · grade`,
//! where the score is the reward model's for the whole conversation. It runs on the thread that grades, alone.
//! Each answer is graded by itself: a task's grader of groups is not asked. What cannot be scored is an error, like
//! anything that cannot be graded, and never reward 0.

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::language_model::expand;
use crate::env::task::{
    Completion, GradeError, Problem, Prompt, Reward, Split, Task, TaskError, Turn, grade, respond,
};
use crate::policy::pretrained::RewardModel;
use crate::trajectory::Message;

/// A reward model that grades.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RewardModelConfig {
    /// A Hugging Face directory with a `…ForSequenceClassification` of one label; `~` and `${NAME}` are filled in.
    pub path: PathBuf,
    /// Its score is multiplied by this.
    pub scale: f64,
    /// The task's own grade is multiplied by this and added; at 0 the task is not asked.
    pub task_weight: f64,
    /// Longest conversation that it reads, tokens; absent: all that the model can. A longer one is not graded.
    pub context: Option<usize>,
}

impl Default for RewardModelConfig {
    fn default() -> Self {
        Self { path: PathBuf::new(), scale: 1.0, task_weight: 0.0, context: None }
    }
}

/// See the module's documentation.
pub struct Rewarded {
    task: Arc<dyn Task>,
    model: RewardModel,
    scale: f64,
    task_weight: f64,
}

impl Rewarded {
    /// A task whose answers are graded as `config` says.
    ///
    /// # Errors
    /// When the model's files cannot be used.
    pub fn new(task: Arc<dyn Task>, config: &RewardModelConfig) -> Result<Self, String> {
        let path = expand("grading.reward_model.path", &config.path)?;
        let model = RewardModel::load(&path, config.context, &Device::Cpu);
        let model = model.map_err(|error| format!("grading.reward_model: {error}"))?;
        Ok(Self { task, model, scale: config.scale, task_weight: config.task_weight })
    }

    /// What was said, from the prompt to the last turn. A text prompt is a message of the user's.
    fn conversation(&self, problem: &Problem, turns: &[String]) -> Result<Vec<Message>, GradeError> {
        let mut messages = match &problem.prompt {
            Prompt::Text(text) => vec![Message::user(text)],
            Prompt::Messages(messages) => messages.clone(),
        };
        for (index, turn) in turns.iter().enumerate() {
            messages.push(Message::assistant(turn));
            if index + 1 < turns.len()
                && let Turn::Observe(said) = respond(&*self.task, problem, &turns[..=index])?
            {
                messages.push(Message::user(said));
            }
        }
        Ok(messages)
    }
}

impl Task for Rewarded {
    fn len(&self, split: Split) -> Option<u32> {
        self.task.len(split)
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        self.task.problem(split, index)
    }

    fn place(&self, split: Split, index: u32) -> u32 {
        self.task.place(split, index)
    }

    fn sources(&self) -> Vec<Arc<str>> {
        self.task.sources()
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let messages = self.conversation(problem, completion.turns)?;
        let score =
            self.model.score(&messages).map_err(|error| GradeError::RewardModel(error.to_string()))?;
        let mut parts = vec![("reward_model".to_owned(), score)];
        let mut value = self.scale * score;
        if self.task_weight != 0.0 {
            let own = grade(&*self.task, problem, completion)?;
            value += self.task_weight * own.value;
            parts.push(("task".to_owned(), own.value));
            parts.extend(own.parts);
        }
        Ok(Reward { value, parts })
    }

    fn skipped(&self) -> u64 {
        self.task.skipped()
    }

    fn parts(&self) -> Vec<String> {
        let mut parts = vec!["reward_model".to_owned()];
        if self.task_weight != 0.0 {
            parts.push("task".into());
            // A task that grades groups may give some of its parts only there, and is not asked to.
            parts.extend(if self.task.grades_groups() { Vec::new() } else { self.task.parts() });
        }
        parts
    }

    fn respond(&self, problem: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
        self.task.respond(problem, turns)
    }

    fn is_multi_turn(&self) -> bool {
        self.task.is_multi_turn()
    }

    fn forced_length(&self, problem: &Problem, member: u16) -> Option<usize> {
        self.task.forced_length(problem, member)
    }

    fn alphabet(&self) -> Option<String> {
        self.task.alphabet()
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        self.task.demonstration(problem, turns)
    }
}

#[cfg(test)]
#[path = "reward_model_tests.rs"]
mod tests;
