//! Checks of a token run's settings about rewards: shaping, efforts, rubric.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::env::task::Task;
use crate::learner::token::Compare;

impl TokenConfig {
    /// Refuses shaping and efforts that contradict the rest.
    pub(super) fn check_rewards(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        learner.shaping.validate().map_err(|error| refuse(&["learner.shaping"], error.to_string()))?;
        if learner.shaping.length.is_some() && learner.group_size < 2 {
            return Err(refuse(
                &["learner.shaping.length", "learner.group_size"],
                "an answer is short or long for its group, so there must be at least 2 of them",
            ));
        }
        if let Some(overlong) = &learner.shaping.overlong {
            let most = self.generate.max_new_tokens;
            if overlong.max_length - overlong.buffer >= most {
                return Err(refuse(
                    &["learner.shaping.overlong.max_length", "generate.max_new_tokens"],
                    format!(
                        "the penalty begins above {} tokens, and no answer is longer than {most}",
                        overlong.max_length - overlong.buffer
                    ),
                ));
            }
        }
        self.check_efforts()
    }

    fn check_efforts(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        for (index, effort) in learner.efforts.iter().enumerate() {
            if !(effort.tau > 0.0 && effort.tau.is_finite()) {
                let why = format!("is {} for `{}`, must be a positive number", effort.tau, effort.name);
                return Err(refuse(&["learner.efforts.tau"], why));
            }
            if effort.name.is_empty() || learner.efforts[..index].iter().any(|e| e.name == effort.name) {
                let why = format!("`{}` is empty or stands there twice; give each a name", effort.name);
                return Err(refuse(&["learner.efforts.name"], why));
            }
        }
        let efforts = learner.efforts.len();
        if efforts > 0 && !learner.group_size.is_multiple_of(efforts) {
            return Err(refuse(
                &["learner.efforts", "learner.group_size"],
                format!("{} answers cannot be dealt evenly to {efforts} efforts", learner.group_size),
            ));
        }
        if learner.compare == Compare::Group {
            return Ok(());
        }
        if efforts < 2 {
            return Err(refuse(
                &["learner.compare", "learner.efforts"],
                "answers of one effort are compared, so there must be at least 2 efforts",
            ));
        }
        if !learner.advantage.is_group_relative() {
            return Err(refuse(
                &["learner.compare", "learner.advantage"],
                "this advantage does not compare answers to a problem",
            ));
        }
        if learner.group_size < 2 * efforts {
            return Err(refuse(
                &["learner.compare", "learner.group_size"],
                format!("each of {efforts} efforts needs at least 2 answers to compare"),
            ));
        }
        Ok(())
    }

    /// Refuses a rubric whose scores the task does not give.
    pub(super) fn check_parts(&self, task: &dyn Task) -> Result<(), Contradiction> {
        let Some(rubric) = self.learner.advantage.rubric() else { return Ok(()) };
        let parts = task.parts();
        let fields = ["learner.advantage.solution", "learner.advantage.behaviour"];
        for (field, name) in fields.into_iter().zip(rubric.needed_parts()) {
            if !parts.iter().any(|part| part == name) {
                let there = if parts.is_empty() { "none".into() } else { parts.join(", ") };
                let why = format!(
                    "`{}` gives no part `{name}` with its grades (there are: {there}); take a task with rubric scores, \
                     such as `worked_chain`, or another advantage",
                    self.task.name
                );
                return Err(refuse(&[field, "task.name"], why));
            }
        }
        Ok(())
    }
}
