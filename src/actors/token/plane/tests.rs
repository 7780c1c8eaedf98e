//! Groups that are graded as a whole, on a plane by itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;

use super::{Complete, Ended, Plane, PlaneParts, ReadyGroup};
use crate::actors::parameter_bus::Published;
use crate::actors::queue::{QueueReceiver, queue};
use crate::env::task::{Completion, GradeError, Problem, Prompt, Prompts, Split, Task, TaskError};
use crate::policy::{Decoder, DecoderConfig, Tokenizer};
use crate::schedule::{ScheduleConfig, Scheduler, SchedulerSettings};
use crate::trajectory::{DropReason, Finish, Ledger, Reward, Trajectory, Version};

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
    let decoder =
        Decoder::new(DecoderConfig { layers: 1, ..DecoderConfig::default() }, &Device::Cpu).unwrap();
    let parameters = decoder.layout().initialize(1, &Device::Cpu).unwrap();
    let published = Arc::new(Published { version: Version(0), parameters, normalizer: None });
    let (sender, receiver) = queue(8);
    let plane = Plane::new(PlaneParts {
        task: Arc::new(Whole),
        tokenizer: Arc::new(Tokenizer::characters("ab").unwrap()),
        learner: toml::from_str(&format!(
            "prompts = 1\ngroup_size = 2\nadvantage = {{ kind = '{advantage}' }}"
        ))
        .unwrap(),
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
