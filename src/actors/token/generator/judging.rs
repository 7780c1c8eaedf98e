//! Ended turns and answers: to the graders, and what they say.

use super::Generator;
use crate::actors::role::RoleError;
use crate::actors::token::conversation::Conversation;
use crate::actors::token::grading::{Answer, Judged, Verdict, WholeGroup};
use crate::actors::token::plane::{Complete, Ended};
use crate::generate::Finished;
use crate::trajectory::{Finish, Reward, Trajectory};

impl Generator {
    /// An answer is complete: the grading pool judges it.
    pub(super) fn turn_over(&mut self, finished: Finished) {
        let Finished { trajectory, held } = finished;
        let Some(flight) = self.flights.get_mut(&trajectory.id) else { return };
        flight.book(trajectory.tokens.len(), &self.metrics);
        flight.held = held;
        let Some(mut conversation) = flight.conversation.take() else { return };
        // Where the task may have something to say, the answer has ended only when it has not.
        if !self.run.task.is_multi_turn() || trajectory.finish != Some(Finish::Stop) {
            self.run.plane.sampled(&trajectory);
        }
        conversation.end_turn(&self.run.tokenizer, &self.run.stops.strings, &trajectory);
        self.run.grading.submit(Answer { trajectory, conversation, generator: self.index });
    }

    pub(super) fn hear_verdicts(&mut self) -> Result<bool, RoleError> {
        self.run.grading.watch().map_err(RoleError::Files)?;
        let judged = self.run.grading.judged(self.index);
        let any = !judged.is_empty();
        for judged in judged {
            self.hear(judged)?;
        }
        // Asked after the answers: without grading threads, the last of them had its group judged at once.
        let groups = self.run.grading.judged_groups(self.index);
        let any = any || !groups.is_empty();
        for judged in groups {
            if let Err(error) = &judged.grades {
                self.run.metrics.record_group_grading_error(error.kind());
            }
            self.run.plane.group_judged(judged.group, judged.grades);
        }
        Ok(any)
    }

    /// Has a complete group graded as a whole.
    pub(super) fn grade_whole(&self, complete: Complete) -> Result<(), RoleError> {
        let Complete { group, problem, graded } = complete;
        let (task, tokenizer, stops) = (&*self.run.task, &*self.run.tokenizer, &self.run.stops.strings);
        let answers = graded.into_iter().map(|(asked, trajectory)| {
            let turns = Conversation::turns_of(asked, task, tokenizer, stops, &trajectory)?;
            let finish = trajectory.finish.unwrap_or(Finish::Stop);
            Ok((turns, finish, trajectory.reward.unwrap_or_default()))
        });
        let answers = answers.collect::<Result<_, String>>().map_err(RoleError::Files)?;
        self.run.grading.submit_group(WholeGroup { group, problem, answers, generator: self.index });
        Ok(())
    }

    pub(super) fn hear(&mut self, judged: Judged) -> Result<(), RoleError> {
        let Judged { answer: Answer { mut trajectory, mut conversation, .. }, verdict, seconds } = judged;
        let id = trajectory.id;
        let error = match verdict {
            Verdict::Observe(said) => {
                let observed = conversation.observe(&self.run.tokenizer, &trajectory, said);
                let ids = observed.map_err(|error| RoleError::Files(error.to_string()))?;
                let full = trajectory.len() + ids.len() >= self.run.decoder.config().context;
                let Some(flight) = self.flights.get_mut(&id) else { return Ok(()) };
                if full || ids.is_empty() {
                    // Nothing more fits: cut off as it stands, and graded so.
                    trajectory.finish = Some(Finish::Context);
                    self.run.grading.submit(Answer { trajectory, conversation, generator: self.index });
                    return Ok(());
                }
                flight.conversation = Some(conversation);
                let pauses = flight.pauses;
                if std::mem::take(&mut flight.held) {
                    if let Some(finished) = self.engine.observe(id, &ids)? {
                        self.turn_over(finished);
                        return Ok(());
                    }
                } else {
                    trajectory.finish = None;
                    trajectory.push_observation(&ids, self.engine.version());
                    let request = self.request(trajectory);
                    self.engine.submit(request)?;
                }
                if pauses {
                    self.hand_in(&[id]);
                }
                return Ok(());
            }
            Verdict::Graded(reward) => {
                let (source, length) = (&conversation.problem.source, trajectory.tokens.len());
                self.run.metrics.record_graded(source, length, seconds);
                trajectory.reward = Some(self.penalised(reward, &trajectory));
                None
            }
            Verdict::Failed(error) => {
                tracing::warn!("trajectory {id} was not graded: {error}");
                self.run.metrics.record_grading_error(error.kind());
                Some(error)
            }
        };
        let Some(flight) = self.flights.remove(&id) else { return Ok(()) };
        if flight.held {
            self.engine.release(id)?;
        }
        self.run.plane.ended(Ended { trajectory, ticket: flight.ticket.complete(), error });
        Ok(())
    }

    /// A grade with what an answer is charged for repeating itself.
    pub(super) fn penalised(&self, mut reward: Reward, trajectory: &Trajectory) -> Reward {
        let rule = self.run.plane.settings().repetition;
        if let Some(rule) = rule.filter(|_| trajectory.finish == Some(Finish::Repetition)) {
            reward.value += rule.penalty;
            reward.parts.push(("repetition".into(), rule.penalty));
        }
        reward
    }
}
