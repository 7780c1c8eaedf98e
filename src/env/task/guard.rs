//! Calls into a task that nothing gets out of but a grade or an error: panics are caught, grades are finite.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::contract::{Completion, GroupAnswer, Problem, Task, Turn};
use super::error::GradeError;
use crate::trajectory::Reward;

/// Grades by [`Task::grade`].
///
/// # Errors
/// What the task reports; [`GradeError::Panicked`] when it panics; [`GradeError::Verifier`] when the reward or a part of
/// it is not finite.
pub fn grade(task: &dyn Task, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
    finite(caught(|| task.grade(problem, completion))?)
}

/// Grades a group by [`Task::grade_group`].
///
/// # Errors
/// As for [`grade`]; [`GradeError::Verifier`] also when there is not one grade for each answer.
pub fn grade_group(
    task: &dyn Task,
    problem: &Problem,
    answers: &[GroupAnswer<'_>],
) -> Result<Vec<Reward>, GradeError> {
    let rewards = caught(|| task.grade_group(problem, answers))?;
    if rewards.len() != answers.len() {
        let why = format!("{} grades for a group of {} answers", rewards.len(), answers.len());
        return Err(GradeError::Verifier(why));
    }
    rewards.into_iter().map(finite).collect()
}

fn finite(reward: Reward) -> Result<Reward, GradeError> {
    if !reward.value.is_finite() {
        return Err(GradeError::Verifier(format!("reward is {}; rewards are finite", reward.value)));
    }
    match reward.parts.iter().find(|(_, part)| !part.is_finite()) {
        Some((name, part)) => {
            Err(GradeError::Verifier(format!("part `{name}` of a reward is {part}; parts are finite")))
        }
        None => Ok(reward),
    }
}

/// Asks for the next turn by [`Task::respond`].
///
/// # Errors
/// What the task reports; [`GradeError::Panicked`] when it panics.
pub fn respond(task: &dyn Task, problem: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
    caught(|| task.respond(problem, turns))
}

/// Tasks are called by shared reference and keep no state between calls, so none can be left half-changed.
fn caught<T>(call: impl FnOnce() -> Result<T, GradeError>) -> Result<T, GradeError> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(GradeError::Panicked(message(payload.as_ref()))))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::task::{Prompt, Split, TaskError};
    use crate::trajectory::Finish;

    struct Broken(fn() -> Result<Reward, GradeError>);

    impl Task for Broken {
        fn len(&self, _: Split) -> Option<u32> {
            None
        }

        fn problem(&self, _: Split, _: u32) -> Result<Problem, TaskError> {
            let prompt = Prompt::Text(String::new());
            Ok(Problem {
                source: "broken".into(),
                prompt,
                answer: String::new(),
                data: serde_json::Value::Null,
            })
        }

        fn grade(&self, _: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
            (self.0)()
        }

        fn grade_group(&self, _: &Problem, _: &[GroupAnswer<'_>]) -> Result<Vec<Reward>, GradeError> {
            Ok(vec![(self.0)()?])
        }

        fn respond(&self, _: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
            panic!("no turn after {}", turns.len())
        }
    }

    fn graded(with: fn() -> Result<Reward, GradeError>) -> Result<Reward, GradeError> {
        let task = Broken(with);
        let problem = task.problem(Split::Train, 0).unwrap();
        grade(&task, &problem, &Completion { turns: &[], finish: Finish::Stop })
    }

    #[test]
    fn a_grader_that_fails_panics_or_gives_no_number_is_an_error_and_not_reward_zero() {
        let timed_out = Err(GradeError::TimedOut);
        assert_eq!(graded(|| Err(GradeError::TimedOut)), timed_out);
        assert_eq!(graded(|| panic!("index 7")), Err(GradeError::Panicked("index 7".into())));
        let not_finite = graded(|| Ok(Reward::of(f64::NAN))).unwrap_err();
        assert_eq!(not_finite.kind(), "verifier");
        assert_eq!(graded(|| Ok(Reward::of(0.0))), Ok(Reward::of(0.0)));
    }

    #[test]
    fn a_grader_of_groups_gives_one_finite_grade_for_each_answer_or_an_error() {
        let group = |with: fn() -> Result<Reward, GradeError>, count: usize| {
            let task = Broken(with);
            let problem = task.problem(Split::Train, 0).unwrap();
            let (completion, reward) = (Completion { turns: &[], finish: Finish::Stop }, Reward::of(0.5));
            grade_group(&task, &problem, &vec![GroupAnswer { completion, reward: &reward }; count])
        };
        assert_eq!(group(|| Ok(Reward::of(1.0)), 1), Ok(vec![Reward::of(1.0)]));
        assert_eq!(group(|| panic!("no order"), 1), Err(GradeError::Panicked("no order".into())));
        let refused = |result: Result<Vec<Reward>, GradeError>| result.unwrap_err().to_string();
        assert!(refused(group(|| Ok(Reward::of(1.0)), 2)).contains("1 grades for a group of 2 answers"));
        let broken = || Ok(Reward { value: 1.0, parts: vec![("form".into(), f64::INFINITY)] });
        assert!(refused(group(broken, 1)).contains("`form`"));
        assert_eq!(graded(broken).unwrap_err().kind(), "verifier");
    }

    #[test]
    fn a_panic_while_responding_is_caught_with_its_message() {
        let task = Broken(|| Ok(Reward::of(0.0)));
        let problem = task.problem(Split::Train, 0).unwrap();
        let failed = respond(&task, &problem, &[]);
        assert_eq!(failed, Err(GradeError::Panicked("no turn after 0".into())));
    }
}
