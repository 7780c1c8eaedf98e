//! What is graded: answers one by one, and complete groups as a whole.

use std::sync::Arc;

use crate::actors::token::conversation::Conversation;
use crate::env::task::{self, Completion, GradeError, GroupAnswer, Problem, Task, Turn};
use crate::trajectory::{Finish, Reward, Trajectory};

/// An answer to be judged.
#[derive(Debug)]
pub struct Answer {
    /// The trajectory, ended or at the end of a turn.
    pub trajectory: Trajectory,
    /// What was said, the last turn included.
    pub conversation: Conversation,
    /// Who sent it.
    pub generator: usize,
}

/// A complete group to be graded as a whole.
#[derive(Debug, Clone)]
pub struct WholeGroup {
    /// Which.
    pub group: u64,
    /// The problem.
    pub problem: Arc<Problem>,
    /// Turns, ending and grade of each member that was graded, in order.
    pub answers: Vec<(Vec<String>, Finish, Reward)>,
    /// Who sent it.
    pub generator: usize,
}

/// A group and its new grades.
#[derive(Debug)]
pub struct JudgedGroup {
    /// Which.
    pub group: u64,
    /// One grade for each answer, or why there is none.
    pub grades: Result<Vec<Reward>, GradeError>,
}

/// Grades a group as a whole.
fn judge_group(task: &dyn Task, group: &WholeGroup) -> Result<Vec<Reward>, GradeError> {
    let mut answers = Vec::with_capacity(group.answers.len());
    for (turns, finish, reward) in &group.answers {
        answers.push(GroupAnswer { completion: Completion { turns, finish: *finish }, reward });
    }
    task::grade_group(task, &group.problem, &answers)
}

/// What the task made of it.
#[derive(Debug)]
pub enum Verdict {
    /// It says something, and the model goes on.
    Observe(String),
    /// A grade.
    Graded(Reward),
    /// It could not be graded.
    Failed(GradeError),
}

/// An answer and what the task made of it.
#[derive(Debug)]
pub struct Judged {
    /// The answer.
    pub answer: Answer,
    /// The verdict.
    pub verdict: Verdict,
    /// How long the task took, seconds.
    pub seconds: f64,
}

/// Judges an answer: the next turn if there is one, else a grade.
#[must_use]
pub fn judge(task: &dyn Task, trajectory: &Trajectory, conversation: &Conversation) -> Verdict {
    let (problem, turns) = (&conversation.problem, &conversation.turns);
    let finish = trajectory.finish.unwrap_or(Finish::Stop);
    if finish == Finish::Stop {
        match task::respond(task, problem, turns) {
            Ok(Turn::Observe(said)) => return Verdict::Observe(said),
            Ok(Turn::End) => {}
            Err(error) => return Verdict::Failed(error),
        }
    }
    task::grade(task, problem, &Completion { turns, finish }).map_or_else(Verdict::Failed, Verdict::Graded)
}

/// What a worker is given.
pub(super) enum Work {
    Answer(Box<Answer>),
    Group(WholeGroup),
}

impl Work {
    pub(super) fn generator(&self) -> usize {
        match self {
            Self::Answer(answer) => answer.generator,
            Self::Group(group) => group.generator,
        }
    }

    pub(super) fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Group(_) => None,
        }
    }
}

/// What the task is asked: a copy of the work.
pub(super) enum Question {
    Answer(Box<(Trajectory, Conversation)>),
    Group(WholeGroup),
}

/// What came of it.
pub(super) enum Outcome {
    Answer(Verdict),
    Group(Result<Vec<Reward>, GradeError>),
}

impl Question {
    pub(super) fn of(work: &Work) -> Self {
        match work {
            Work::Answer(answer) => {
                Self::Answer(Box::new((answer.trajectory.clone(), answer.conversation.clone())))
            }
            Work::Group(group) => Self::Group(group.clone()),
        }
    }

    pub(super) fn put(&self, task: &dyn Task) -> Outcome {
        match self {
            Self::Answer(answer) => Outcome::Answer(judge(task, &answer.0, &answer.1)),
            Self::Group(group) => Outcome::Group(judge_group(task, group)),
        }
    }
}
