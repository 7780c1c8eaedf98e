//! Checks of a token run's settings about teachers.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::env::task::Task;
use crate::learner::token::TeacherConfig;

const TEACHERS: &str = "learner.teachers";
const OBJECTIVE: &str = "learner.loss.objective";

impl TokenConfig {
    /// Refuses teachers that nothing reads, an objective without the teachers that it reads, and teachers of efforts that
    /// nobody is asked for.
    pub(super) fn check_teachers(&self) -> Result<(), Contradiction> {
        let learner = &self.learner;
        match (learner.loss.needs().teacher, learner.teachers.is_empty()) {
            (true, true) => {
                return Err(refuse(
                    &[OBJECTIVE, TEACHERS],
                    "distillation needs a teacher; give the latter at least one, such as `{ path = \"runs/expert\" }`",
                ));
            }
            (false, false) => {
                return Err(refuse(
                    &[TEACHERS, OBJECTIVE],
                    "this objective reads no teacher; take `mopd`, or leave the teachers out",
                ));
            }
            _ => {}
        }
        for (index, teacher) in learner.teachers.iter().enumerate() {
            let same =
                |other: &TeacherConfig| other.source == teacher.source && other.effort == teacher.effort;
            if learner.teachers[..index].iter().any(same) {
                let why = format!("there are two of {}; keep one", teacher.subject());
                return Err(refuse(&[TEACHERS], why));
            }
            let known = |effort: &String| learner.efforts.iter().any(|one| one.name == *effort);
            if let Some(effort) = teacher.effort.as_ref().filter(|effort| !known(effort)) {
                return Err(refuse(
                    &[TEACHERS, "learner.efforts"],
                    format!("nobody is asked for an effort `{effort}`"),
                ));
            }
        }
        if learner.drop_zero_variance && learner.loss.needs().teacher && !learner.loss.needs().advantages {
            return Err(refuse(
                &["learner.drop_zero_variance", OBJECTIVE],
                "a group whose rewards are alike still learns from its teacher; set `alpha`, or do not drop it",
            ));
        }
        Ok(())
    }

    /// Refuses teachers that do not fit the task: every answer has one, and every one has answers to teach.
    pub(crate) fn check_taught(&self, task: &dyn Task) -> Result<(), Contradiction> {
        let learner = &self.learner;
        if learner.teachers.is_empty() {
            return Ok(());
        }
        let sources = task.sources();
        let efforts: Vec<Option<&str>> = match learner.efforts.as_slice() {
            [] => vec![None],
            efforts => efforts.iter().map(|effort| Some(effort.name.as_str())).collect(),
        };
        let cells = || sources.iter().flat_map(|source| efforts.iter().map(move |&effort| (source, effort)));
        if let Some((source, effort)) =
            cells().find(|(source, effort)| learner.teacher_of(source, *effort).is_none())
        {
            let at = effort.map(|effort| format!(" at effort `{effort}`")).unwrap_or_default();
            return Err(refuse(
                &[TEACHERS, "task"],
                format!(
                    "answers of source `{source}`{at} have no teacher; add one, or one without a source for all that have \
                     none"
                ),
            ));
        }
        for (index, teacher) in learner.teachers.iter().enumerate() {
            let teaches =
                || cells().any(|(source, effort)| learner.teacher_of(source, effort) == Some(index));
            if !sources.is_empty() && !teaches() {
                return Err(refuse(
                    &[TEACHERS, "task"],
                    format!(
                        "the teacher of {} has nothing to teach; the task's sources are {}",
                        teacher.subject(),
                        sources.iter().map(|source| format!("`{source}`")).collect::<Vec<_>>().join(", ")
                    ),
                ));
            }
        }
        Ok(())
    }
}
