//! SIGINT and SIGTERM end a run well, a second signal ends it at once.

use std::time::{Duration, Instant};

use forebay::telemetry::RunOutcome;
use forebay::trajectory::Amount;

use crate::support::checkpoints::{state, updates};
use crate::support::process::{Running, Scratch};

/// A run that does not end by itself.
const ENDLESS: &str = "stop.updates=1000000000";

/// Waits for the end of a run that was interrupted by `signal`; returns its standard error.
fn assert_interrupted(scratch: &Scratch, running: Running, signal: &str) -> String {
    let ended = running.wait().success();
    let summary = scratch.summary("run");
    assert_eq!((summary.status, summary.cause), (RunOutcome::Interrupted, format!("stopped by {signal}")));
    assert_eq!((summary.ledger.live, summary.ledger.buffered), (Amount::default(), Amount::default()));
    assert!(summary.ledger.balances(), "{:?}", summary.ledger);
    assert_eq!(updates(&scratch.path("run")).last(), Some(&summary.updates));
    assert!(
        ended.stderr.contains(&format!("{signal}: saving a checkpoint and stopping")),
        "{}",
        ended.stderr
    );
    ended.stderr
}

#[test]
fn a_signal_in_the_middle_of_training_saves_a_checkpoint_and_ends_the_run_well() {
    let signals = [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM")];
    for (signal, name) in signals {
        for mode in ["rollout.inference=local", "rollout.inference=central", "--serial"] {
            let scratch = Scratch::new();
            let mut running = scratch.start("run", &[ENDLESS, "checkpoint={ every = 10, keep = 2 }", mode]);
            running.wait_for_checkpoint(10);
            running.signal(signal);
            assert_interrupted(&scratch, running, name);
        }
    }
}

#[test]
fn a_signal_during_a_slow_update_lets_it_finish() {
    for mode in [&["--serial"][..], &[]] {
        let scratch = Scratch::new();
        let slow = "faults=[{ kind = \"slow_update\", at = 5, seconds = 1 }]";
        let mut running = scratch.start("run", &[&[ENDLESS, slow, "checkpoint.every=1"], mode].concat());
        running.wait_for_checkpoint(4);
        running.signal(libc::SIGINT);
        assert_interrupted(&scratch, running, "SIGINT");
        assert!(scratch.summary("run").updates <= 5);
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let scratch = Scratch::new();
    let never = "faults=[{ kind = \"slow_update\", at = 5, seconds = 600 }]";
    let mut running = scratch.start("run", &[ENDLESS, never, "checkpoint.every=1"]);
    running.wait_for_checkpoint(4);
    running.signal(libc::SIGINT);
    running.wait_for_words("a second signal exits at once");
    running.signal(libc::SIGTERM);
    assert_eq!(running.wait().code, Some(130));
    let summary = scratch.train("run", &["stop.updates=8", "--resume"]).success();
    assert!(summary.stdout.starts_with("completed"), "{}", summary.stdout);
}

#[test]
fn an_actor_that_hangs_in_its_environment_is_left_behind() {
    let scratch = Scratch::new();
    let never = "faults=[{ kind = \"delay\", actor = 1, at = 3, seconds = 600 }]";
    let mut running = scratch.start("run", &[ENDLESS, never, "checkpoint={ every = 20, keep = 1 }"]);
    // The cut for this checkpoint waited for the actor in vain.
    running.wait_for_checkpoint(20);
    let since = Instant::now();
    running.signal(libc::SIGINT);
    let stderr = assert_interrupted(&scratch, running, "SIGINT");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert!(stderr.contains("1 thread(s) were left behind inside an environment"), "{stderr}");
    let summary = scratch.summary("run");
    let saved = state(&scratch.path("run"), summary.updates);
    assert!(saved.rollouts[0].is_some() && saved.rollouts[1].is_none());
    let resumed = format!("stop.updates={}", summary.updates + 4);
    let resumed = scratch.complete("run", &[&resumed, "--resume"]);
    assert!(resumed.ledger.balances());
}

#[test]
fn a_signal_during_the_final_evaluation_abandons_only_that() {
    let scratch = Scratch::new();
    let mut running = scratch.start("run", &["stop.updates=3", "evaluation.final_episodes=100000000"]);
    running.wait_for_checkpoint(3);
    running.signal(libc::SIGINT);
    running.wait().success();
    let summary = scratch.summary("run");
    assert_eq!((summary.updates, summary.eval_mean), (3, None));
}
