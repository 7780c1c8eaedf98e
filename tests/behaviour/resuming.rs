//! What `--resume` finds: a killed run, a completed one, no checkpoint, damaged ones, and those of another network.

use std::fs;

use forebay::telemetry::RunOutcome;
use forebay::trajectory::{Amount, LedgerSnapshot};

use crate::support::checkpoints::{assert_same, contents, folder, state, updates};
use crate::support::process::Scratch;

fn assert_closed(ledger: &LedgerSnapshot) {
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.live, ledger.buffered), (Amount::default(), Amount::default()));
}

#[test]
fn a_checkpoint_of_a_threaded_run_holds_all_that_its_ledger_calls_live_or_buffered() {
    for inference in ["local", "central"] {
        let scratch = Scratch::new();
        let inference = format!("rollout.inference={inference}");
        let arguments =
            ["rollout.actors=3", "queue.capacity=5", "checkpoint.every=4", "stop.updates=40", &inference];
        scratch.complete("run", &arguments);
        let run_dir = scratch.path("run");
        for update in updates(&run_dir) {
            let state = state(&run_dir, update);
            let rollouts = || state.rollouts.iter().map(|rollout| rollout.as_ref().unwrap());
            let live = rollouts().flat_map(|rollout| &rollout.lanes).filter_map(|lane| lane.live_steps);
            let live = live.fold(Amount::default(), |sum, steps| Amount {
                unrolls: sum.unrolls + 1,
                steps: sum.steps + steps,
            });
            let buffered = state.queue.iter().chain(rollouts().flat_map(|rollout| &rollout.outbox));
            let buffered = buffered.fold(Amount::default(), |sum, unroll| Amount {
                unrolls: sum.unrolls + 1,
                steps: sum.steps + unroll.env_steps(),
            });
            assert!(state.ledger.balances());
            assert_eq!((state.ledger.live, state.ledger.buffered), (live, buffered), "update {update}");
            assert_eq!(state.ledger.consumed.unrolls, update);
        }
    }
}

#[test]
fn a_killed_threaded_run_goes_on_from_its_last_checkpoint_and_loses_nothing() {
    // With double-buffering an unroll has half of the actor's environments.
    for (inference, steps) in [("local", 8), ("central", 4)] {
        let scratch = Scratch::new();
        let inference = format!("rollout.inference={inference}");
        let never = "faults=[{ kind = \"slow_update\", at = 14, seconds = 600 }]";
        let arguments = ["rollout.actors=3", "checkpoint.every=6", "stop.updates=30", &inference];
        let mut running = scratch.start("run", &[&arguments, [never].as_slice()].concat());
        running.wait_for_checkpoint(12);
        running.signal(libc::SIGKILL);
        assert_eq!(running.wait().code, None);
        let saved = state(&scratch.path("run"), 12).ledger;

        let summary = scratch.complete("run", &[&arguments, ["--resume"].as_slice()].concat());
        assert_eq!((summary.status, summary.updates), (RunOutcome::Completed, 30));
        assert_closed(&summary.ledger);
        assert_eq!(summary.ledger.consumed, Amount { unrolls: 30, steps: 30 * steps });
        assert!(summary.ledger.submitted.steps > saved.submitted.steps);
        assert!(saved.dropped.is_empty() && summary.ledger.dropped.len() <= 1, "{:?}", summary.ledger);
    }
}

#[test]
fn a_completed_run_is_left_as_it_is() {
    let scratch = Scratch::new();
    let first = scratch.complete("run", &["stop.updates=3"]);
    let config = fs::read_to_string(scratch.path("run/config.toml")).unwrap();
    let ended = scratch.train("run", &["stop.updates=3", "learner.discount=0.5", "--resume"]).success();
    assert!(ended.stderr.contains("is complete already; nothing to do"), "{}", ended.stderr);
    assert_eq!(scratch.summary("run"), first);
    assert_eq!(fs::read_to_string(scratch.path("run/config.toml")).unwrap(), config);
}

#[test]
fn a_completed_run_goes_on_when_its_limit_is_raised() {
    let scratch = Scratch::new();
    scratch.complete("run", &["stop.updates=3"]);
    let summary = scratch.complete("run", &["stop.updates=5", "--resume"]);
    assert_eq!(summary.updates, 5);
    assert_closed(&summary.ledger);
}

