//! Published systems in real runs: each preset as users find it, made small; each schedule with objectives that are not
//! its own; and what the systems promise of rounds, budgets and batches.

mod killed;
mod memory;
mod turns;

use std::path::{Path, PathBuf};

use forebay::actors::token::plane::SeatSnapshot;
use forebay::actors::token::train_tokens;
use forebay::actors::{TrainError, TrainOptions};
use forebay::config::{Override, RunConfig, Source, TokenConfig};
use forebay::env::task::TaskRegistry;
use forebay::telemetry::{RunOutcome, TokenSummary};
use forebay::trajectory::{TokenFate, Trajectory};

use serde_json::json;

use super::{EXPERTS, SETTINGS, assert_books, figures};
use crate::support::checkpoints::{assert_same, token_state, updates};
use crate::support::{metrics, metrics_without_clock, total};

/// Those of `configs/systems` that are token runs.
const SYSTEMS: [&str; 9] =
    ["sync", "one_step", "kimi_k1_5", "april", "areal", "deepseek_v4_1", "glm_sao", "mimo_v2_6", "kimi_k3"];

/// What makes a preset small. Its schedule, objective and advantage stay.
const SMALL: &[&str] = &[
    "model.decoder.width=16",
    "model.decoder.layers=1",
    "model.decoder.heads=2",
    "model.decoder.kv_heads=1",
    "model.decoder.head_size=8",
    "generate.threads=1",
    "generate.engine.max_running=7",
    "generate.engine.cache_tokens=1024",
    "warmup.updates=2",
    "warmup.batch=5",
    "learner.prompts=3",
    "learner.threads=1",
    "learner.microbatch_tokens=64",
    "evaluation={ final_problems = 0 }",
    "telemetry={ listen = \"off\", progress = \"off\", tensorboard = false, serial_updates_per_line = 1, lines_per_second = 100000 }",
    "checkpoint={ every_seconds = 0, keep = 100 }",
    "stop={ updates = 2 }",
];

fn read(text: &str, changes: &[&str]) -> Result<TokenConfig, String> {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let source = Source::parse(text, "preset.toml", &overrides).map_err(|error| error.to_string())?;
    match RunConfig::read(&source).map_err(|error| error.to_string())? {
        RunConfig::Token(config) => {
            config.check(&TaskRegistry::builtin()).map_err(|error| error.to_string())?;
            Ok(*config)
        }
        RunConfig::Control(_) => Err("a control run".into()),
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/systems").join(format!("{name}.toml"))
}

/// What makes this preset small, and what a test changes.
fn small<'a>(name: &str, changes: &[&'a str]) -> Vec<&'a str> {
    let group = match name {
        "glm_sao" => "learner.group_size=1",
        "one_step" => "learner.group_size=2",
        _ => "learner.group_size=4",
    };
    let quotas = "schedule.sources=[{ name = \"short\", quota = 2 }, { name = \"long\", quota = 1 }]";
    let quotas: &[&str] = if name == "mimo_v2_6" { &[quotas] } else { &[] };
    [SMALL, &[group], quotas, changes].concat()
}

fn preset(name: &str, changes: &[&str]) -> TokenConfig {
    let text = std::fs::read_to_string(path(name)).unwrap();
    read(&text, &small(name, changes)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn train(
    config: TokenConfig,
    run_dir: &Path,
    serial: bool,
    resume: bool,
) -> Result<TokenSummary, TrainError> {
    let options = TrainOptions { run_dir: run_dir.into(), resume, serial, trace: false };
    train_tokens(config, &TaskRegistry::builtin(), &options)
}

/// A run that completes, with books that are balanced and closed.
fn complete(config: TokenConfig, run_dir: &Path, serial: bool, resume: bool) -> TokenSummary {
    let updates = config.stop.updates;
    let name = config.system.clone();
    let summary = train(config, run_dir, serial, resume).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    assert_eq!(summary.status, RunOutcome::Completed, "{name:?}: {}", summary.cause);
    assert_eq!(Some(summary.updates), updates, "{name:?}: {}", summary.cause);
    assert_books(&summary);
    summary
}

#[test]
fn every_preset_makes_updates_with_balanced_books() {
    for name in SYSTEMS {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let summary = complete(preset(name, &[]), dir.path(), serial, false);
            assert!(summary.ledger.consumed.trajectories > 0, "{name}");
        }
    }
}

/// Every schedule with these; what it is refused with, if it is.
#[test]
fn every_schedule_runs_with_every_objective_or_is_refused_with_the_reason() {
    let mut refused = Vec::new();
    for system in SYSTEMS {
        for objective in ["grpo", "dapo", "gspo", "ppo", "dis"] {
            let own = [
                format!("system=\"{system}\""),
                format!("learner.loss={{ objective = {{ kind = \"{objective}\" }} }}"),
            ];
            let changes = [
                &own[0],
                &own[1],
                "learner.advantage={ kind = \"grpo\" }",
                EXPERTS,
                "generate.engine.record_experts=true",
                "stop.updates=2",
            ];
            for serial in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                match read(SETTINGS, &changes) {
                    Ok(config) => drop(complete(config, dir.path(), serial, false)),
                    Err(why) if serial => refused.push((system, objective, why)),
                    Err(_) => {}
                }
            }
        }
    }
    let found: Vec<(&str, &str)> =
        refused.iter().map(|(system, objective, _)| (*system, *objective)).collect();
    // A token mask leaves parts of answers, and sequence ratios are of whole ones.
    assert_eq!(found, [("kimi_k1_5", "gspo"), ("deepseek_v4_1", "gspo")], "{refused:#?}");
    for (_, _, why) in refused {
        for part in ["`learner.max_token_age`", "`learner.loss.objective`", "whole sequences"] {
            assert!(why.contains(part), "{why}");
        }
    }
}

