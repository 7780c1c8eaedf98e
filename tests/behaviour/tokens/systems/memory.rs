//! Memory of the KV cache that is given back while the learner learns: it is gone then, and nothing else is.

use std::net::TcpListener;

use super::super::{ONE_STEP, REPREFILL};
use super::{SETTINGS, SYSTEMS, complete, preset, read};
use crate::support::checkpoints::assert_same;
use crate::support::metrics_without_clock;
use crate::support::process::Scratch;

const GIVES_BACK: &str = "generate.release_memory=true";

/// Those in which generation and learning take turns, with what cuts into answers.
const TURNS: [(&str, &str); 6] = [
    ("sync", "seed=1"),
    ("kimi_k1_5", "schedule.round_end.tokens=2"),
    ("april", "seed=1"),
    ("deepseek_v4_1", "seed=1"),
    ("mimo_v2_6", "seed=1"),
    ("kimi_k3", "seed=1"),
];

#[test]
fn a_serial_run_that_gives_memory_back_while_it_learns_writes_the_same_bytes() {
    for (name, cuts) in TURNS {
        // Several generators, of which one is always the last to hear that the learner has its turn.
        for generators in ["devices.generation=[\"cpu\"]", "devices.generation=[\"cpu\", \"cpu\", \"cpu\"]"] {
            let dir = tempfile::tempdir().unwrap();
            let [without, with] = ["without", "with"].map(|name| dir.path().join(name));
            let changes = [cuts, generators, "stop.updates=5", "checkpoint.every=2"];
            let one = complete(preset(name, &changes), &without, true, false);
            let changes = [&changes[..], &[GIVES_BACK]].concat();
            let other = complete(preset(name, &changes), &with, true, false);
            assert_same((&without, 5), (&with, 5));
            assert_eq!(metrics_without_clock(&without), metrics_without_clock(&with), "{name}");
            assert_eq!(one.ledger, other.ledger, "{name}");
        }
    }
}

#[test]
fn every_preset_that_takes_turns_gives_memory_back_also_when_generators_fail() {
    let faults = [
        GIVES_BACK,
        "devices.generation=[\"cpu\", \"cpu\"]",
        "faults=[{ kind = \"panic\", at = 3, every = 20 }, { kind = \"panic\", actor = 1, at = 2, every = 20 }]",
        "supervision={ restarts = 1000, backoff_seconds = 0.001, max_backoff_seconds = 0.001 }",
        "stop.updates=3",
    ];
    for (name, cuts) in TURNS {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let summary = complete(preset(name, &[&faults[..], &[cuts]].concat()), dir.path(), serial, false);
            assert!(summary.restarts["generator"] >= 1, "{name}");
        }
    }
}

#[test]
fn memory_that_is_given_back_is_gone_while_an_update_is_computed() {
    for serial in [true, false] {
        for gives_back in [true, false] {
            let scratch = Scratch::new();
            std::fs::write(scratch.path("run.toml"), SETTINGS).unwrap();
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let [listen, gives] =
                [format!("telemetry.listen=\"{address}\""), format!("generate.release_memory={gives_back}")];
            let mut arguments = vec![
                "stop.updates=2",
                "devices.generation=[\"cpu\", \"cpu\"]",
                // The update never ends.
                "faults=[{ kind = \"slow_update\", at = 1, seconds = 600 }]",
                &listen,
                &gives,
            ];
            arguments.extend(serial.then_some("--serial"));
            let mut running = scratch.start("run", &arguments);
            running.wait_for_metric(&address, "forebay_trajectories_total", |graded| graded == 12.0);
            // From here on nothing is generated.
            let wanted = |bytes: f64| (bytes == 0.0) == gives_back;
            running.wait_for_metric(&address, "forebay_kv_cache_bytes", wanted);
        }
    }
}

#[test]
fn giving_memory_back_is_refused_where_generation_goes_on_beside_learning_naming_both() {
    for system in SYSTEMS.iter().filter(|system| !TURNS.iter().any(|(name, _)| name == *system)) {
        let own = format!("system=\"{system}\"");
        let plain =
            ["learner.loss={ objective = { kind = \"grpo\" } }", "learner.advantage={ kind = \"grpo\" }"];
        let why = read(SETTINGS, &[&own, plain[0], plain[1], GIVES_BACK, "stop.updates=1"]).unwrap_err();
        assert!(why.contains("`generate.release_memory`, `schedule.layout`"), "{system}: {why}");
    }
    for (change, field) in [
        (ONE_STEP, "schedule.kind"),
        (REPREFILL, "schedule.kind"),
        ("learner.forced_lag=2", "learner.forced_lag"),
    ] {
        let why = read(SETTINGS, &[change, GIVES_BACK, "stop.updates=1"]).unwrap_err();
        assert!(why.contains(&format!("`generate.release_memory`, `{field}`")), "{change}: {why}");
    }
}