#[test]
fn without_a_checkpoint_a_run_starts_anew_and_says_so() {
    let scratch = Scratch::new();
    for name in ["missing", "empty"] {
        if name == "empty" {
            fs::create_dir(scratch.path(name)).unwrap();
        }
        let ended = scratch.train(name, &["stop.updates=3", "--resume"]).success();
        assert!(ended.stderr.contains("no checkpoint in") && ended.stderr.contains("starting anew"));
        assert_eq!(scratch.summary(name).updates, 3);
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_warning() {
    let damage: [fn(&mut Vec<u8>); 3] =
        [|bytes| bytes.truncate(bytes.len() / 2), |bytes| bytes[40] ^= 1, Vec::clear];
    for (case, damage) in damage.into_iter().enumerate() {
        for file in ["state.bin", "parameters.safetensors", "optimizer.safetensors", "manifest.json"] {
            let scratch = Scratch::new();
            let arguments = ["stop.updates=6", "checkpoint.every=2", "--serial"];
            scratch.complete("whole", &arguments);
            scratch.complete("run", &["stop.updates=4", "checkpoint.every=2", "--serial"]);
            let path = folder(&scratch.path("run"), 4).join(file);
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();

            let ended = scratch.train("run", &[&arguments, ["--resume"].as_slice()].concat()).success();
            let warned = ended.stderr.contains("WARN") && ended.stderr.contains(file);
            assert!(warned && ended.stderr.contains("is not used"), "{file}, {case}: {}", ended.stderr);
            assert_same((&scratch.path("whole"), 6), (&scratch.path("run"), 6));
        }
    }
}

#[test]
fn when_no_checkpoint_is_whole_the_run_is_refused_and_nothing_is_overwritten() {
    let scratch = Scratch::new();
    scratch.complete("run", &["stop.updates=4", "checkpoint.every=2"]);
    let run_dir = scratch.path("run");
    for update in updates(&run_dir) {
        fs::write(folder(&run_dir, update).join("state.bin"), "torn").unwrap();
    }
    let kept =
        || (contents(&run_dir, 2), contents(&run_dir, 4), fs::read(run_dir.join("metrics.jsonl")).unwrap());
    let before = kept();
    let ended = scratch.train("run", &["stop.updates=6", "--resume"]);
    assert!(ended.error().contains("none of the 2 checkpoints in"), "{}", ended.stderr);
    assert!(ended.error().contains("train without --resume"), "{}", ended.stderr);
    assert!(before == kept());
}

#[test]
fn a_checkpoint_of_another_network_or_layout_is_refused_and_nothing_is_overwritten() {
    let scratch = Scratch::new();
    scratch.complete("run", &["stop.updates=4"]);
    let config = fs::read_to_string(scratch.path("run/config.toml")).unwrap();
    for (change, words) in [
        (
            "policy.torso.hidden=[16]",
            "parameter `torso.0.weight` has shape [8, 4], this architecture needs [16, 4]",
        ),
        (
            "policy.torso.hidden=[8, 8]",
            "parameter `torso.1.weight` is missing: the file is of another architecture",
        ),
        ("policy.core={ kind = \"lstm\", size = 4 }", "the file is of another architecture"),
        ("learner.optimizer={ kind = \"adamw\" }", "train without --resume"),
        ("rollout.actors=3", "rollout.actors = 2, not 3"),
        ("rollout.envs_per_actor=4", "rollout.envs_per_actor = 2, not 4"),
        ("rollout.unroll_length=5", "rollout.unroll_length = 4, not 5"),
        (
            "rollout.inference=central",
            "lanes for each actor (rollout.inference, rollout.double_buffer) = 1, not 2",
        ),
    ] {
        let ended = scratch.train("run", &["stop.updates=6", "--resume", change]);
        assert!(ended.error().contains(words), "{change}: {}", ended.stderr);
        assert_eq!(fs::read_to_string(scratch.path("run/config.toml")).unwrap(), config, "{change}");
        assert_eq!(updates(&scratch.path("run")), [4]);
    }
    assert_eq!(scratch.complete("run", &["stop.updates=6", "--resume"]).updates, 6);
}
