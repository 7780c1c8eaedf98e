//! What a step is made of: the reference and its coefficient, which answers are kept, and how much work is chosen.

use std::path::Path;

use forebay::env::task::TaskRegistry;
use forebay::learner::token::KlControlConfig;
use forebay::telemetry::TokenSummary;
use serde_json::Value;

use super::exactness::assert_repeats_and_resumes;
use super::{ADAPTERS, ONE_STEP, REFERENCE_KL, REPREFILL, complete, figures, train};
use crate::support::checkpoints::folder;
use crate::support::metrics;

const FAST: &str = "learner.schedule={ kind = \"constant\", learning_rate = 0.02, ramp_updates = 0 }";
const KEEP: &str = "learner.keep=\"best_and_worst\"";
const CONTROL: &str = "learner.kl_control={ target = 0.001, horizon = 2.0 }";
const EVERY_LINE: &str = "telemetry.lines_per_second=100000";

fn dropped(summary: &TokenSummary, reason: &str) -> u64 {
    let dropped = &summary.ledger.dropped;
    dropped.iter().find(|(own, _)| own.as_str() == reason).map_or(0, |(_, amount)| amount.trajectories)
}

fn values(lines: &[Value], field: &str) -> Vec<Option<f64>> {
    lines.iter().map(|line| line.get(field).and_then(Value::as_f64)).collect()
}

#[test]
fn a_policy_is_exactly_its_reference_right_after_a_refresh_and_leaves_it_again() {
    for reference in [REFERENCE_KL, "learner.reward_kl=0.1"] {
        for schedule in [&[] as &[&str], &["learner.epochs=2", "learner.minibatches=3"]] {
            let dir = tempfile::tempdir().unwrap();
            let changes = [&[reference, FAST, "learner.refresh_reference=2"], schedule].concat();
            complete(dir.path(), &changes, 6, true, false);
            let lines = metrics(dir.path());
            assert_eq!(figures(&lines, "reference_version"), [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]);
            let divergences = figures(&lines, "reference_divergence");
            for (update, divergence) in divergences.iter().enumerate() {
                assert_eq!(*divergence == 0.0, update % 2 == 0, "{changes:?}: {divergences:?}");
            }
            if reference == REFERENCE_KL && schedule.is_empty() {
                // The loss has no such part then, to the last bit.
                let parts: Vec<bool> =
                    values(&lines, "reference_kl").into_iter().map(|part| part.is_some()).collect();
                assert_eq!(parts, [false, true, false, true, false, true]);
            }
        }
    }
}

#[test]
fn without_a_refresh_the_reference_stays_the_policy_that_learning_began_with() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[REFERENCE_KL, FAST], 4, true, false);
    let lines = metrics(dir.path());
    assert_eq!(figures(&lines, "reference_version"), [0.0; 4]);
    let divergences = figures(&lines, "reference_divergence");
    assert!(divergences[0] == 0.0 && divergences[1..].iter().all(|&divergence| divergence > 0.0));
}

#[test]
fn the_coefficient_follows_what_each_update_measures_in_the_loss_and_in_the_reward() {
    let control = KlControlConfig { target: 0.001, horizon: 2.0, clip: 0.2 };
    for reference in [REFERENCE_KL, "learner.reward_kl=0.1"] {
        let dir = tempfile::tempdir().unwrap();
        complete(dir.path(), &[reference, FAST, CONTROL], 6, true, false);
        let lines = metrics(dir.path());
        let (divergences, coefficients) =
            (figures(&lines, "reference_divergence"), figures(&lines, "kl_coefficient"));
        let mut expected = vec![0.1];
        for &divergence in &divergences[..5] {
            expected.push(control.next(expected[expected.len() - 1], divergence));
        }
        assert_eq!(coefficients, expected);
        assert!(coefficients[1] < 0.1 && coefficients[5] > coefficients[2], "{coefficients:?}");
    }
}

/// Parameters after so many updates.
fn parameters(run: &Path, updates: u64) -> Vec<u8> {
    std::fs::read(folder(run, updates).join("parameters.safetensors")).unwrap()
}

#[test]
fn a_coefficient_that_moved_is_the_one_that_is_learned_with() {
    for reference in [REFERENCE_KL, "learner.reward_kl=0.1"] {
        let dir = tempfile::tempdir().unwrap();
        let [still, moving] = ["still", "moving"].map(|name| dir.path().join(name));
        complete(&still, &[reference, FAST, "checkpoint.every=2"], 4, true, false);
        complete(&moving, &[reference, FAST, CONTROL, "checkpoint.every=2"], 4, true, false);
        // Where the first two updates begin, the policy is the reference or has the coefficient that was set.
        assert!(parameters(&still, 4) != parameters(&moving, 4));
    }
}

