//! From grades to what is learned from: shaping, rubrics by tracked pass rates, graders of groups, efforts.

use forebay::env::task::{
    Completion, GradeError, GroupAnswer, Problem, Prompt, Reward, Split, Task, TaskEntry, TaskError,
    TaskRegistry,
};
use forebay::telemetry::{RunOutcome, TokenSummary};

use super::exactness::assert_repeats_and_resumes;
use super::{ONE_STEP, REPREFILL, assert_books, complete, figures, train};
use crate::support::checkpoints::assert_same;
use crate::support::{metrics, total};

const SHAPING: &str = "learner.shaping={ length = { weight = 0.5, after_updates = 2, correct_at = 0.3 }, \
                       overlong = { max_length = 6, buffer = 3, factor = 0.5 }, effort_budget = { base = 5 } }";
const EFFORTS: &str =
    "learner.efforts=[{ name = \"low\", instruction = \"?\", tau = 0.5 }, { name = \"high\" }]";
const BY_EFFORT: &str = "learner.compare=\"effort\"";
const WORKED: &str = "task={ name = \"worked_chain\", options = { min_terms = 2, max_terms = 2, max = 2 } }";
const RUBRIC: &str = "learner.advantage={ kind = \"rubric\", threshold = 0.3 }";
const EVERY_LINE: &str = "telemetry.lines_per_second=100000";

/// Two sources, one easy and one hard, with rubric scores that only the group as a whole gives, unless it fails there.
struct Judged {
    /// Fails for the groups of every third problem, one of two by a panic.
    fails: bool,
}

impl Task for Judged {
    fn len(&self, _: Split) -> Option<u32> {
        Some(12)
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let source = if index.is_multiple_of(2) { "easy" } else { "hard" };
        let prompt = Prompt::Text(source[..1].into());
        Ok(Problem { source: source.into(), prompt, answer: "a".into(), data: index.into() })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let right = &*problem.source == "easy" || completion.reply().starts_with("aha");
        // No answer is worth less than 1, so that a reward of 0 would show.
        Ok(Reward::of(if right { 2.0 } else { 1.0 }))
    }

    fn parts(&self) -> Vec<String> {
        vec!["solution".into(), "behaviour".into()]
    }

    fn grades_groups(&self) -> bool {
        true
    }

    fn grade_group(&self, problem: &Problem, answers: &[GroupAnswer<'_>]) -> Result<Vec<Reward>, GradeError> {
        let index = problem.data.as_u64().unwrap();
        assert!(!(self.fails && index.is_multiple_of(6)), "no order in {} answers", answers.len());
        if self.fails && index.is_multiple_of(3) {
            return Err(GradeError::Verifier("cannot compare".into()));
        }
        let longest = answers.iter().map(|answer| answer.completion.reply().len()).max().unwrap_or(0).max(1);
        let grade = |answer: &GroupAnswer<'_>| {
            let solution = 1.0 - 0.5 * answer.completion.reply().len() as f64 / longest as f64;
            let parts = vec![("solution".into(), solution), ("behaviour".into(), 1.0)];
            Reward { value: answer.reward.value, parts }
        };
        Ok(answers.iter().map(grade).collect())
    }

    fn alphabet(&self) -> Option<String> {
        Some("aeh".into())
    }
}

fn judged(fails: bool) -> TaskRegistry {
    let mut registry = TaskRegistry::builtin();
    registry
        .register(TaskEntry::new("judged", "compares answers", move |_, _| Ok(Box::new(Judged { fails }))));
    registry
}

fn dropped(summary: &TokenSummary, reason: &str) -> u64 {
    let found = summary.ledger.dropped.iter().find(|(own, _)| own.as_str() == reason);
    found.map_or(0, |(_, amount)| amount.trajectories)
}

#[test]
fn shaped_and_rubric_runs_write_the_same_bytes_and_so_does_one_that_was_stopped_and_resumed() {
    for kind in [
        &[SHAPING] as &[&str],
        &[
            SHAPING,
            "learner.advantage={ kind = \"reinforce\" }",
            "learner.loss.objective={ kind = \"reinforce\" }",
        ],
        &[WORKED, RUBRIC, ONE_STEP],
        &[WORKED, RUBRIC, SHAPING, "learner.loss.objective={ kind = \"four_bound\" }"],
        &[EFFORTS, BY_EFFORT, SHAPING, "warmup={ updates = 2, batch = 4 }"],
    ] {
        assert_repeats_and_resumes(kind);
    }
}

