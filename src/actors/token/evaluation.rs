//! Evaluation: answers to problems that are not learned from, under one version.
//!
//! Problem `i` is answered with draws of its own (none at temperature 0), so the result does not depend on how many
//! answers are generated side by side. Every answer that is begun is graded and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answers::{Answered, Answers};
use super::conversation::Conversation;
use super::efforts::at_effort;
use crate::env::task::{Split, Task};
use crate::generate::{EngineConfig, Stops, Weights};
use crate::learner::token::EffortConfig;
use crate::ops::Sampling;
use crate::policy::{Decoder, Tokenizer};
use crate::telemetry::EvaluationPart;
use crate::trajectory::{Finish, Reward, Trajectory, TrajectoryId};

/// Pass number of evaluation answers, which no training pass reaches.
const EPOCH: u32 = u32::MAX;

/// When and on how much to evaluate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenEvaluationConfig {
    /// Updates between evaluations during training; absent: none.
    pub every_updates: Option<u64>,
    /// Whether the initial policy is evaluated too, after a warm-up if there is one.
    pub initial: bool,
    /// Problems of each evaluation during training.
    pub problems: usize,
    /// Problems of the evaluation of the final parameters; 0: none.
    pub final_problems: usize,
    /// Sampling temperature; 0: always the most likely token.
    pub temperature: f32,
}

impl Default for TokenEvaluationConfig {
    fn default() -> Self {
        Self { every_updates: None, initial: true, problems: 100, final_problems: 500, temperature: 0.0 }
    }
}

/// One answer, to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluatedAnswer {
    /// Index of the problem.
    pub problem: u32,
    /// Where the problem comes from.
    pub source: Arc<str>,
    /// Name of the effort that it was asked at, where there is a choice of efforts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The prompt as the model sees it.
    pub prompt: String,
    /// What the model wrote, its turns one after another.
    pub answer: String,
    /// The reference answer.
    pub reference: String,
    /// Its reward; `None` when it could not be graded.
    pub reward: Option<f64>,
    /// How it ended.
    pub finish: Option<Finish>,
    /// Tokens after the prompt.
    pub tokens: usize,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenEvaluation {
    /// Answers in order of their problems.
    pub answers: Vec<EvaluatedAnswer>,
}

impl TokenEvaluation {
    fn rewards(&self) -> impl Iterator<Item = f64> + '_ {
        self.answers.iter().filter_map(|answer| answer.reward)
    }

    /// Answers that were graded.
    #[must_use]
    pub fn graded(&self) -> usize {
        self.rewards().count()
    }

    /// Mean reward of the graded answers.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.rewards().sum::<f64>() / self.graded().max(1) as f64
    }

    /// Share of the graded answers with a reward of at least 1.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        self.rewards().filter(|&reward| reward >= 1.0).count() as f64 / self.graded().max(1) as f64
    }

    /// 95 % interval of the accuracy (Wilson 1927).
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let (n, p, z) = (self.graded().max(1) as f64, self.accuracy(), 1.959_963_985);
        let centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - half).max(0.0), (centre + half).min(1.0))
    }

    /// The answers of each source and effort, in the order of their names.
    #[must_use]
    pub fn parts(&self) -> Vec<EvaluationPart> {
        let mut parts: BTreeMap<(Arc<str>, Option<String>), Self> = BTreeMap::new();
        for answer in &self.answers {
            let part = parts.entry((Arc::clone(&answer.source), answer.effort.clone())).or_default();
            part.answers.push(answer.clone());
        }
        let part = |((source, effort), part): ((Arc<str>, Option<String>), Self)| EvaluationPart {
            source: source.to_string(),
            effort,
            graded: part.graded() as u64,
            accuracy: part.accuracy(),
            reward_mean: part.mean(),
        };
        parts.into_iter().map(part).filter(|part| part.graded > 0).collect()
    }

    /// Share of answers that were cut off.
    #[must_use]
    pub fn truncated(&self) -> f64 {
        let cut = |answer: &&EvaluatedAnswer| answer.finish.is_some_and(|finish| !finish.is_terminal());
        self.answers.iter().filter(cut).count() as f64 / self.answers.len().max(1) as f64
    }
}

/// What answers are made with.
#[derive(Clone)]
pub struct Examinee {
    /// The task.
    pub task: Arc<dyn Task>,
    /// Texts to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The architecture.
    pub decoder: Arc<Decoder>,
    /// What ends an answer.
    pub stops: Arc<Stops>,
    /// The engine's settings; the cache is only as large as needed.
    pub engine: EngineConfig,
    /// Most tokens of an answer.
    pub max_new_tokens: usize,
    /// Efforts that problems are asked at, in turn; none: as they are.
    pub efforts: Vec<EffortConfig>,
    /// Seed of the draws.
    pub seed: u64,
}

