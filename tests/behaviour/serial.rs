//! A serial run is a function of its configuration: repeated, stopped and resumed, killed and resumed, or looked at
//! by extra checkpoints, it writes the same bytes.

use crate::support::checkpoints::{assert_same, state, updates};
use crate::support::metrics_without_clock;
use crate::support::process::Scratch;

/// Updates of a whole run.
const WHOLE: u64 = 9;

/// Ways to run serially, in some of which a round of the actors is good for several updates or for part of one.
const WAYS: [(&str, &[&str]); 4] = [
    ("local", &["policy.normalize_observations=true"]),
    (
        "local, recurrent, PPO",
        &[
            "env.name=TMaze",
            "rollout.actors=3",
            "learner.batch_unrolls=2",
            "policy={ core = { kind = \"lstm\", size = 8 }, last_action = true, last_reward = true }",
            "learner.objective={ kind = \"ppo\", epochs = 2, minibatches = 2 }",
            "learner.normalize_rewards=true",
        ],
    ),
    ("central", &["rollout.inference=central", "rollout.double_buffer=false", "rollout.actors=3"]),
    ("central, double-buffered", &["rollout.inference=central", "learner.batch_unrolls=3"]),
];

/// A serial run of this many updates.
fn run(scratch: &Scratch, name: &str, way: &[&str], updates: u64, more: &[&str]) {
    let stop = format!("stop.updates={updates}");
    let summary = scratch.complete(name, &[way, &["seed=5", &stop, "--serial"], more].concat());
    assert_eq!(summary.updates, updates);
}

/// Fails unless two runs ended alike: last checkpoint, metrics and summary.
fn assert_same_end(scratch: &Scratch, one: &str, other: &str) {
    let (one_dir, other_dir) = (scratch.path(one), scratch.path(other));
    assert_same((&one_dir, WHOLE), (&other_dir, WHOLE));
    assert_eq!(metrics_without_clock(&one_dir), metrics_without_clock(&other_dir));
    let (one, other) = (scratch.summary(one), scratch.summary(other));
    assert_eq!((one.ledger, one.return_mean, one.lag_max), (other.ledger, other.return_mean, other.lag_max));
}

#[test]
fn two_runs_write_the_same_bytes() {
    for (name, way) in WAYS {
        let scratch = Scratch::new();
        let (one, other) = (scratch.path("one"), scratch.path("other"));
        run(&scratch, "one", way, WHOLE, &["checkpoint.every=2"]);
        run(&scratch, "other", way, WHOLE, &["checkpoint.every=2"]);
        assert_eq!(updates(&one), [2, 4, 6, 8, 9], "{name}");
        for update in updates(&one) {
            assert_same((&one, update), (&other, update));
        }
        assert_same_end(&scratch, "one", "other");
    }
}

#[test]
fn another_seed_writes_other_bytes() {
    let scratch = Scratch::new();
    run(&scratch, "one", &[], WHOLE, &[]);
    run(&scratch, "other", &[], WHOLE, &["seed=6"]);
    let (one, other) = (state(&scratch.path("one"), WHOLE), state(&scratch.path("other"), WHOLE));
    assert_ne!(one, other);
}

#[test]
fn every_actor_is_learned_from_although_the_queue_is_smaller_than_their_number() {
    let scratch = Scratch::new();
    run(&scratch, "run", &["rollout.actors=4", "queue.capacity=1"], 20, &[]);
    let state = state(&scratch.path("run"), 20);
    let produced = state.rollouts.iter().map(|rollout| rollout.as_ref().unwrap().lanes[0].unroll.id.sequence);
    assert_eq!(produced.collect::<Vec<_>>(), [5; 4]);
}

#[test]
fn extra_checkpoints_change_nothing() {
    for (_, way) in WAYS {
        let scratch = Scratch::new();
        run(&scratch, "looked at", way, WHOLE, &["checkpoint.every=1"]);
        run(&scratch, "left alone", way, WHOLE, &[]);
        assert_same_end(&scratch, "looked at", "left alone");
    }
}

#[test]
fn a_run_stopped_after_any_update_and_resumed_equals_one_that_was_not() {
    for (_, way) in WAYS {
        let scratch = Scratch::new();
        run(&scratch, "whole", way, WHOLE, &[]);
        for stop in 1..WHOLE {
            let name = format!("stopped at {stop}");
            run(&scratch, &name, way, stop, &[]);
            run(&scratch, &name, way, WHOLE, &["--resume"]);
            assert_same_end(&scratch, "whole", &name);
        }
    }
}

#[test]
fn a_run_killed_after_any_update_and_resumed_equals_one_that_was_not() {
    for (_, way) in [WAYS[1], WAYS[3]] {
        let scratch = Scratch::new();
        let every_line = ["telemetry.serial_updates_per_line=1", "checkpoint.every=2"];
        run(&scratch, "whole", way, WHOLE, &every_line);
        for last in [2, 3, 5, 6] {
            let name = format!("killed after {last}");
            // The next update never comes, so the kill falls after `last`, which may lie behind the checkpoint.
            let fault = format!("faults=[{{ kind = \"slow_update\", at = {}, seconds = 600 }}]", last + 1);
            let stop = format!("stop.updates={WHOLE}");
            let arguments = ["seed=5", &stop, "--serial", &fault];
            let mut running = scratch.start(&name, &[way, &arguments, &every_line].concat());
            running.wait_for_metrics(last);
            running.wait_for_checkpoint(last as u64 / 2 * 2);
            running.signal(libc::SIGKILL);
            assert_eq!(running.wait().code, None);
            assert_eq!(updates(&scratch.path(&name)).last(), Some(&(last as u64 / 2 * 2)));

            run(&scratch, &name, way, WHOLE, &[&["--resume"], every_line.as_slice()].concat());
            assert_same_end(&scratch, "whole", &name);
        }
    }
}

#[test]
fn a_run_interrupted_by_a_signal_and_resumed_equals_one_that_was_not() {
    for (_, way) in WAYS {
        let scratch = Scratch::new();
        run(&scratch, "whole", way, WHOLE, &[]);
        let fault = "faults=[{ kind = \"slow_update\", at = 5, seconds = 0.3 }]";
        let stop = format!("stop.updates={WHOLE}");
        let arguments = ["seed=5", &stop, "--serial", fault, "checkpoint.every=1"];
        let mut running = scratch.start("interrupted", &[way, &arguments].concat());
        running.wait_for_checkpoint(4);
        running.signal(libc::SIGTERM);
        running.wait().success();
        run(&scratch, "interrupted", way, WHOLE, &["--resume"]);
        assert_same_end(&scratch, "whole", "interrupted");
    }
}
