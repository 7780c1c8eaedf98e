//! What teachers say of a batch: the log-probability of each token under the teacher of its answer.
//!
//! A teacher reads only the answers that it teaches, and of those only what is learned from. It is a policy like the
//! student's, at the same temperature and, where sampling was restricted, over the same tokens: a teacher of the student's
//! own parameters says bit for bit what the student says.

use std::sync::Arc;

use super::TokenLearner;
use crate::learner::LearnerError;
use crate::learner::token::TokenLearnerConfig;
use crate::learner::token::flat::Flat;
use crate::learner::token::settings::subject;
use crate::policy::{Decoder, Packing, Parameters, TrainingPass};
use crate::trajectory::Group;

/// A frozen language model with the policy's tokens. Clones share the parameters.
#[derive(Clone)]
pub struct Teacher {
    /// Its architecture.
    pub decoder: Arc<Decoder>,
    /// Its parameters.
    pub parameters: Parameters,
}

impl TokenLearner {
    /// Puts the teachers in place, in the order of `learner.teachers`.
    pub fn set_teachers(&mut self, teachers: Vec<Teacher>) {
        self.teachers = teachers;
    }

    /// Log-probabilities of all tokens that are learned from, 0 elsewhere; `None` when it was abandoned.
    pub(super) fn teacher_scores(
        &self,
        groups: &[&Group],
        flat: &Flat,
        abandon: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<f32>>, LearnerError> {
        let taught_by = taught_by(&self.config, groups, flat)?;
        let mut log_probs = vec![0.0; flat.tokens()];
        for (index, teacher) in self.teachers.iter().enumerate() {
            let own = |group, member| taught_by[flat.row_of(group, member)] == Some(index);
            // What the student's router chose means nothing to another model.
            let packing = Packing { experts_per_row: 0, ..self.packing() };
            for pack in packing.pack_where(groups, own)? {
                if abandon() {
                    return Ok(None);
                }
                let pass = TrainingPass { decoder: &teacher.decoder, ..self.pass() };
                let scores = pass.evaluate(&teacher.parameters, &pack)?;
                for (place, &log_prob) in pack.places.iter().zip(&scores.log_probs) {
                    log_probs[flat.entry(place)] = log_prob;
                }
            }
        }
        Ok(Some(log_probs))
    }
}

/// The teacher of each row; `None` for rows that nothing is learned from.
fn taught_by(
    config: &TokenLearnerConfig,
    groups: &[&Group],
    flat: &Flat,
) -> Result<Vec<Option<usize>>, LearnerError> {
    let mut taught_by = Vec::with_capacity(flat.rows.len());
    for (index, group) in groups.iter().enumerate() {
        for member in 0..group.members.len() {
            let effort = config.effort_of(member).map(|effort| effort.name.as_str());
            let teacher = config.teacher_of(&group.source, effort);
            let learned = flat.is_learned(index, member);
            if learned && teacher.is_none() {
                return Err(LearnerError::NoTeacher { subject: subject(Some(&group.source), effort) });
            }
            taught_by.push(teacher.filter(|_| learned));
        }
    }
    Ok(taught_by)
}
