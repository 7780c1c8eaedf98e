//! Groups that are graded as a whole, of which some answers are kept, and of different sizes, on a plane by itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;

use super::{Complete, Ended, Job, Plane, PlaneParts, ReadyGroup};
use crate::actors::parameter_bus::Published;
use crate::actors::queue::{QueueReceiver, queue};
use crate::env::task::{Completion, GradeError, Problem, Prompt, Prompts, Split, Task, TaskError};
use crate::policy::{Decoder, DecoderConfig, Tokenizer};
use crate::schedule::{ScheduleConfig, Scheduler, SchedulerSettings};
use crate::trajectory::{Amount, DropReason, Finish, Ledger, Reward, Trajectory, Version};

struct Whole;

impl Task for Whole {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let data = serde_json::json!({ "budget": 7 });
        Ok(Problem {
            source: "whole".into(),
            prompt: Prompt::Text("a".into()),
            answer: index.to_string(),
            data,
        })
    }

    fn grade(&self, _: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(1.0))
    }

    fn grades_groups(&self) -> bool {
        true
    }
}

fn plane(advantage: &str) -> (Plane, QueueReceiver<ReadyGroup>) {
    plane_of(Arc::new(Whole), &format!("advantage = {{ kind = '{advantage}' }}"))
}

fn plane_of(task: Arc<dyn Task>, learner: &str) -> (Plane, QueueReceiver<ReadyGroup>) {
    let decoder =
        Decoder::new(DecoderConfig { layers: 1, ..DecoderConfig::default() }, &Device::Cpu).unwrap();
    let parameters = decoder.layout().initialize(1, &Device::Cpu).unwrap();
    let published = Arc::new(Published { version: Version(0), parameters, normalizer: None });
    let (sender, receiver) = queue(8);
    let plane = Plane::new(PlaneParts {
        task,
        tokenizer: Arc::new(Tokenizer::characters("ab").unwrap()),
        learner: toml::from_str(&format!("prompts = 1\ngroup_size = 2\n{learner}")).unwrap(),
        answers: 2,
        context: 16,
        generators: 1,
        queue: sender,
        prompts: Prompts::new(None, false, 0).unwrap(),
        scheduler: Scheduler::new(SchedulerSettings::new(&ScheduleConfig::default(), 1, None)),
        history: VecDeque::from([Arc::clone(&published)]),
    });
    plane.start(published);
    (plane, receiver)
}

/// Ends both members of the next group.
fn end_group(plane: &Plane, ledger: &Ledger) -> Option<Complete> {
    let job = plane.take(0).unwrap();
    let ends = job.members.into_iter().map(|member| {
        let mut trajectory = Trajectory { finish: Some(Finish::Stop), ..member.trajectory };
        trajectory.push_action(3, -1.0, Version(0));
        trajectory.reward = Some(Reward::of(1.0));
        plane.ended(Ended { trajectory, ticket: ledger.begin().complete(), error: None })
    });
    let ends: Vec<_> = ends.collect();
    assert!(ends[0].is_none());
    ends.into_iter().next_back().flatten()
}

#[test]
fn a_complete_group_goes_to_the_learner_with_the_grades_it_got_as_a_whole() {
    let (plane, receiver) = plane("grpo");
    let complete = end_group(&plane, &Ledger::default()).unwrap();
    assert_eq!((complete.graded.len(), plane.open_groups()), (2, 1));
    assert!(receiver.take(Duration::ZERO).is_none());
    // Grades of an attempt that was given up are not heard.
    plane.group_judged(complete.key, complete.attempt + 1, Ok(vec![Reward::of(9.0); 2]));
    assert!(receiver.take(Duration::ZERO).is_none());
    plane.group_judged(complete.key, complete.attempt, Ok(vec![Reward::of(0.25), Reward::of(0.75)]));
    let (ready, _) = receiver.take(Duration::ZERO).unwrap();
    assert_eq!(ready.group.rewards(), [Some(0.25), Some(0.75)]);
    assert_eq!((ready.group.budget, plane.counts().group_grading_errors), (Some(7), 0));
}

#[test]
fn without_a_rubric_a_group_that_cannot_be_graded_as_a_whole_is_dropped_and_replaced() {
    let ledger = Ledger::default();
    let (plane, receiver) = plane("grpo");
    let complete = end_group(&plane, &ledger).unwrap();
    plane.group_judged(complete.key, complete.attempt, Err(GradeError::TimedOut));
    assert!(receiver.take(Duration::ZERO).is_none());
    assert_eq!(ledger.snapshot().dropped[&DropReason::GradingFailed].unrolls, 2);
    assert_eq!(plane.counts().group_grading_errors, 1);
    assert!(plane.take(0).is_some());
}

#[test]
fn with_a_rubric_it_keeps_the_grades_of_its_members() {
    let (plane, receiver) = plane("rubric");
    let complete = end_group(&plane, &Ledger::default()).unwrap();
    plane.group_judged(complete.key, complete.attempt, Err(GradeError::TimedOut));
    let (ready, _) = receiver.take(Duration::ZERO).unwrap();
    assert_eq!(ready.group.rewards(), [Some(1.0), Some(1.0)]);
    assert_eq!(plane.pass_rates().rate("whole"), None);
    plane.fold_passes();
    assert_eq!(plane.pass_rates().rate("whole"), Some(1.0));
}

