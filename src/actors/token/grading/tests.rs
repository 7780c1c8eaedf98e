//! Answers and whole groups go through the pool, and a grader that is silent holds nobody up.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::{Answer, GradingConfig, GradingPool, Verdict, WholeGroup};
use crate::actors::token::conversation::Conversation;
use crate::env::task::{Completion, GradeError, GroupAnswer, Problem, Prompt, Split, Task, TaskError};
use crate::trajectory::{Finish, Reward, Trajectory, TrajectoryId};

/// Grades an answer by its place in the group; for the problem `wait` it says that it has begun, and waits.
struct Ranks {
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Ranks {
    fn wait_if_asked(&self, problem: &Problem) {
        if problem.answer == "wait" {
            self.begun.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

impl Task for Ranks {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, _: Split, _: u32) -> Result<Problem, TaskError> {
        Ok(problem(""))
    }

    fn grade(&self, problem: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
        self.wait_if_asked(problem);
        Ok(Reward::of(0.0))
    }

    fn grade_group(&self, problem: &Problem, answers: &[GroupAnswer<'_>]) -> Result<Vec<Reward>, GradeError> {
        self.wait_if_asked(problem);
        let place = |(place, answer): (usize, &GroupAnswer<'_>)| {
            Reward::of(answer.reward.value + place as f64 + answer.completion.reply().len() as f64)
        };
        Ok(answers.iter().enumerate().map(place).collect())
    }
}

fn problem(answer: &str) -> Problem {
    let prompt = Prompt::Text("?".into());
    Problem { source: "ranks".into(), prompt, answer: answer.into(), data: serde_json::Value::Null }
}

fn group(index: u32, answer: &str) -> WholeGroup {
    let member = |reply: &str| (vec![reply.to_owned()], Finish::Stop, Reward::of(0.5));
    WholeGroup {
        group: u64::from(index),
        problem: Arc::new(problem(answer)),
        answers: vec![member("a"), member("bb")],
        generator: 1,
    }
}

fn answer(asked: &str) -> Answer {
    let mut trajectory = Trajectory::new(TrajectoryId::default(), vec![1].into());
    trajectory.finish = Some(Finish::Stop);
    Answer { trajectory, conversation: Conversation::new(Arc::new(problem(asked))), generator: 1 }
}

struct Rig {
    pool: GradingPool,
    begun: Receiver<()>,
    go_on: Sender<()>,
    woken: Receiver<()>,
}

fn rig(inline: bool, timeout_seconds: f64) -> Rig {
    let ((begin, begun), (go_on, wait), (wake, woken)) = (channel(), channel(), channel());
    let task = Arc::new(Ranks { begun: Mutex::new(begin), go_on: Mutex::new(wait) });
    let config = GradingConfig { timeout_seconds, ..GradingConfig::default() };
    let wake = Mutex::new(wake);
    // The test may have ended when the last thread looks up.
    let wake = Box::new(move || wake.lock().unwrap().send(()).unwrap_or_default());
    Rig { pool: GradingPool::start(&config, inline, task, 2, wake).unwrap(), begun, go_on, woken }
}

#[test]
fn a_group_comes_back_to_its_generator_with_one_grade_for_each_answer() {
    for inline in [true, false] {
        let Rig { pool, woken, .. } = rig(inline, 1e9);
        pool.submit_group(group(7, ""));
        if !inline {
            woken.recv().unwrap();
        }
        assert!(pool.judged_groups(0).is_empty() && pool.judged(1).is_empty());
        let judged = pool.judged_groups(1);
        assert_eq!((judged.len(), judged[0].group), (1, 7));
        assert_eq!(judged[0].grades, Ok(vec![Reward::of(1.5), Reward::of(3.5)]));
        assert!(pool.judged_groups(1).is_empty());
    }
}

#[test]
fn a_grader_of_groups_that_is_silent_for_too_long_is_left_behind_and_not_heard() {
    let Rig { pool, begun, go_on, woken } = rig(false, 0.0);
    pool.submit_group(group(1, "wait"));
    begun.recv().unwrap();
    pool.watch().unwrap();
    woken.recv().unwrap();
    assert_eq!(pool.judged_groups(1)[0].grades, Err(GradeError::TimedOut));
    assert_eq!(pool.detached(), 1);
    go_on.send(()).unwrap();
    pool.submit_group(group(2, ""));
    woken.recv().unwrap();
    let judged = pool.judged_groups(1);
    assert_eq!((judged.len(), judged[0].group), (1, 2));
}

#[test]
fn an_answer_whose_grader_is_silent_for_too_long_has_no_reward_and_the_next_is_graded() {
    let Rig { pool, begun, go_on, woken } = rig(false, 0.0);
    pool.submit(answer("wait"));
    begun.recv().unwrap();
    pool.watch().unwrap();
    woken.recv().unwrap();
    let judged = pool.judged(1);
    assert!(matches!(&judged[0].verdict, Verdict::Failed(GradeError::TimedOut)), "{:?}", judged[0].verdict);
    assert_eq!((judged.len(), pool.detached()), (1, 1));
    go_on.send(()).unwrap();
    pool.submit(answer(""));
    woken.recv().unwrap();
    let judged = pool.judged(1);
    assert!(matches!(&judged[0].verdict, Verdict::Graded(reward) if reward.value == 0.0));
    assert_eq!(judged.len(), 1);
}

#[test]
fn what_a_lost_generator_submitted_is_forgotten() {
    let Rig { pool, begun, go_on, woken } = rig(false, 1e9);
    pool.submit_group(group(1, "wait"));
    begun.recv().unwrap();
    pool.submit_group(group(2, ""));
    pool.forget(1);
    go_on.send(()).unwrap();
    pool.submit_group(group(3, ""));
    woken.recv().unwrap();
    let judged = pool.judged_groups(1);
    assert_eq!((judged.len(), judged[0].group), (1, 3));
}
