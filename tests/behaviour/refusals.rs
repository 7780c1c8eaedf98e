//! Bad input gives one clear message, an exit code of 1, and leaves nothing behind.

use std::fs;
use std::net::TcpListener;

use crate::support::process::Scratch;

/// Fails unless `arguments` are refused with all these words and without a run directory.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let scratch = Scratch::new();
    let ended = scratch.train("run", arguments);
    for word in words {
        assert!(ended.error().contains(word), "{arguments:?}: `{word}` is not in: {}", ended.stderr);
    }
    assert!(!scratch.path("run").exists(), "{arguments:?} left a run directory");
    assert_eq!(ended.stdout, "");
}

#[test]
fn an_unknown_field_is_named_with_the_nearest() {
    assert_refused(&["learner.discont=0.9"], &["unknown field `learner.discont`", "`discount`"]);
    assert_refused(&["rolout.actors=2"], &["unknown field `rolout`", "`rollout`"]);
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_what_was_expected() {
    assert_refused(&["rollout.actors=two"], &["wrong value of `rollout.actors`", "integer", "\"two\""]);
    assert_refused(
        &["rollout.inference=remote"],
        &["unknown value `remote` of `rollout.inference`", "`local`"],
    );
    assert_refused(&["telemetry.listen=9464"], &["telemetry.listen"]);
}

#[test]
fn impossible_values_are_named_with_all_fields_concerned() {
    let cases: [(&str, &[&str]); 16] = [
        ("rollout.actors=0", &["`rollout.actors`", "must be at least 1"]),
        ("rollout.unroll_length=0", &["`rollout.unroll_length`", "must be at least 1"]),
        ("learner.objective={ kind = \"vtrace\", rho_bar = 0.5, c_bar = 1.0 }", &["rho_bar", "c_bar"]),
        (
            "learner.objective={ kind = \"ppo\", minibatches = 100 }",
            &["`learner.objective.minibatches`", "columns"],
        ),
        ("learner.optimizer={ kind = \"adamw\", beta1 = 1.5 }", &["`learner.optimizer`", "beta1"]),
        ("learner.discount=1.5", &["`learner.discount`", "between 0 and 1"]),
        ("learner.schedule.learning_rate=-1", &["learner.schedule.learning_rate"]),
        ("checkpoint.every_seconds=-1", &["checkpoint.every_seconds"]),
        ("queue.capacity=0", &["`queue.capacity`", "`learner.batch_unrolls`"]),
        ("faults=[{ kind = \"panic\", actor = 7, at = 1 }]", &["`faults.actor`", "no such actor"]),
        (
            "policy.torso={ kind = \"conv\", channels = 4, hidden = 8 }",
            &["`policy.torso`", "`env.name`", "[4]"],
        ),
        ("devices.learner=gpu", &["unknown device `gpu`", "`cuda:0`"]),
        ("policy.torso.hidden=[8, 0]", &["`policy.torso`", "must be at least 1"]),
        ("policy.core={ kind = \"lstm\", size = 0 }", &["`policy.core.size`", "must be at least 1"]),
        ("env.timeout_seconds=1e300", &["`env.timeout_seconds`", "a billion seconds"]),
        ("learner.objective={ kind = \"vtrace\", lambda = 2.0 }", &["`learner.objective.lambda`"]),
    ];
    for (change, words) in cases {
        assert_refused(&["stop.updates=2", change], words);
    }
}

#[test]
fn a_run_that_would_never_end_is_refused() {
    assert_refused(&[], &["`stop`", "the run would never end"]);
}

#[test]
fn an_unknown_environment_is_answered_with_the_nearest() {
    assert_refused(
        &["stop.updates=2", "env.name=cartpole"],
        &["unknown environment `cartpole`", "did you mean `CartPole-v1`?", "--set env.name=cartpole"],
    );
    assert_refused(
        &["stop.updates=2", "env.name=TMaze", "env.options={ lenght = 3 }"],
        &["options of environment `TMaze`", "`lenght`"],
    );
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_named() {
    let scratch = Scratch::new();
    fs::write(scratch.path("run.toml"), "seed = 1\nseed = 2\n").unwrap();
    let ended = scratch.train("run", &[]);
    assert!(ended.error().contains("run.toml:2:1: not valid TOML"), "{}", ended.stderr);
    fs::remove_file(scratch.path("run.toml")).unwrap();
    let ended = scratch.train("run", &[]);
    assert!(ended.error().contains("cannot read the configuration"), "{}", ended.stderr);
    assert!(!scratch.path("run").exists());
}

#[test]
fn a_port_in_use_is_named_when_the_user_set_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listen = format!("telemetry.listen=\"{address}\"");
    assert_refused(
        &["stop.updates=2", &listen],
        &[&format!("cannot serve metrics at telemetry.listen = \"{address}\"")],
    );
}

#[test]
fn a_run_directory_that_cannot_be_written_is_named() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file"), "in the way").unwrap();
    for name in ["file/run", "file"] {
        let ended = scratch.train(name, &["stop.updates=2"]);
        assert!(ended.error().contains("cannot write") && ended.error().contains(name), "{}", ended.stderr);
    }
    assert_eq!(fs::read_to_string(scratch.path("file")).unwrap(), "in the way");
}

#[test]
fn a_run_directory_with_something_in_it_is_refused_without_resume() {
    let scratch = Scratch::new();
    scratch.complete("run", &["stop.updates=2"]);
    let before = fs::read(scratch.path("run/summary.json")).unwrap();
    let ended = scratch.train("run", &["stop.updates=4"]);
    assert!(ended.error().contains("is not empty") && ended.error().contains("--resume"), "{}", ended.stderr);
    assert_eq!(fs::read(scratch.path("run/summary.json")).unwrap(), before);
}

#[test]
fn a_run_directory_in_use_is_refused() {
    let scratch = Scratch::new();
    let mut running =
        scratch.start("run", &["stop.updates=1000000000", "checkpoint={ every = 2, keep = 1 }"]);
    running.wait_for_checkpoint(2);
    let ended = scratch.train("run", &["stop.updates=4", "--resume"]);
    assert!(ended.error().contains("is in use by another process"), "{}", ended.stderr);
    running.signal(libc::SIGTERM);
    running.wait().success();
}