#[test]
fn a_group_that_a_checkpoint_found_waiting_for_its_grades_waits_for_them_again() {
    let ledger = Ledger::default();
    let (before, _receiver) = plane("grpo");
    let complete = end_group(&before, &ledger).unwrap();
    let (snapshot, ordered) = before.snapshot(&[]);
    assert_eq!(snapshot.open[0].ended.len(), 2);
    let (after, receiver) = plane("grpo");
    let ticket = |trajectory: &Trajectory| ledger.adopt_buffered(trajectory.tokens.len() as u64);
    after.restore(snapshot.open, snapshot.tracked, ordered, ticket).unwrap();
    let job = after.take(0).unwrap();
    assert_eq!((job.key, job.members.len()), (complete.key, 0));
    let again = after.all_ended(job.key).unwrap();
    assert_eq!((again.key, again.graded.len()), (complete.key, 2));
    after.group_judged(again.key, again.attempt, Ok(vec![Reward::of(0.5); 2]));
    assert!(receiver.take(Duration::ZERO).is_some());
}

#[test]
fn a_lost_generators_group_begins_anew_and_its_grades_come_too_late() {
    let ledger = Ledger::default();
    let (plane, receiver) = plane("grpo");
    let complete = end_group(&plane, &ledger).unwrap();
    plane.lost(0);
    plane.group_judged(complete.key, complete.attempt, Ok(vec![Reward::of(0.5); 2]));
    assert!(receiver.take(Duration::ZERO).is_none());
    assert_eq!(ledger.snapshot().dropped[&DropReason::ActorRestart].unrolls, 2);
    let again = end_group(&plane, &ledger).unwrap();
    assert_eq!((again.key, again.attempt), (complete.key, complete.attempt + 1));
}

/// As [`Whole`], but grades answers alone.
struct Single;

impl Task for Single {
    fn len(&self, split: Split) -> Option<u32> {
        Whole.len(split)
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        Whole.problem(split, index)
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Whole.grade(problem, completion)
    }
}

/// Ends the members of a job with these rewards; without one, its grading failed.
fn end_with(plane: &Plane, ledger: &Ledger, job: Job, rewards: &[Option<f64>]) {
    assert_eq!(job.members.len(), rewards.len());
    for (member, reward) in job.members.into_iter().zip(rewards) {
        let mut trajectory = Trajectory { finish: Some(Finish::Stop), ..member.trajectory };
        trajectory.push_action(3, -1.0, Version(0));
        trajectory.reward = reward.map(Reward::of);
        let error = reward.is_none().then_some(GradeError::TimedOut);
        let mut ticket = ledger.begin();
        ticket.step(1);
        assert!(plane.ended(Ended { trajectory, ticket: ticket.complete(), error }).is_none());
    }
}

#[test]
fn the_best_and_the_worst_enter_the_queue_and_the_others_are_booked_each_for_its_reason() {
    let ledger = Ledger::default();
    let (plane, receiver) = plane_of(Arc::new(Single), "keep = 'best_and_worst'");
    plane.set_answers(5);
    let job = plane.take(0).unwrap();
    end_with(&plane, &ledger, job, &[Some(0.5), Some(1.0), None, Some(0.0), Some(0.25)]);
    let (ready, _) = receiver.take(Duration::ZERO).unwrap();
    assert_eq!(ready.group.rewards(), [Some(1.0), Some(0.0)]);
    let members: Vec<u16> = ready.group.members.iter().map(|member| member.id.member).collect();
    assert_eq!((members, ready.answers()), (vec![1, 3], 5));
    assert_eq!(ready.rewards().flatten().sum::<f64>(), 1.75);
    let books = ledger.snapshot();
    assert_eq!(books.dropped[&DropReason::NotKept], Amount { unrolls: 2, steps: 2 });
    assert_eq!(books.dropped[&DropReason::GradingFailed], Amount { unrolls: 1, steps: 1 });
    assert_eq!(books.buffered, Amount { unrolls: 2, steps: 2 });
    assert!(books.balances());
}

#[test]
fn a_group_that_says_nothing_is_dropped_whole_for_that_reason_and_not_for_what_is_not_kept() {
    let ledger = Ledger::default();
    let (plane, receiver) = plane_of(Arc::new(Single), "keep = 'best_and_worst'\ndrop_zero_variance = true");
    plane.set_answers(4);
    end_with(&plane, &ledger, plane.take(0).unwrap(), &[Some(1.0); 4]);
    assert!(receiver.take(Duration::ZERO).is_none());
    let books = ledger.snapshot();
    assert_eq!((books.dropped.len(), books.dropped[&DropReason::ZeroVariance].unrolls), (1, 4));
}

#[test]
fn a_group_has_as_many_answers_as_when_it_was_opened() {
    let ledger = Ledger::default();
    let (before, receiver) = plane_of(Arc::new(Single), "keep = 'best_and_worst'");
    before.set_answers(4);
    let job = before.take(0).unwrap();
    before.set_answers(2);
    // Lost with its generator, it begins anew with as many.
    before.lost(0);
    let again = before.take(0).unwrap();
    assert_eq!((job.members.len(), again.members.len()), (4, 4));
    // And so it does after a checkpoint.
    let (snapshot, ordered) = before.snapshot(&[]);
    let (after, later) = plane_of(Arc::new(Single), "keep = 'best_and_worst'");
    let ticket = |trajectory: &Trajectory| ledger.adopt_buffered(trajectory.tokens.len() as u64);
    after.restore(snapshot.open, snapshot.tracked, ordered, ticket).unwrap();
    let restored = after.take(0).unwrap();
    assert_eq!(restored.members.len(), 4);
    let rewards = [Some(0.0), Some(1.0), Some(2.0), Some(3.0)];
    for (plane, job, receiver) in [(&before, again, &receiver), (&after, restored, &later)] {
        end_with(plane, &ledger, job, &rewards);
        assert_eq!(receiver.take(Duration::ZERO).unwrap().0.answers(), 4);
    }
    // The next one is of the number that holds now.
    before.discarded(1);
    assert_eq!(before.take(0).unwrap().members.len(), 2);
}