#[test]
fn a_serial_run_of_every_preset_repeats_itself_to_the_byte() {
    for name in SYSTEMS {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        let whole = complete(preset(name, &["stop.updates=4", "checkpoint.every=2"]), &one, true, false);
        let again = complete(preset(name, &["stop.updates=4"]), &other, true, false);
        assert_same((&one, 4), (&other, 4));
        assert_eq!(metrics_without_clock(&one), metrics_without_clock(&other), "{name}");
        assert_eq!(whole.ledger, again.ledger, "{name}");
    }
}

/// Those that generate while they learn: a checkpoint shifts what their engine reads next, and with it what was sampled by
/// the time of the next update.
const STREAMING: [&str; 2] = ["areal", "glm_sao"];

#[test]
fn a_serial_run_of_a_preset_that_was_stopped_goes_on_as_if_it_never_had_been() {
    for name in SYSTEMS {
        let dir = tempfile::tempdir().unwrap();
        let [one, parts] = ["one", "parts"].map(|name| dir.path().join(name));
        let whole = complete(preset(name, &["stop.updates=5"]), &one, true, false);
        complete(preset(name, &["stop.updates=2"]), &parts, true, false);
        let resumed = complete(preset(name, &["stop.updates=5"]), &parts, true, true);
        assert_eq!(whole.ledger.consumed.trajectories, resumed.ledger.consumed.trajectories, "{name}");
        if !STREAMING.contains(&name) {
            assert_same((&one, 5), (&parts, 5));
            assert_eq!(metrics_without_clock(&one), metrics_without_clock(&parts), "{name}");
            assert_eq!(whole.ledger, resumed.ledger, "{name}");
        }
    }
}

#[test]
fn a_generator_that_panics_leaves_the_books_of_every_preset_in_order() {
    let faults = [
        "faults=[{ kind = \"panic\", at = 9, every = 40 }]",
        "supervision={ restarts = 1000, backoff_seconds = 0.001 }",
        "stop.updates=3",
    ];
    for name in SYSTEMS {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let summary = complete(preset(name, &faults), dir.path(), serial, false);
            assert!(summary.restarts["generator"] >= 1, "{name}");
            let lost = summary.ledger.dropped.iter().any(|(reason, _)| reason.as_str() == "actor_restart");
            assert!(lost, "{name}: {:?}", summary.ledger);
        }
    }
}

/// Actions of a trajectory by version.
fn actions(trajectory: &Trajectory) -> Vec<usize> {
    let versions: Vec<_> = trajectory.actions().map(|index| trajectory.versions[index]).collect();
    versions.chunk_by(|one, other| one == other).map(<[_]>::len).collect()
}

#[test]
fn no_round_of_an_answer_has_more_tokens_than_its_budget_over_any_number_of_interruptions() {
    const BUDGET: usize = 2;
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let changes = [
            "schedule.round_end.tokens=2",
            "checkpoint.every=1",
            // Stopped and resumed in the middle of a round too.
            "faults=[{ kind = \"panic\", at = 31 }]",
            "supervision={ restarts = 1000, backoff_seconds = 0.001 }",
        ];
        for (updates, resume) in [("stop.updates=4", false), ("stop.updates=16", true)] {
            let changes = [&changes[..], &[updates]].concat();
            complete(preset("kimi_k1_5", &changes), dir.path(), serial, resume);
        }
        let mut carried = 0;
        for update in updates(dir.path()) {
            let state = token_state(dir.path(), update);
            let seats = state.plane.open.iter().flat_map(|open| &open.seats);
            for (_, seat) in seats {
                let SeatSnapshot::Begun(begun) = seat else { continue };
                let rounds = actions(&begun.trajectory);
                // A round in which no group is complete has no update, and the next has its version.
                let (last, before) =
                    rounds.split_last().map_or((0, &[][..]), |(last, before)| (*last, before));
                assert!(before.iter().all(|tokens| tokens % BUDGET == 0), "{rounds:?}");
                let most = begun.pause_at.unwrap();
                assert!(most.is_multiple_of(BUDGET) && begun.trajectory.action_count() <= most, "{rounds:?}");
                carried = carried.max(before.len() + usize::from(last > 0));
            }
        }
        assert!(carried >= 3, "an answer of {carried} versions shows little");
    }
}

