//! What the behaviour tests share: small settings, an environment that says where it is, a run without threads, and
//! the binary as a child process.

pub mod checkpoints;
pub mod counting;
pub mod follower;
pub mod process;
pub mod rig;

use std::path::Path;

use forebay::actors::{TrainError, TrainOptions, train};
use forebay::config::{Config, Override, load};
use forebay::env::Registry;
use forebay::telemetry::Summary;
use serde_json::Value;

/// The settings of every test, before its own.
pub const SETTINGS: &str = r#"
policy.torso = { kind = "mlp", hidden = [8] }
rollout = { actors = 2, envs_per_actor = 2, unroll_length = 4 }
learner.schedule = { kind = "constant", learning_rate = 0.01 }
evaluation.final_episodes = 0
telemetry = { listen = "off", progress = "off", tensorboard = false, serial_updates_per_line = 2 }
checkpoint = { every_seconds = 0, keep = 100 }
"#;

/// The settings of every test, changed by `changes` of the form `field=value`.
pub fn config(changes: &[&str]) -> Config {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    load(SETTINGS, "settings.toml", &overrides).unwrap()
}

/// Trains in this process, with environments of the test's own.
pub fn train_with(registry: Registry, run_dir: &Path, changes: &[&str]) -> Result<Summary, TrainError> {
    let options = TrainOptions { run_dir: run_dir.into(), resume: false, serial: false, trace: false };
    train(config(changes), registry, &options)
}

/// The lines of a run's `metrics.jsonl`.
pub fn metrics(run_dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same without what depends on a clock.
pub fn metrics_without_clock(run_dir: &Path) -> Vec<Value> {
    let mut lines = metrics(run_dir);
    for line in &mut lines {
        line.as_object_mut()
            .unwrap()
            .retain(|name, _| !name.ends_with("_seconds") && !name.ends_with("_per_second"));
    }
    lines
}

/// Sum of a field over all lines.
pub fn total(lines: &[Value], field: &str) -> f64 {
    lines.iter().filter_map(|line| line.get(field)?.as_f64()).sum()
}
