//! Every fault has one defined outcome: a restart, a skipped update, patience, or an end that names the cause.

use std::time::Duration;

use forebay::env::{Action, ActionSpace, EnvEntry, EnvError, EnvSpec, Environment, Registry, Step};
use forebay::telemetry::{RunOutcome, Summary};
use forebay::trajectory::{Amount, DropReason};

use crate::support::checkpoints::{contents, state, updates};
use crate::support::process::Scratch;
use crate::support::{metrics, total, train_with};

/// Restarts without waiting, as many as it takes.
const PATIENT: &str = "supervision={ restarts = 1000, backoff_seconds = 0, max_backoff_seconds = 0 }";

fn dropped(summary: &Summary, reason: DropReason) -> Amount {
    summary.ledger.dropped.get(&reason).copied().unwrap_or_default()
}

fn restarts(summary: &Summary) -> u64 {
    summary.restarts.get("rollout").copied().unwrap_or_default()
}

#[test]
fn an_actor_that_panics_now_and_then_is_restarted_and_the_run_completes() {
    let fault = "faults=[{ kind = \"panic\", actor = 1, at = 5, every = 5 }]";
    let scratch = Scratch::new();
    let summary = scratch.complete("serial", &[fault, PATIENT, "stop.updates=60", "--serial"]);
    // Each actor gave 30 unrolls; one in five of those that actor 1 began was lost, at its first step.
    assert_eq!(restarts(&summary), 7);
    assert_eq!(dropped(&summary, DropReason::ActorRestart), Amount { unrolls: 7, steps: 0 });
    assert_eq!(summary.ledger.consumed, Amount { unrolls: 60, steps: 480 });
    assert!(summary.ledger.balances());

    for inference in ["rollout.inference=local", "rollout.inference=central"] {
        let name = inference.replace('=', "-");
        let everyone = "faults=[{ kind = \"panic\", at = 5, every = 5 }, { kind = \"panic\", actor = 1, at = 7, every = 5 }]";
        let summary = scratch.complete(&name, &[everyone, PATIENT, "stop.updates=60", inference]);
        assert!(restarts(&summary) >= 10, "{summary:?}");
        let lost = dropped(&summary, DropReason::ActorRestart);
        // With double-buffering a panic also takes the other lane's partial unroll.
        assert!((restarts(&summary)..=2 * restarts(&summary)).contains(&lost.unrolls), "{summary:?}");
        assert_eq!((summary.ledger.consumed.unrolls, summary.updates), (60, 60));
        assert!(summary.ledger.balances());
    }
}

#[test]
fn a_reward_that_is_not_a_number_costs_the_unroll_and_restarts_the_actor() {
    let fault = "faults=[{ kind = \"nan_reward\", at = 3 }]";
    let scratch = Scratch::new();
    // One actor: of several, the quickest might give all the unrolls before another comes to its third.
    for mode in [&["--serial"][..], &[]] {
        let name = format!("run {}", mode.len());
        let arguments = [fault, PATIENT, "stop.updates=20", "rollout.actors=1"];
        let summary = scratch.complete(&name, &[&arguments, mode].concat());
        assert_eq!(dropped(&summary, DropReason::BadEnv), Amount { unrolls: 1, steps: 0 });
        assert_eq!((restarts(&summary), dropped(&summary, DropReason::ActorRestart).unrolls), (1, 0));
        assert!(summary.ledger.balances());
    }
}

#[test]
fn the_other_lane_of_a_failed_actor_is_lost_in_the_restart() {
    let fault = "faults=[{ kind = \"nan_reward\", at = 4, every = 3 }]";
    let scratch = Scratch::new();
    for mode in [&["--serial"][..], &[]] {
        let name = format!("run {}", mode.len());
        let arguments = [fault, PATIENT, "stop.updates=40", "rollout.inference=central"];
        let summary = scratch.complete(&name, &[&arguments, mode].concat());
        assert_eq!(dropped(&summary, DropReason::BadEnv).unrolls, restarts(&summary));
        assert!(dropped(&summary, DropReason::ActorRestart).unrolls > 0, "{summary:?}");
        // Of two actors with two lanes each, and at most one unroll waiting for each.
        assert!(dropped(&summary, DropReason::Shutdown).unrolls <= 8, "{summary:?}");
        assert!(summary.ledger.balances());
    }
}