#[test]
fn batches_of_april_are_whole_groups_and_nothing_that_was_generated_is_thrown_away() {
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let summary = complete(preset("april", &["stop.updates=6"]), dir.path(), serial, false);
        let lines = metrics(dir.path());
        let learned = |name: &str| -> Vec<f64> {
            figures(&lines, name).into_iter().filter(|count| *count > 0.0).collect()
        };
        assert_eq!(learned("groups"), [3.0; 6]);
        assert_eq!(learned("trajectories"), [12.0; 6]);
        // What the last round left is in the checkpoint.
        let reasons: Vec<&str> = summary.ledger.dropped.keys().map(|reason| reason.as_str()).collect();
        assert!(reasons.iter().all(|reason| *reason == "shutdown"), "{reasons:?}");
        assert!(figures(&lines, "old_token_fraction").iter().any(|fraction| *fraction > 0.0));
    }
}

#[test]
fn every_batch_of_a_mixer_has_exactly_its_quota_of_each_source() {
    for serial in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let summary = complete(preset("mimo_v2_6", &["stop.updates=12"]), dir.path(), serial, false);
        let batches = metrics(dir.path());
        let sources: Vec<_> =
            batches.iter().filter(|line| line["groups"] != 0).map(|line| &line["sources"]).collect();
        assert_eq!(sources, vec![&json!({ "long": 1, "short": 2 }); 12]);
        // Though sources lose groups on the way.
        let lost = summary.ledger.dropped.keys().any(|reason| reason.as_str() == "zero_variance");
        assert!(lost, "{:?}", summary.ledger);
    }
}

/// Tokens of a run that an update consumed, by their lag.
fn lags(run_dir: &Path) -> Vec<(u64, u64)> {
    let mut lags = std::collections::BTreeMap::<u64, u64>::new();
    for line in metrics(run_dir) {
        for bucket in line["lag"].as_array().into_iter().flatten() {
            *lags.entry(bucket[0].as_u64().unwrap()).or_default() += bucket[1].as_u64().unwrap();
        }
    }
    lags.into_iter().collect()
}

#[test]
fn each_system_keeps_its_bound_on_age() {
    // What is learned from, by the greatest lag of a consumed token, and of a token in the loss.
    let bounds = [
        ("sync", Some(0), Some(0)),
        ("one_step", Some(1), Some(1)),
        ("kimi_k1_5", None, Some(0)),
        ("areal", Some(8), Some(8)),
        ("deepseek_v4_1", None, Some(4)),
        ("glm_sao", Some(8), Some(8)),
        ("mimo_v2_6", Some(4), Some(4)),
    ];
    for (name, consumed, in_loss) in bounds {
        for serial in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            // Budgets that cut answers, and pools in which they grow old.
            let mut changes = vec!["stop.updates=12"];
            if name == "kimi_k1_5" {
                changes.push("schedule.round_end.tokens=2");
            }
            let summary = complete(preset(name, &changes), dir.path(), serial, false);
            let lags = lags(dir.path());
            let greatest = lags.iter().map(|(lag, _)| *lag).max().unwrap();
            assert!(consumed.is_none_or(|most| greatest <= most), "{name}: {lags:?}");
            if let (None, Some(most)) = (consumed, in_loss) {
                // Every consumed token that is older was left out of the loss, and for no other reason.
                let older: u64 = lags.iter().filter(|(lag, _)| *lag > most).map(|(_, tokens)| tokens).sum();
                let masked = summary.token_fates.get(TokenFate::Age);
                assert_eq!(masked, older, "{name}: {lags:?}");
            }
        }
    }
}

#[test]
fn replayed_experts_are_compared_with_those_that_the_router_would_choose_now() {
    let dir = tempfile::tempdir().unwrap();
    let disagreement = |name: &str, changes: &[&str]| {
        let run = dir.path().join(changes.len().to_string());
        complete(preset(name, changes), &run, true, false);
        figures(&metrics(&run), "expert_disagreement")
    };
    let fresh = disagreement("deepseek_v4_1", &["system=\"sync\""]);
    assert!(!fresh.is_empty() && fresh.iter().all(|share| *share == 0.0), "{fresh:?}");
    let stale = disagreement(
        "deepseek_v4_1",
        &["stop.updates=8", "learner.schedule.learning_rate=0.05", "learner.clip_norm=10.0"],
    );
    assert!(stale.iter().any(|share| *share > 0.0), "{stale:?}");
    assert!(total(&metrics(&dir.path().join("3")), "groups") > 0.0);
}
