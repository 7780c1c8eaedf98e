//! Calls into a task that nothing gets out of but a grade or an error: panics are caught, grades are finite.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::contract::{Completion, Problem, Task, Turn};
use super::error::GradeError;
use crate::trajectory::Reward;

/// Grades by [`Task::grade`].
///
/// # Errors
/// What the task reports; [`GradeError::Panicked`] when it panics; [`GradeError::Verifier`] when the reward is not
/// finite.
pub fn grade(task: &dyn Task, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
    let reward = caught(|| task.grade(problem, completion))?;
    if reward.value.is_finite() {
        Ok(reward)
    } else {
        Err(GradeError::Verifier(format!("reward is {}; rewards are finite", reward.value)))
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
    fn a_panic_while_responding_is_caught_with_its_message() {
        let task = Broken(|| Ok(Reward::of(0.0)));
        let problem = task.problem(Split::Train, 0).unwrap();
        let failed = respond(&task, &problem, &[]);
        assert_eq!(failed, Err(GradeError::Panicked("no turn after 0".into())));
    }
}
