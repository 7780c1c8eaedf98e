//! What is asked of the engine, and what it answers.

use std::sync::Arc;

use super::stops::Stops;
use super::{EngineConfig, GenerateError};
use crate::ops::{KEY_TILE, Sampling};
use crate::policy::Decoder;
use crate::schedule::axes::RepetitionStop;
use crate::trajectory::{Finish, Trajectory};

/// A trajectory to generate, or to go on with.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is there already: the prompt, perhaps tokens after it. A `finish` that it has is taken back.
    pub trajectory: Trajectory,
    /// How its tokens are drawn.
    pub sampling: Sampling,
    /// Actions that it may have in all, those that are there included.
    pub max_new_tokens: usize,
    /// Actions in all with which it stops without having ended, to be gone on with later ([`super::Engine::take_paused`]).
    pub pause_at: Option<usize>,
    /// Ends it when it has begun to repeat itself.
    pub repetition: Option<RepetitionStop>,
    /// What ends an answer.
    pub stops: Arc<Stops>,
    /// Keep its keys and values when the model ends its answer, for an observation to follow
    /// ([`super::Engine::observe`], [`super::Engine::release`]).
    pub hold: bool,
}

impl Request {
    /// A request without stops that ends with its budget.
    #[must_use]
    pub fn new(trajectory: Trajectory, sampling: Sampling, max_new_tokens: usize) -> Self {
        Self {
            trajectory,
            sampling,
            max_new_tokens,
            pause_at: None,
            repetition: None,
            stops: Arc::default(),
            hold: false,
        }
    }
}

/// A trajectory that goes on no further.
#[derive(Debug, Clone)]
pub struct Finished {
    /// With its `finish`.
    pub trajectory: Trajectory,
    /// Whether the engine still has it and waits for an observation or its release.
    pub held: bool,
}

/// Why a trajectory of `length` tokens and `actions` actions goes on no further, its last token aside.
pub(super) fn exhausted(length: usize, actions: usize, most: usize, context: usize) -> Option<Finish> {
    if actions >= most { Some(Finish::Length) } else { (length >= context).then_some(Finish::Context) }
}

/// Pages for so many positions.
pub(super) fn pages_for(positions: usize) -> usize {
    positions.div_ceil(KEY_TILE)
}

/// Refuses what could only fail later.
pub(super) fn check(
    request: &Request,
    decoder: &Decoder,
    config: &EngineConfig,
) -> Result<(), GenerateError> {
    let trajectory = &request.trajectory;
    let id = trajectory.id;
    let refuse = |why: String| Err(GenerateError::request(id, why));
    if trajectory.prompt.is_empty() {
        return refuse(
            "its prompt is empty; begin it with a token of the tokenizer's, such as its start token".into(),
        );
    }
    let vocabulary = decoder.config().vocabulary;
    let tokens = trajectory.prompt.iter().chain(&trajectory.tokens);
    if let Some(token) = tokens.into_iter().find(|&&token| token as usize >= vocabulary) {
        return refuse(format!("token {token} is not below the model's vocabulary of {vocabulary}"));
    }
    let count = trajectory.tokens.len();
    let lengths = [trajectory.log_probs.len(), trajectory.versions.len(), trajectory.is_action.len()];
    if lengths.iter().any(|&length| length != count) {
        return refuse(format!("{count} tokens with {lengths:?} log-probs, versions and action marks"));
    }
    if !(trajectory.candidates.is_empty() || trajectory.candidates.len() == count) {
        return refuse(format!("{count} tokens with {} sets of candidates", trajectory.candidates.len()));
    }
    let width = decoder.experts_per_row();
    let recorded = trajectory.experts.len().checked_div(width).unwrap_or(0);
    if recorded * width != trajectory.experts.len() || recorded >= trajectory.len() {
        return refuse(format!(
            "{} recorded experts do not fit {} tokens with {width} each",
            trajectory.experts.len(),
            trajectory.len()
        ));
    }
    request.sampling.validate().or_else(|problem| refuse(problem.to_string()))?;
    if let Err(why) = request.stops.check() {
        return refuse(why);
    }
    let left = request.max_new_tokens.saturating_sub(trajectory.action_count());
    let tokens = trajectory.len().saturating_add(left).min(decoder.config().context.max(trajectory.len()));
    // The last token never goes through the model.
    let (needed, pages) = (pages_for(tokens - 1), config.pages());
    if needed > pages {
        return Err(GenerateError::TooLarge { id, tokens, needed, pages });
    }
    Ok(())
}
