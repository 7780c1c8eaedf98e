//! Answers under one version, generated side by side on the calling thread and judged where they end: for evaluations
//! and for corpora.
//!
//! Every answer that is begun comes back once. Its draws are a function of its id, so that what is answered beside it
//! changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::conversation::{Conversation, prompt_ids};
use super::evaluation::Examinee;
use super::grading::{Verdict, judge};
use crate::env::task::Problem;
use crate::generate::{Engine, EngineConfig, Finished, Request, Weights};
use crate::ops::{KEY_TILE, Sampling};
use crate::trajectory::{Finish, Reward, Trajectory, TrajectoryId};

/// An answer that has ended.
pub(super) struct Answered {
    /// Its tokens; the reward is beside it.
    pub(super) trajectory: Trajectory,
    /// What was said in it.
    pub(super) conversation: Conversation,
    /// Its grade; `None` when it could not be graded, which the log tells.
    pub(super) reward: Option<Reward>,
}

/// See the module's documentation.
pub(super) struct Answers<'a> {
    examinee: &'a Examinee,
    sampling: Sampling,
    engine: Engine,
    begun: BTreeMap<TrajectoryId, Conversation>,
}

impl<'a> Answers<'a> {
    /// Nothing asked yet.
    ///
    /// # Errors
    /// When the engine cannot be made.
    pub(super) fn new(examinee: &'a Examinee, weights: Weights, sampling: Sampling) -> Result<Self, String> {
        let config = &examinee.engine;
        let context = examinee.decoder.config().context;
        let config = EngineConfig {
            cache_tokens: config.cache_tokens.max(2 * context.min(64 * KEY_TILE)),
            record_experts: false,
            force_experts: false,
            log_prob_noise: 0.0,
            ..config.clone()
        };
        let engine = Engine::new(Arc::clone(&examinee.decoder), weights, config, examinee.seed);
        let engine = engine.map_err(|error| error.to_string())?;
        Ok(Self { examinee, sampling, engine, begun: BTreeMap::new() })
    }

    /// Whether nothing that was asked waits for a place, so that more may be.
    pub(super) fn has_room(&self) -> bool {
        self.engine.usage().waiting == 0
    }

    /// Token ids of a problem's prompt.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub(super) fn prompt(&self, problem: &Problem) -> Result<Arc<[u32]>, String> {
        let ids = prompt_ids(&self.examinee.tokenizer, problem).map_err(|error| error.to_string())?;
        Ok(ids.into())
    }

    /// Asks for an answer.
    ///
    /// # Errors
    /// When the engine refuses the prompt.
    pub(super) fn ask(
        &mut self,
        problem: Arc<Problem>,
        prompt: Arc<[u32]>,
        id: TrajectoryId,
    ) -> Result<(), String> {
        self.begun.insert(id, Conversation::new(problem));
        self.submit(Trajectory::new(id, prompt))
    }

    fn submit(&mut self, trajectory: Trajectory) -> Result<(), String> {
        let request = Request {
            trajectory,
            sampling: self.sampling,
            max_new_tokens: self.examinee.max_new_tokens,
            pause_at: None,
            repetition: None,
            stops: Arc::clone(&self.examinee.stops),
            hold: false,
        };
        self.engine.submit(request).map_err(|error| error.to_string())
    }

    /// One step of the engine; gives what has ended.
    ///
    /// # Errors
    /// When generation fails.
    pub(super) fn step(&mut self) -> Result<Vec<Answered>, String> {
        let mut ended = Vec::new();
        for Finished { trajectory, .. } in self.engine.step().map_err(|error| error.to_string())? {
            if let Some(conversation) = self.begun.remove(&trajectory.id) {
                ended.extend(self.judge(trajectory, conversation)?);
            }
        }
        Ok(ended)
    }

    /// A turn is over: the task ends the answer or goes on with it.
    fn judge(
        &mut self,
        mut trajectory: Trajectory,
        mut conversation: Conversation,
    ) -> Result<Option<Answered>, String> {
        let Examinee { task, tokenizer, decoder, stops, .. } = self.examinee;
        conversation.end_turn(tokenizer, &stops.strings, &trajectory);
        loop {
            match judge(&**task, &trajectory, &conversation) {
                Verdict::Observe(said) => {
                    let ids = conversation.observe(tokenizer, &trajectory, said);
                    let ids = ids.map_err(|error| error.to_string())?;
                    if trajectory.len() + ids.len() >= decoder.config().context {
                        trajectory.finish = Some(Finish::Context);
                        continue;
                    }
                    trajectory.finish = None;
                    trajectory.push_observation(&ids, self.engine.version());
                    self.begun.insert(trajectory.id, conversation);
                    self.submit(trajectory)?;
                    return Ok(None);
                }
                Verdict::Graded(reward) => {
                    return Ok(Some(Answered { trajectory, conversation, reward: Some(reward) }));
                }
                Verdict::Failed(error) => {
                    tracing::warn!("the answer to problem {} was not graded: {error}", trajectory.id.prompt);
                    return Ok(Some(Answered { trajectory, conversation, reward: None }));
                }
            }
        }
    }
}