#[test]
fn tracked_pass_rates_choose_for_each_source_and_go_on_after_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let [one, parts] = ["one", "parts"].map(|name| dir.path().join(name));
    let registry = judged(false);
    let rubric = "learner.advantage={ kind = \"rubric\", threshold = 0.9, pass_at = 2.0, decay = 0.5 }";
    let run = |run_dir: &std::path::Path, updates: u64, resume: bool| {
        let stop = format!("stop.updates={updates}");
        let changes = ["task={ name = \"judged\" }", rubric, "learner.drop_zero_variance=true", &stop];
        let summary = train(run_dir, &registry, &changes, true, resume).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        assert_books(&summary);
        summary
    };
    let whole = run(&one, 6, false);
    run(&parts, 3, false);
    let resumed = run(&parts, 6, true);
    assert_same((&one, 6), (&parts, 6));
    assert_eq!(whole.ledger, resumed.ledger);
    let lines = metrics(&one);
    // Before anything was graded both sources are graded by GAR, and a group of passes teaches nothing; once a whole
    // batch was dropped, the easy one goes on by GRS, where the scores tell its passes apart.
    assert_eq!(total(&lines, "gar_groups") + total(&lines, "grs_groups"), 6.0 * 3.0);
    assert!(total(&lines, "grs_groups") > 9.0, "{lines:?}");
    assert!(dropped(&whole, "zero_variance") > 0);
    let rates = figures(&lines, "pass_rate");
    assert!(rates.iter().all(|&rate| (0.5..1.0).contains(&rate)), "{rates:?}");
    // Raw rewards stay raw.
    assert!(figures(&lines, "reward_mean").iter().all(|&mean| (1.0..=2.0).contains(&mean)));
    assert_ne!(figures(&lines, "reward_mean"), figures(&lines, "shaped_reward_mean"));
}

#[test]
fn a_grader_of_groups_that_fails_is_counted_and_nothing_is_taken_for_reward_0() {
    for serial in [true, false] {
        for rubric in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let kind = if rubric { "rubric" } else { "grpo" };
            let advantage = format!("learner.advantage.kind=\"{kind}\"");
            let changes = ["task={ name = \"judged\" }", &advantage, "stop.updates=6", EVERY_LINE];
            let summary = train(dir.path(), &judged(true), &changes, serial, false).unwrap();
            assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
            assert_books(&summary);
            assert!(summary.group_grading_errors > 0 && summary.grading_errors == 0);
            let lines = metrics(dir.path());
            assert!(figures(&lines, "reward_mean").iter().all(|&mean| mean >= 1.0));
            if rubric {
                // Learned from by their own grades.
                assert!(figures(&lines, "shaped_reward_mean").iter().all(|&mean| mean >= 0.5));
                let failures = total(&lines, "rubric_failures");
                assert!(failures > 0.0 && failures <= summary.group_grading_errors as f64);
                assert_eq!(dropped(&summary, "grading_failed"), 0);
            } else {
                assert_eq!(dropped(&summary, "grading_failed"), 4 * summary.group_grading_errors);
            }
        }
    }
}

#[test]
fn each_shaping_has_a_figure_of_its_effect_and_records_keep_the_grades() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[SHAPING], 6, true, false);
    let lines = metrics(dir.path());
    let of = |field: &str| figures(&lines, field);
    assert_eq!(of("length_reward_mean")[..2], [0.0, 0.0]);
    assert!(of("length_reward_mean")[2..].iter().any(|&mean| mean > 0.0));
    for field in ["overlong_fraction", "over_budget_fraction"] {
        assert!(of(field).iter().all(|fraction| (0.0..=1.0).contains(fraction)));
        assert!(of(field).iter().any(|&fraction| fraction > 0.0), "{field}: {:?}", of(field));
    }
    assert!(of("reward_mean").iter().all(|&mean| mean >= 0.0));
    assert!(of("shaped_reward_mean").iter().zip(of("reward_mean")).any(|(&shaped, raw)| shaped < raw));

    let plain = tempfile::tempdir().unwrap();
    complete(plain.path(), &[], 2, true, false);
    let lines = metrics(plain.path());
    for field in ["shaped_reward_mean", "length_reward_mean", "overlong_fraction", "pass_rate"] {
        assert!(figures(&lines, field).is_empty(), "{field}");
    }
}

#[test]
fn answers_at_several_efforts_are_scored_to_the_last_bit_whatever_their_prompts() {
    for schedule in ["seed=3", REPREFILL] {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            complete(dir.path(), &[EFFORTS, BY_EFFORT, schedule, EVERY_LINE], 4, serial, false);
            let exact = figures(&metrics(dir.path()), "log_prob_difference");
            assert!(!exact.is_empty() && exact.iter().all(|&difference| difference == 0.0), "{exact:?}");
        }
    }
}

#[test]
fn a_threaded_run_by_pass_rates_learns_the_same_as_a_serial_one() {
    let dir = tempfile::tempdir().unwrap();
    let registry = judged(false);
    let runs = [true, false].map(|serial| {
        let run = dir.path().join(if serial { "serial" } else { "threaded" });
        let rubric = "learner.advantage={ kind = \"rubric\", threshold = 0.9, pass_at = 2.0 }";
        let changes = ["task={ name = \"judged\" }", rubric, "stop.updates=5", EVERY_LINE];
        let summary = train(&run, &registry, &changes, serial, false).unwrap();
        assert_eq!((summary.status, summary.lag_max), (RunOutcome::Completed, 0), "{}", summary.cause);
        let lines = metrics(&run);
        let parameters = run.join("checkpoints/000000000005/parameters.safetensors");
        (figures(&lines, "pass_rate"), figures(&lines, "grs_groups"), std::fs::read(parameters).unwrap())
    });
    assert_eq!((&runs[0].0, &runs[0].1), (&runs[1].0, &runs[1].1));
    assert!(runs[0].2 == runs[1].2);
}