#[test]
fn a_gradient_that_is_not_a_number_skips_the_update_and_makes_no_version() {
    let faults = "faults=[{ kind = \"nan_gradient\", at = 3 }, { kind = \"nan_gradient\", at = 4 }]";
    let scratch = Scratch::new();
    for mode in [&["--serial"][..], &[]] {
        let name = format!("run {}", mode.len());
        let summary = scratch.complete(&name, &[&[faults, "stop.updates=6"], mode].concat());
        let run_dir = scratch.path(&name);
        assert_eq!(summary.updates, 6);
        assert_eq!(dropped(&summary, DropReason::NonFinite), Amount { unrolls: 2, steps: 16 });
        assert_eq!(summary.ledger.consumed, Amount { unrolls: 6, steps: 48 });
        assert_eq!(total(&metrics(&run_dir), "skipped_non_finite"), 2.0);
        assert_eq!(state(&run_dir, 6).journal.attempts, 8);
        assert!(summary.ledger.balances());
    }
}

#[test]
fn three_skipped_updates_in_a_row_end_the_run_and_leave_the_last_good_parameters() {
    let fault = "faults=[{ kind = \"nan_gradient\", at = 3, every = 1 }]";
    let scratch = Scratch::new();
    scratch.complete("good", &["stop.updates=2", "--serial"]);
    for mode in [&["--serial"][..], &[]] {
        let name = format!("run {}", mode.len());
        let ended = scratch.train(&name, &[&[fault, "stop.updates=100"], mode].concat());
        let words = "the gradient of torso.0.weight was not finite in 3 updates in a row";
        assert!(ended.error().contains(words), "{}", ended.stderr);
        let summary = scratch.summary(&name);
        assert_eq!((summary.status, summary.updates), (RunOutcome::Failed, 2));
        assert!(summary.cause.contains(words) && summary.ledger.balances());
        assert_eq!(updates(&scratch.path(&name)), [2]);
    }
    let parameters = |name| contents(&scratch.path(name), 2)["parameters.safetensors"].clone();
    assert!(parameters("run 1") == parameters("good"));
}

#[test]
fn a_slow_environment_step_is_waited_for() {
    let fault = "faults=[{ kind = \"delay\", at = 2, seconds = 1.5 }]";
    let scratch = Scratch::new();
    let arguments = [fault, "env.timeout_seconds=10", "rollout.actors=1", "stop.updates=4"];
    let summary = scratch.complete("run", &arguments);
    assert!(summary.restarts.is_empty() && summary.wall_seconds >= 1.5, "{summary:?}");
    assert_eq!(dropped(&summary, DropReason::ActorRestart), Amount::default());
}

#[test]
fn an_environment_that_hangs_ends_the_run_by_its_name() {
    let fault = "faults=[{ kind = \"delay\", actor = 1, at = 2, seconds = 600 }]";
    let scratch = Scratch::new();
    let ended = scratch.train("run", &[fault, "env.timeout_seconds=0.5", "stop.updates=1000000000"]);
    // Actor 1 has the environments 2 and 3.
    assert!(ended.error().contains("rollout 1 has been silent in environment 2 for"), "{}", ended.stderr);
    assert!(ended.error().contains("env.timeout_seconds"), "{}", ended.stderr);
    let summary = scratch.summary("run");
    assert_eq!(summary.status, RunOutcome::Failed);
    assert!(summary.ledger.balances());
    assert_eq!(updates(&scratch.path("run")), [summary.updates]);
}

#[test]
fn an_actor_that_fails_too_often_ends_the_run_by_its_cause() {
    let fault = "faults=[{ kind = \"panic\", actor = 1, at = 3, every = 1 }]";
    let tight = "supervision={ restarts = 2, backoff_seconds = 0.01 }";
    let scratch = Scratch::new();
    for mode in [&["--serial"][..], &[]] {
        let name = format!("run {}", mode.len());
        let ended = scratch.train(&name, &[&[fault, tight, "stop.updates=1000000000"], mode].concat());
        let words =
            "rollout 1 failed more often than supervision allows; last: panicked: injected fault (at = 3)";
        assert!(ended.error().contains(words), "{}", ended.stderr);
        let summary = scratch.summary(&name);
        assert_eq!((summary.status, restarts(&summary)), (RunOutcome::Failed, 2));
        assert_eq!(dropped(&summary, DropReason::ActorRestart).unrolls, 3);
        assert!(summary.ledger.balances());
        assert_eq!(updates(&scratch.path(&name)), [summary.updates]);
    }
}

#[test]
fn a_slow_learner_blocks_its_producers_and_the_queue_stays_within_its_capacity() {
    let fault = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.05 }]";
    let scratch = Scratch::new();
    let summary = scratch.complete(
        "run",
        &[fault, "rollout.actors=3", "queue.capacity=2", "stop.updates=8", "telemetry.lines_per_second=1000"],
    );
    let lines = metrics(&scratch.path("run"));
    assert!(total(&lines, "blocked_seconds") > 0.1, "{lines:?}");
    assert!(lines.iter().all(|line| line["queue_depth"].as_f64().unwrap() <= 2.0), "{lines:?}");
    assert_eq!(summary.ledger.consumed, Amount { unrolls: 8, steps: 64 });
    // Two in the queue, and of each actor one that waits and one that it may have begun.
    assert!(dropped(&summary, DropReason::Shutdown).unrolls <= 8, "{summary:?}");
    assert!(summary.ledger.balances());
}

