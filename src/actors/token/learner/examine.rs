//! Evaluations in the course of a token run, on the learner's threads.

use std::sync::Arc;

use super::TokenLearnerRole;
use super::report::SAMPLES;
use crate::actors::role::RoleError;
use crate::actors::token::evaluation::{Examinee, TokenEvaluation, evaluate_tokens};
use crate::actors::token::run::TokenRun;
use crate::generate::Weights;
use crate::ops::Sampling;
use crate::telemetry::Sample;

impl TokenLearnerRole {
    /// Who is examined in this run.
    #[must_use]
    pub fn examinee(run: &TokenRun) -> Examinee {
        Examinee {
            task: Arc::clone(&run.task),
            tokenizer: Arc::clone(&run.tokenizer),
            decoder: Arc::clone(&run.decoder),
            stops: Arc::clone(&run.stops),
            engine: run.config.generate.engine.clone(),
            max_new_tokens: run.config.generate.max_new_tokens,
            efforts: run.config.learner.efforts.clone(),
            seed: run.config.seed,
        }
    }

    /// Evaluates a published version on this thread; `None` when the run is asked to end meanwhile.
    ///
    /// # Errors
    /// When generation fails.
    pub fn evaluate(&mut self, problems: usize) -> Result<Option<TokenEvaluation>, RoleError> {
        let latest = self.run.bus.latest();
        let weights = Weights::new(Arc::new(latest.parameters.clone()), latest.version);
        let sampling =
            Sampling { temperature: self.run.config.evaluation.temperature, ..Sampling::default() };
        let examinee = Self::examinee(&self.run);
        let interrupt = self.interrupt.clone();
        let result = self.learner.with_threads(|| {
            evaluate_tokens(&examinee, weights, problems, &sampling, &|| interrupt.signal().is_none())
        });
        let Some(evaluation) = result.map_err(RoleError::Evaluation)? else { return Ok(None) };
        for answer in evaluation.answers.iter().take(SAMPLES) {
            let sample = Sample {
                update: latest.version.0,
                split: Some("evaluation".into()),
                prompt: answer.prompt.clone(),
                completion: answer.answer.clone(),
                reward: answer.reward,
                answer: Some(answer.reference.clone()),
                finish: answer.finish,
                tokens: answer.tokens as u64,
            };
            self.samples.write(&sample).map_err(|error| RoleError::Files(error.to_string()))?;
        }
        Ok(Some(evaluation))
    }

    pub(super) fn evaluate_now(&mut self) -> Result<(), RoleError> {
        let evaluation = self.evaluate(self.run.config.evaluation.problems)?;
        if let Some(evaluation) = evaluation.filter(|evaluation| evaluation.graded() > 0) {
            self.journal.rewards.evaluated(evaluation.mean());
            self.record.eval_mean = Some(evaluation.mean());
            self.run.metrics.record_evaluation(&evaluation.parts());
        }
        Ok(())
    }

    /// Starts an evaluation when one is due.
    pub(super) fn evaluate_if_due(&mut self) -> Result<(), RoleError> {
        let version = self.learner.version().0;
        if let Some(every) = self.run.config.evaluation.every_updates
            && version >= self.journal.next_evaluation
        {
            self.journal.next_evaluation = version - version % every.max(1) + every.max(1);
            self.evaluate_now()?;
        }
        Ok(())
    }
}