#[test]
fn controlled_and_refreshed_references_and_kept_answers_repeat_and_resume_to_the_byte() {
    for kind in [
        &[REFERENCE_KL, FAST, CONTROL, "learner.refresh_reference=2"] as &[&str],
        &["learner.reward_kl=0.05", FAST, CONTROL, ADAPTERS, "learner.refresh_reference=1"],
        &[KEEP, "learner.group_size=6"],
        &[KEEP, ONE_STEP, "learner.loss.objective={ kind = \"online_dpo\" }", "learner.refresh_reference=3"],
        &[KEEP, ONE_STEP, "learner.epochs=3", "learner.auto=[\"epochs\", \"group_size\"]"],
    ] {
        assert_repeats_and_resumes(kind);
    }
}

#[test]
fn of_the_answers_to_a_problem_the_best_and_the_worst_are_learned_from_and_the_others_booked() {
    for serial in [true, false] {
        for objective in ["ppo", "online_dpo", "best_of_n"] {
            let dir = tempfile::tempdir().unwrap();
            let objective = format!("learner.loss.objective={{ kind = \"{objective}\" }}");
            let changes = [KEEP, "learner.group_size=5", &objective, EVERY_LINE];
            let summary = complete(dir.path(), &changes, 4, serial, false);
            assert_eq!(summary.ledger.consumed.trajectories, 4 * 3 * 2);
            assert_eq!(dropped(&summary, "not_kept") % 3, 0);
            assert!(dropped(&summary, "not_kept") >= 4 * 3 * 3, "{:?}", summary.ledger);
            let lines = metrics(dir.path());
            assert_eq!(figures(&lines, "trajectories"), [6.0; 4]);
            assert_eq!(figures(&lines, "answers"), [15.0; 4]);
            assert_eq!(figures(&lines, "passes"), [1.0; 4]);
        }
    }
}

#[test]
fn two_answers_of_which_the_best_and_the_worst_are_kept_are_learned_from_as_where_all_are() {
    let dir = tempfile::tempdir().unwrap();
    let [all, kept] = ["all", "kept"].map(|name| dir.path().join(name));
    complete(&all, &["learner.group_size=2"], 4, true, false);
    complete(&kept, &["learner.group_size=2", KEEP], 4, true, false);
    assert!(parameters(&all, 4) == parameters(&kept, 4));
}

#[test]
fn the_mean_reward_is_of_all_answers_whichever_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let [all, kept] = ["all", "kept"].map(|name| dir.path().join(name));
    let changes = ["learner.group_size=6", "task.options.partial=false", "generate.max_new_tokens=3"];
    complete(&all, &changes, 1, true, false);
    complete(&kept, &[&changes[..], &[KEEP]].concat(), 1, true, false);
    // The first batch is the same.
    for field in ["reward_mean", "solved", "reward_std"] {
        assert_eq!(figures(&metrics(&all), field), figures(&metrics(&kept), field), "{field}");
    }
}

#[test]
fn answers_that_are_not_kept_are_booked_once_whatever_fails_meanwhile() {
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let changes = [
            KEEP,
            "learner.group_size=5",
            REPREFILL,
            "learner.max_lag=1",
            "faults=[{ kind = \"panic\", at = 4, every = 40 }, { kind = \"nan_gradient\", at = 2 }]",
            "supervision={ restarts = 1000, backoff_seconds = 0.001 }",
        ];
        let summary = complete(dir.path(), &changes, 5, serial, false);
        assert_eq!(summary.ledger.consumed.trajectories, 5 * 3 * 2);
        assert_eq!(dropped(&summary, "non_finite"), 3 * 2);
        assert!(dropped(&summary, "not_kept") >= 6 * 3 * 3);
    }
}

const AUTO: &[&str] = &[
    KEEP,
    ONE_STEP,
    EVERY_LINE,
    "learner.epochs=3",
    "learner.group_size=8",
    "learner.auto=[\"epochs\", \"group_size\"]",
];

#[test]
fn a_serial_run_makes_one_pass_over_two_answers_where_the_choice_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.02 }]";
    complete(dir.path(), &[AUTO, &[slow]].concat(), 6, true, false);
    let lines = metrics(dir.path());
    assert_eq!(figures(&lines, "passes"), [1.0; 6]);
    assert_eq!(figures(&lines, "answers"), [6.0; 6]);
    assert!(figures(&lines, "train_estimate_seconds").is_empty());
}

#[test]
fn more_answers_are_sampled_while_updates_are_slow_and_only_two_of_them_learned_from() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.3 }]";
    let summary = complete(dir.path(), &[AUTO, &[slow]].concat(), 8, false, false);
    let lines = metrics(dir.path());
    let answers = figures(&lines, "answers");
    assert!(answers[..3] == [6.0; 3] && answers[7] > 6.0, "{answers:?}");
    assert_eq!((figures(&lines, "passes"), figures(&lines, "trajectories")), (vec![1.0; 8], vec![6.0; 8]));
    assert_eq!(summary.ledger.consumed.trajectories, 8 * 3 * 2);
    assert!(figures(&lines, "train_estimate_seconds").iter().all(|&seconds| seconds >= 0.3));
}