#[test]
fn frequent_checkpoints_make_no_room_in_the_queue() {
    let fault = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.02 }]";
    let scratch = Scratch::new();
    let often = ["queue.capacity=4", "checkpoint.every=1", "checkpoint.keep=20", "stop.updates=10"];
    let summary = scratch.complete("run", &[&[fault, "rollout.actors=2"], &often[..]].concat());
    for update in updates(&scratch.path("run")) {
        let state = state(&scratch.path("run"), update);
        assert!(state.queue.len() <= 4, "{} unrolls at update {update}", state.queue.len());
        // Four in the queue, and one in the hand of each of two actors.
        assert!(state.ledger.buffered.unrolls <= 6, "{:?} at update {update}", state.ledger);
    }
    assert!(summary.ledger.balances());
}

/// An environment with a fault of its own.
struct Broken {
    spec: EnvSpec,
    fault: Fault,
    steps: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Every step takes this long, milliseconds.
    Slow(u64),
    /// It shows three values instead of two.
    Shape,
    /// It shows a value that is not a number, from the second step on.
    NotANumber,
    /// It cannot start.
    Reset,
    /// An episode never gets past its 20th step, which only an evaluation reaches.
    Late,
}

impl Environment for Broken {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _: u64) -> Result<(), EnvError> {
        self.steps = 0;
        match self.fault {
            Fault::Reset => Err(EnvError::Failed { env: self.spec.name.clone(), why: "no room".into() }),
            _ => Ok(()),
        }
    }

    fn step(&mut self, _: Action<'_>) -> Result<Step, EnvError> {
        self.steps += 1;
        match self.fault {
            Fault::Slow(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
            Fault::Late if self.steps > 20 => {
                return Err(EnvError::Failed { env: self.spec.name.clone(), why: "worn out".into() });
            }
            _ => {}
        }
        Ok(Step { reward: 1.0, terminated: self.steps >= 30, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        let value = if self.fault == Fault::NotANumber && self.steps > 1 { f32::NAN } else { 0.5 };
        out.extend([0.0, value]);
        if self.fault == Fault::Shape {
            out.push(0.0);
        }
    }
}

fn train_broken(fault: Fault, changes: &[&str]) -> Summary {
    let mut registry = Registry::new();
    registry.register(EnvEntry::new("Broken", "has a fault", move |_| {
        let spec = EnvSpec {
            name: "Broken".into(),
            observation_shape: vec![2],
            action_space: ActionSpace::Discrete { n: 2 },
            masks_actions: false,
        };
        Ok(Box::new(Broken { spec, fault, steps: 0 }))
    }));
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let few = "supervision={ restarts = 1, backoff_seconds = 0 }";
    let summary = train_with(registry, &run_dir, &[&["env.name=Broken", few], changes].concat()).unwrap();
    assert_eq!(Summary::read(&run_dir).unwrap(), summary);
    assert!(summary.ledger.balances());
    summary
}

#[test]
fn many_calls_that_each_are_in_time_are_not_taken_for_one_that_hangs() {
    let rollout = "rollout={ actors = 1, envs_per_actor = 6, unroll_length = 1 }";
    let summary = train_broken(Fault::Slow(200), &[rollout, "env.timeout_seconds=0.6", "stop.updates=2"]);
    assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
}

#[test]
fn an_environment_that_breaks_its_contract_ends_the_run_by_its_name() {
    for (fault, words) in [
        (
            Fault::Shape,
            "environment `Broken` broke its contract in observe: it has 3 values, the shape says 2",
        ),
        (
            Fault::NotANumber,
            "environment `Broken` broke its contract in observe: value 1 is NaN, which is not finite",
        ),
        (Fault::Reset, "environment `Broken` failed: no room"),
    ] {
        let summary = train_broken(fault, &["stop.updates=5"]);
        assert_eq!((summary.status, summary.updates), (RunOutcome::Failed, 0), "{fault:?}");
        assert!(summary.cause.contains(words), "{}", summary.cause);
        assert!(restarts(&summary) >= 1);
    }
}

#[test]
fn an_evaluation_that_fails_at_the_end_is_a_failure_with_a_summary() {
    let summary = train_broken(Fault::Late, &["stop.updates=4", "evaluation.final_episodes=2"]);
    assert_eq!((summary.status, summary.updates), (RunOutcome::Failed, 4));
    let words = "evaluation of the final parameters: environment `Broken` failed: worn out";
    assert_eq!(summary.cause, words);
}
