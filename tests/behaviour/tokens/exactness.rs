//! The same bits: log-probabilities of generation and learning, runs with the same settings, resumed runs; and lag as the
//! schedule has it.

use std::path::Path;

use super::{
    ADAPTERS, EXPERTS, FROZEN, KEEP_KV, ONE_STEP, REFERENCE_KL, REPREFILL, SEPARATE, complete, figures,
};
use crate::support::checkpoints::assert_same;
use crate::support::{metrics, metrics_without_clock};

#[test]
fn recorded_log_probabilities_are_those_of_the_learner_to_the_last_bit_under_every_schedule() {
    let kinds: [&[&str]; 12] = [
        &[],
        SEPARATE,
        &[EXPERTS],
        &[ADAPTERS, REPREFILL, "learner.schedule.learning_rate=0.02"],
        &[FROZEN, ONE_STEP],
        &["generate.top_k=3", "generate.temperature=0.7", REFERENCE_KL],
        &["generate.top_p=0.8", REPREFILL, "learner.epochs=2", "learner.threads=2"],
        &["generate.temperature=0.7", "learner.threads=2", "generate.threads=2"],
        &["generate.engine.cache_tokens=64", "generate.engine.max_running=2"],
        &[ONE_STEP, EXPERTS, "generate.engine.record_experts=true", "learner.replay_experts=true"],
        &[REPREFILL],
        &["task={ name = \"guess_number\" }", "model.decoder.context=200", "generate.max_new_tokens=20"],
    ];
    for kind in kinds {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            complete(dir.path(), &[kind, &["telemetry.lines_per_second=100000"]].concat(), 6, serial, false);
            let lines = metrics(dir.path());
            let exact = figures(&lines, "log_prob_difference");
            assert!(
                !exact.is_empty() && exact.iter().all(|&difference| difference == 0.0),
                "{kind:?}: {exact:?}"
            );
        }
    }
}

#[test]
fn a_kept_cache_mixes_versions_and_only_there_log_probabilities_differ() {
    let dir = tempfile::tempdir().unwrap();
    let changes = [KEEP_KV, "generate.max_new_tokens=18", "learner.schedule.learning_rate=0.01"];
    complete(dir.path(), &changes, 8, true, false);
    let lines = metrics(dir.path());
    assert!(figures(&lines, "log_prob_difference").iter().all(|&difference| difference == 0.0));
    let mixed = figures(&lines, "kept_kv_log_prob_difference");
    assert!(mixed.iter().any(|&difference| difference > 0.0), "{mixed:?}");
}

/// Two serial runs with these changes write the same bytes, and so does one that was stopped and resumed.
pub(super) fn assert_repeats_and_resumes(kind: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let [one, other, parts] = ["one", "other", "parts"].map(|name| dir.path().join(name));
    let whole = complete(&one, &[kind, &["checkpoint.every=2"]].concat(), 6, true, false);
    complete(&other, kind, 6, true, false);
    complete(&parts, kind, 3, true, false);
    let resumed = complete(&parts, kind, 6, true, true);
    for run in [&other, &parts] {
        assert_same((&one, 6), (run, 6));
        assert_eq!(metrics_without_clock(&one), metrics_without_clock(run), "{kind:?}");
    }
    assert_eq!((whole.ledger, whole.reward_mean), (resumed.ledger, resumed.reward_mean));
}

#[test]
fn two_serial_runs_write_the_same_bytes_and_so_does_one_that_was_stopped_and_resumed() {
    for kind in [
        &["warmup={ updates = 2, batch = 5 }"] as &[&str],
        &[EXPERTS, "learner.epochs=2", "learner.minibatches=2"],
        &[
            "learner.advantage={ kind = \"skip_observation_gae\" }",
            "learner.loss.objective={ kind = \"grpo\" }",
        ],
        &[SEPARATE, &["warmup={ updates = 2, batch = 5 }", ADAPTERS]].concat(),
        &[SEPARATE, &["learner.minibatches=2", "learner.critic.order=\"policy_first\"", ONE_STEP]].concat(),
        &[ONE_STEP],
        &["learner.forced_lag=2"],
        &[ADAPTERS, ONE_STEP, REFERENCE_KL],
        &[FROZEN],
        &["generate.top_k=4", "generate.top_p=0.9"],
    ] {
        assert_repeats_and_resumes(kind);
    }
}

#[test]
fn an_asynchronous_run_repeats_itself_and_goes_on_from_a_checkpoint_with_its_books_in_order() {
    const GUESS: &[&str] =
        &["task={ name = \"guess_number\" }", "model.decoder.context=200", "generate.max_new_tokens=20"];
    let restricted = [GUESS, &["generate.top_k=5"]].concat();
    for (schedule, task) in
        [(REPREFILL, &[] as &[&str]), (KEEP_KV, &[]), (REPREFILL, GUESS), (REPREFILL, &restricted)]
    {
        let kind = [task, &[schedule]].concat();
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        complete(&one, &kind, 4, true, false);
        complete(&other, &kind, 4, true, false);
        assert_same((&one, 4), (&other, 4));
        assert_eq!(metrics_without_clock(&one), metrics_without_clock(&other), "{kind:?}");
        for serial in [true, false] {
            let before = complete(&one, &kind, if serial { 4 } else { 7 }, serial, true);
            let after = complete(&one, &kind, before.updates + 3, serial, true);
            assert_eq!(after.ledger.consumed.trajectories, after.updates * 3 * 4);
        }
    }
}

#[test]
fn a_threaded_synchronous_run_learns_the_same_as_a_serial_one() {
    let dir = tempfile::tempdir().unwrap();
    let [serial, threaded] = ["serial", "threaded"].map(|name| dir.path().join(name));
    complete(&serial, &[], 5, true, false);
    complete(&threaded, &[], 5, false, false);
    let tensors =
        |run: &Path| std::fs::read(run.join("checkpoints/000000000005/parameters.safetensors")).unwrap();
    assert!(tensors(&serial) == tensors(&threaded));
}

#[test]
fn several_generators_learn_the_same_as_one() {
    let two = ["devices={ generation = [\"cpu\", \"cpu\"] }", "generate.engine.max_running=4"];
    let dir = tempfile::tempdir().unwrap();
    let [one, serial, threaded] = ["one", "serial", "threaded"].map(|name| dir.path().join(name));
    complete(&one, &[], 4, true, false);
    complete(&serial, &two, 2, true, false);
    complete(&serial, &two, 4, true, true);
    complete(&threaded, &two, 4, false, false);
    let tensors =
        |run: &Path| std::fs::read(run.join("checkpoints/000000000004/parameters.safetensors")).unwrap();
    assert!(tensors(&one) == tensors(&serial) && tensors(&one) == tensors(&threaded));
}

#[test]
fn the_lag_of_what_is_learned_from_is_the_schedules() {
    for serial in [true, false] {
        for (change, expected) in [
            ("seed=7", vec![0.0; 5]),
            (ONE_STEP, vec![0.0, 1.0, 1.0, 1.0, 1.0]),
            ("learner.forced_lag=3", vec![0.0, 1.0, 2.0, 3.0, 3.0]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            complete(dir.path(), &[change, "telemetry.lines_per_second=100000"], 5, serial, false);
            let lines = metrics(dir.path());
            assert_eq!(figures(&lines, "lag_mean"), expected, "{change}");
        }
    }
}