/// Answers the first `problems` evaluation problems under one version, on the calling thread and the pool it is in.
/// `None` when `keep_going` said no.
///
/// # Errors
/// When a problem cannot be made or generation fails.
pub fn evaluate_tokens(
    examinee: &Examinee,
    weights: Weights,
    problems: usize,
    sampling: &Sampling,
    keep_going: &dyn Fn() -> bool,
) -> Result<Option<TokenEvaluation>, String> {
    let Examinee { task, tokenizer, efforts, .. } = examinee;
    let count = task.len(Split::Evaluation).map_or(problems, |len| problems.min(len as usize));
    let mut asked = Answers::new(examinee, weights, *sampling)?;
    let mut answers: BTreeMap<u32, EvaluatedAnswer> = BTreeMap::new();
    let mut next = 0_u32;
    while answers.len() < count {
        if !keep_going() {
            return Ok(None);
        }
        while (next as usize) < count && asked.has_room() {
            let problem = task.problem(Split::Evaluation, next).map_err(|error| error.to_string())?;
            let place = task.place(Split::Evaluation, next) as usize;
            let problem = at_effort(problem, efforts, place);
            let id = TrajectoryId { epoch: EPOCH, prompt: next, ..TrajectoryId::default() };
            let prompt = asked.prompt(&problem)?;
            asked.ask(Arc::new(problem), prompt, id)?;
            next += 1;
        }
        for Answered { trajectory, conversation, reward } in asked.step()? {
            let place = task.place(Split::Evaluation, trajectory.id.prompt) as usize;
            let effort = efforts.get(place % efforts.len().max(1)).map(|effort| effort.name.clone());
            let answer = answered(tokenizer, &trajectory, &conversation, reward, effort);
            answers.insert(trajectory.id.prompt, answer);
        }
    }
    Ok(Some(TokenEvaluation { answers: answers.into_values().collect() }))
}

fn answered(
    tokenizer: &Tokenizer,
    trajectory: &Trajectory,
    conversation: &Conversation,
    reward: Option<Reward>,
    effort: Option<String>,
) -> EvaluatedAnswer {
    EvaluatedAnswer {
        problem: trajectory.id.prompt,
        source: Arc::clone(&conversation.problem.source),
        effort,
        prompt: tokenizer.decode(&trajectory.prompt),
        answer: tokenizer.decode(&trajectory.tokens),
        reference: conversation.problem.answer.clone(),
        reward: reward.map(|reward| reward.value),
        finish: trajectory.finish,
        tokens: trajectory.tokens.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_rewards(rewards: &[Option<f64>]) -> TokenEvaluation {
        let answer = |&reward: &Option<f64>| EvaluatedAnswer {
            problem: 0,
            source: "sums".into(),
            effort: None,
            prompt: String::new(),
            answer: String::new(),
            reference: String::new(),
            reward,
            finish: Some(Finish::Stop),
            tokens: 1,
        };
        TokenEvaluation { answers: rewards.iter().map(answer).collect() }
    }

    #[test]
    fn answers_that_could_not_be_graded_are_no_wrong_answers() {
        let evaluation = of_rewards(&[Some(1.0), None, Some(0.0), Some(1.0), None]);
        assert_eq!((evaluation.graded(), evaluation.accuracy()), (3, 2.0 / 3.0));
    }

    #[test]
    fn each_source_and_effort_is_a_part_of_its_own_and_what_was_not_graded_is_none() {
        let mut evaluation = of_rewards(&[Some(1.0), Some(0.5), Some(0.0), None, Some(1.0), None]);
        let cells = [("b", "low"), ("a", "high"), ("a", "low"), ("a", "low"), ("b", "low"), ("c", "low")];
        for (answer, (source, effort)) in evaluation.answers.iter_mut().zip(cells) {
            (answer.source, answer.effort) = (source.into(), Some(effort.into()));
        }
        let parts = evaluation.parts();
        let cells: Vec<_> = parts
            .iter()
            .map(|part| {
                (&*part.source, part.effort.as_deref().unwrap(), part.graded, part.accuracy, part.reward_mean)
            })
            .collect();
        assert_eq!(cells, [("a", "high", 1, 0.0, 0.5), ("a", "low", 1, 0.0, 0.0), ("b", "low", 2, 1.0, 1.0)]);
    }

    #[test]
    fn the_interval_is_that_of_wilson() {
        // 8 of 10: Wilson's interval is 0.490 to 0.943.
        let rewards: Vec<_> = (0..10).map(|i| Some(if i < 8 { 1.0 } else { 0.0 })).collect();
        let (low, high) = of_rewards(&rewards).interval();
        assert!((low - 0.490_2).abs() < 1e-3 && (high - 0.943_3).abs() < 1e-3, "{low} {high}");
    }
}