#[test]
fn more_passes_are_made_while_generation_is_slow() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "faults=[{ kind = \"delay\", at = 1, every = 1, seconds = 0.1 }]";
    complete(dir.path(), &[AUTO, &[slow]].concat(), 6, false, false);
    let lines = metrics(dir.path());
    let passes = figures(&lines, "passes");
    assert!(passes[..3] == [1.0; 3] && passes[5] > 1.0, "{passes:?}");
    assert_eq!(figures(&lines, "answers"), [6.0; 6]);
}

#[test]
fn a_checkpoint_is_not_continued_with_groups_that_are_made_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    // Generation is ahead when the run ends, so that whole groups wait in the checkpoint.
    let slow = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.2 }]";
    complete(dir.path(), &[REPREFILL, slow], 2, false, false);
    for changes in [[REPREFILL, "learner.group_size=6"], [REPREFILL, KEEP]] {
        let changes = [&changes[..], &["stop.updates=3"]].concat();
        let error =
            train(dir.path(), &TaskRegistry::builtin(), &changes, true, true).unwrap_err().to_string();
        assert!(error.contains("learner.keep"), "{changes:?}: {error}");
    }
}

#[test]
fn settings_of_a_step_that_contradict_each_other_are_refused_naming_both() {
    const AUTO_EPOCHS: &str = "learner.auto=[\"epochs\"]";
    const AUTO_GROUPS: &str = "learner.auto=[\"group_size\"]";
    let advantage = |kind: &str| format!("learner.advantage={{ kind = \"{kind}\" }}");
    let advantages = ["rubric", "skip_observation_gae", "maximum_likelihood", "reinforce"].map(advantage);
    let mut refused: Vec<(Vec<&str>, [&str; 2])> = vec![
        (vec![CONTROL], ["learner.kl_control", "learner.loss.reference_kl.coefficient"]),
        (vec![CONTROL, REFERENCE_KL, "learner.reward_kl=0.1"], ["learner.kl_control", "learner.reward_kl"]),
        (
            vec![CONTROL, "learner.loss.objective={ kind = \"online_dpo\" }", "learner.reward_kl=0.1"],
            ["learner.reward_kl", "learner.loss.objective"],
        ),
        (vec![REFERENCE_KL, "learner.kl_control={ target = 0.0 }"], ["learner.kl_control", "target"]),
        (
            vec!["learner.refresh_reference=2"],
            ["learner.refresh_reference", "learner.loss.reference_kl.coefficient"],
        ),
        (vec![REFERENCE_KL, "learner.refresh_reference=0"], ["learner.refresh_reference", "at least 1"]),
        (
            vec![
                KEEP,
                "learner.group_size=1",
                "learner.loss.objective={ kind = \"best_of_n\" }",
                &advantages[3],
            ],
            ["learner.keep", "learner.group_size"],
        ),
        (vec![KEEP, "learner.shaping.length={}"], ["learner.keep", "learner.shaping.length"]),
        (
            vec![KEEP, "learner.efforts=[{ name = \"low\" }, { name = \"high\" }]"],
            ["learner.keep", "learner.efforts"],
        ),
        (vec![AUTO_EPOCHS, "learner.epochs=3"], ["learner.auto", "schedule.kind"]),
        (vec![AUTO_EPOCHS, ONE_STEP], ["learner.auto", "learner.epochs"]),
        (vec![AUTO_EPOCHS, ONE_STEP, "learner.epochs=4"], ["learner.auto", "learner.epochs"]),
        (vec![AUTO_GROUPS, ONE_STEP], ["learner.auto", "learner.keep"]),
        (vec![AUTO_GROUPS, ONE_STEP, KEEP, "learner.group_size=2"], ["learner.auto", "learner.group_size"]),
        (vec![AUTO_GROUPS, ONE_STEP, KEEP, "learner.group_size=5"], ["learner.auto", "learner.group_size"]),
        (vec![AUTO_GROUPS, ONE_STEP, KEEP, "learner.group_size=16"], ["learner.auto", "learner.group_size"]),
    ];
    for advantage in &advantages {
        refused.push((vec![KEEP, advantage], ["learner.keep", "learner.advantage"]));
    }
    let dir = tempfile::tempdir().unwrap();
    for (changes, words) in refused {
        let run_dir = dir.path().join("run");
        let changes = [&changes[..], &["stop.updates=1"]].concat();
        let error = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{changes:?}: {error}");
        assert!(!run_dir.exists());
    }
    // What reads no advantages does not mind how they are made.
    let fine = [KEEP, &advantages[3], "learner.loss.objective={ kind = \"best_of_n\" }"];
    complete(&dir.path().join("fine"), &fine, 1, true, false);
    let forced = [AUTO_EPOCHS, "learner.epochs=2", "learner.forced_lag=1"];
    complete(&dir.path().join("forced"), &forced, 1, true, false);
}
