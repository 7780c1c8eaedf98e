//! What becomes of groups and answers that are not learned from: each is booked once, for its own reason.

use forebay::env::task::{
    Completion, GradeError, Problem, Prompt, Reward, Split, Task, TaskEntry, TaskError, TaskRegistry,
};
use forebay::telemetry::RunOutcome;

use super::{assert_books, complete, train};

#[test]
fn groups_that_are_too_old_are_dropped_and_others_sampled_in_their_place() {
    let dir = tempfile::tempdir().unwrap();
    // So far ahead that answers live through several updates.
    let changes = [
        "schedule={ kind = \"async\", lead = 6, resume = \"reprefill\" }",
        "learner.prompts=1",
        "generate.max_new_tokens=18",
        "generate.engine.max_running=28",
    ];
    let free = complete(&dir.path().join("free"), &changes, 12, true, false);
    assert!(free.lag_max > 1, "{}", free.lag_max);
    let bounded = [&changes[..], &["learner.max_lag=1"]].concat();
    let summary = complete(&dir.path().join("bounded"), &bounded, 12, true, false);
    assert_eq!(summary.lag_max, 1);
    let stale = summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "stale");
    assert!(stale.is_some(), "{:?}", summary.ledger.dropped);
}

#[test]
fn groups_whose_rewards_are_alike_are_refilled_and_a_task_that_gives_nothing_else_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let changes = ["learner.drop_zero_variance=true", "generate.max_new_tokens=3"];
    let summary = complete(&dir.path().join("some"), &changes, 4, false, false);
    assert_eq!(summary.ledger.consumed.trajectories, 4 * 3 * 4);
    let dropped = &summary.ledger.dropped;
    let alike = dropped.iter().find(|(reason, _)| reason.as_str() == "zero_variance");
    assert!(alike.is_some_and(|(_, amount)| amount.trajectories % 4 == 0), "{dropped:?}");

    let hopeless =
        ["learner.drop_zero_variance=true", "task.options.partial=false", "task.options.min_length=3"];
    let never = [&hopeless[..], &["generate.max_new_tokens=1", "stop.updates=4"]].concat();
    let summary = train(&dir.path().join("none"), &TaskRegistry::builtin(), &never, false, false).unwrap();
    assert_eq!(summary.status, RunOutcome::Failed);
    assert!(summary.cause.contains("left nothing to learn from"), "{}", summary.cause);
    assert_books(&summary);
}

#[test]
fn a_generator_that_panics_is_restarted_and_its_groups_begin_anew() {
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let faults = "faults=[{ kind = \"panic\", at = 4, every = 40 }]";
        let summary = complete(
            dir.path(),
            &[faults, "supervision={ restarts = 1000, backoff_seconds = 0.001 }"],
            5,
            serial,
            false,
        );
        assert!(summary.restarts["generator"] >= 1);
        let lost = summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "actor_restart");
        assert!(lost.is_some(), "{:?}", summary.ledger);
    }
}

#[test]
fn problems_that_cannot_be_read_or_leave_no_room_for_an_answer_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("problems.jsonl");
    let line = |prompt: &str| format!("{{\"prompt\": \"{prompt}\", \"answer\": \"a\"}}\n");
    // Of the context's 24 positions one has to be left.
    let lines =
        [line("a="), "no problem\n".into(), line(&"b".repeat(24)), line(&"c".repeat(23)), "{}\n".into()];
    std::fs::write(&file, lines.concat()).unwrap();
    let task = format!(
        "task={{ name = \"dataset\", shuffle = false, options = {{ path = {file:?}, verifier = \"exact\", on_bad_line = \"skip\" }} }}"
    );
    let summary =
        complete(&dir.path().join("run"), &[&task, "evaluation={ final_problems = 0 }"], 2, true, false);
    assert_eq!(summary.skipped_problems, 2);
    // Two updates of three groups are three passes over three problems, the second of which is left out.
    assert_eq!((summary.too_long_prompts, summary.ungraded_groups), (3, 0));
    assert_eq!(summary.ledger.consumed.trajectories, 2 * 3 * 4);
}

#[test]
fn an_update_that_is_not_finite_is_skipped_and_its_batch_sampled_anew() {
    let dir = tempfile::tempdir().unwrap();
    let summary = complete(dir.path(), &["faults=[{ kind = \"nan_gradient\", at = 2 }]"], 4, true, false);
    let lost = summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "non_finite").unwrap();
    assert_eq!(lost.1.trajectories, 3 * 4);
    assert_eq!(summary.ledger.consumed.trajectories, 4 * 3 * 4);
}

#[test]
fn a_run_in_which_nothing_can_be_graded_ends_by_saying_so() {
    struct Broken;
    impl Task for Broken {
        fn len(&self, _: Split) -> Option<u32> {
            Some(4)
        }

        fn problem(&self, _: Split, _: u32) -> Result<Problem, TaskError> {
            let prompt = Prompt::Text("ab".into());
            Ok(Problem { source: "broken".into(), prompt, answer: "a".into(), data: serde_json::Value::Null })
        }

        fn grade(&self, _: &Problem, _: &Completion<'_>) -> Result<Reward, GradeError> {
            Err(GradeError::Verifier("out of order".into()))
        }

        fn alphabet(&self) -> Option<String> {
            Some("ab".into())
        }
    }
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("broken", "grades nothing", |_, _| Ok(Box::new(Broken))));
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let changes = ["task={ name = \"broken\" }", "stop.updates=4"];
        let summary = train(dir.path(), &registry, &changes, serial, false).unwrap();
        assert_eq!((summary.status, summary.updates), (RunOutcome::Failed, 0));
        assert!(summary.cause.contains("no answer could be graded"), "{}", summary.cause);
        assert_books(&summary);
        assert_eq!(summary.ledger.consumed.trajectories, 0);
        assert!(summary.ungraded_groups > 0 && summary.grading_errors >= 4 * summary.ungraded_groups);
        assert_eq!(summary.reward_mean, None);
    }
}

/// Grades every other problem, panics at one and fails at the rest.
struct Moody;

impl Task for Moody {
    fn len(&self, _: Split) -> Option<u32> {
        Some(4)
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let prompt = Prompt::Text("ab".into());
        Ok(Problem { source: "moody".into(), prompt, answer: "a".into(), data: index.into() })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        match problem.data.as_u64() {
            Some(1) => panic!("no mood for this one"),
            Some(3) => Err(GradeError::Verifier("cannot tell".into())),
            _ => Ok(Reward::of(1.0 + completion.reply().len() as f64)),
        }
    }

    fn alphabet(&self) -> Option<String> {
        Some("ab".into())
    }
}

#[test]
fn answers_that_cannot_be_graded_are_counted_and_never_taken_for_wrong_ones() {
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("moody", "grades when it likes", |_, _| Ok(Box::new(Moody))));
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let changes = ["task={ name = \"moody\" }", "stop.updates=4"];
        let summary = train(dir.path(), &registry, &changes, serial, false).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        assert_books(&summary);
        // Every reward that was given is at least 1.
        assert!(summary.reward_mean.unwrap() >= 1.0);
        let lost =
            summary.ledger.dropped.iter().find(|(reason, _)| reason.as_str() == "grading_failed").unwrap();
        assert_eq!(lost.1.trajectories, summary.grading_errors);
        // A pass over four problems gives two groups, a batch takes three.
        assert!(summary.epochs >= 4.0 * 3.0 / 4.0, "{}", summary.epochs);
    }
}
