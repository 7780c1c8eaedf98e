//! Between texts and tokens: a problem's prompt, the turns of a trajectory, and the observations between them.
//!
//! Nothing that was sampled is encoded again: an observation's ids are appended behind the model's own.

use std::sync::Arc;

use crate::env::task::{Problem, Prompt, Task, Turn, respond};
use crate::policy::{Tokenizer, TokenizerError};
use crate::trajectory::{Message, Trajectory};

/// Token ids of a problem's prompt.
///
/// # Errors
/// When it cannot be encoded, or has messages and the model no chat template.
pub fn prompt_ids(tokenizer: &Tokenizer, problem: &Problem) -> Result<Vec<u32>, TokenizerError> {
    match &problem.prompt {
        Prompt::Text(text) => tokenizer.encode_prompt(text),
        Prompt::Messages(messages) => tokenizer.encode_chat(messages),
    }
}

/// What was said so far in one trajectory.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The problem.
    pub problem: Arc<Problem>,
    /// Texts of the model's complete turns.
    pub turns: Vec<String>,
    /// What the task said after each of them.
    observations: Vec<String>,
    /// Where the current turn begins among the trajectory's tokens.
    start: usize,
}

impl Conversation {
    /// Nothing said yet.
    #[must_use]
    pub fn new(problem: Arc<Problem>) -> Self {
        Self { problem, turns: Vec::new(), observations: Vec::new(), start: 0 }
    }

    /// A turn is over: takes its text, without what ended it.
    pub fn end_turn(&mut self, tokenizer: &Tokenizer, stop_strings: &[String], trajectory: &Trajectory) {
        let mut text = tokenizer.decode_plain(&trajectory.tokens[self.start..]);
        let first = stop_strings.iter().filter_map(|stop| text.find(stop.as_str())).min();
        text.truncate(first.unwrap_or(text.len()));
        self.turns.push(text);
    }

    /// The task says something: its ids, and the next turn begins behind them.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn observe(
        &mut self,
        tokenizer: &Tokenizer,
        trajectory: &Trajectory,
        said: String,
    ) -> Result<Vec<u32>, TokenizerError> {
        let answer = &trajectory.tokens[self.start..];
        let ids = match &self.problem.prompt {
            Prompt::Text(_) => tokenizer.encode(&said)?,
            Prompt::Messages(first) => {
                let mut messages = first.clone();
                for (turn, observation) in self.turns.iter().zip(&self.observations) {
                    messages.extend([Message::assistant(turn), Message::user(observation)]);
                }
                tokenizer.continue_chat(&messages, answer, &[Message::user(&said)])?
            }
        };
        self.start = trajectory.tokens.len() + ids.len();
        self.observations.push(said);
        Ok(ids)
    }

    /// What was said in a trajectory that a checkpoint brought back, up to the turn in progress (or the last one, when
    /// it had ended). What the task said is asked for again: it is a function of the turns before it.
    ///
    /// # Errors
    /// When the task says something else now than it did.
    pub fn replay(
        problem: Arc<Problem>,
        task: &dyn Task,
        tokenizer: &Tokenizer,
        stop_strings: &[String],
        trajectory: &Trajectory,
    ) -> Result<Self, String> {
        let mut conversation = Self::new(problem);
        while let Some(length) = trajectory.is_action[conversation.start..].iter().position(|&action| !action)
        {
            let observed = conversation.start + length;
            let mut turn = trajectory.clone();
            turn.tokens.truncate(observed);
            conversation.end_turn(tokenizer, stop_strings, &turn);
            let Ok(Turn::Observe(said)) = respond(task, &conversation.problem, &conversation.turns) else {
                return Err(format!(
                    "trajectory {}: the task no longer answers what it answered",
                    trajectory.id
                ));
            };
            conversation.observe(tokenizer, &turn, said).map_err(|error| error.to_string())?;
            if conversation.start > trajectory.tokens.len() {
                return Err(format!("trajectory {}: the task's answer is longer than it was", trajectory.id));
            }
        }
        Ok(conversation)
    }

    /// All turns of a trajectory that has ended.
    ///
    /// # Errors
    /// As for [`Conversation::replay`].
    pub fn turns_of(
        problem: Arc<Problem>,
        task: &dyn Task,
        tokenizer: &Tokenizer,
        stop_strings: &[String],
        trajectory: &Trajectory,
    ) -> Result<Vec<String>, String> {
        let mut conversation = Self::replay(problem, task, tokenizer, stop_strings, trajectory)?;
        conversation.end_turn(tokenizer, stop_strings, trajectory);
        Ok(conversation.turns)
    }
}
