//! End to end: whole training runs with the presets that pass the learning gates, final return beside the speed.
//!
//! `cargo bench --bench end_to_end [-- NAME]` runs the binary itself on every preset below, three seeds each.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Preset and environment steps.
const RUNS: [(&str, u64); 4] = [
    ("cartpole", 1_000_000),
    ("acrobot", 2_000_000),
    ("stateless_cartpole", 1_000_000),
    ("minatar_breakout", 500_000),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "{:<20} {:>4} {:>12} {:>9} {:>13} {:>12} {:>10} {:>10} {:>6}",
        "preset", "seed", "steps/s", "return", "learner busy", "actors busy", "starved s", "blocked s", "lag"
    );
    for (name, steps) in RUNS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name))
    {
        for seed in 1..=3 {
            run(name, *steps, seed);
        }
    }
}

fn run(name: &str, steps: u64, seed: u64) {
    let folder = std::env::temp_dir().join(format!("forebay-bench-{}-{name}-{seed}", std::process::id()));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("configs/control/{name}.toml"));
    let settings = [
        format!("seed={seed}"),
        format!("stop.env_steps={steps}"),
        "telemetry.listen=off".into(),
        "telemetry.progress=off".into(),
        "evaluation.final_episodes=0".into(),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("train").arg(config).arg("--run-dir").arg(&folder);
    for setting in settings {
        command.arg("--set").arg(setting);
    }
    let output = command.output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("a file of the run");
    let summary: Value = serde_json::from_str(&read("summary.json")).expect("a summary");
    let lines: Vec<Value> =
        read("metrics.jsonl").lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let sum = |field: &str| lines.iter().filter_map(|line| line[field].as_f64()).sum::<f64>();
    let figure = |field: &str| summary[field].as_f64().unwrap_or(f64::NAN);
    let (wall, actors) = (figure("wall_seconds"), 2.0);
    println!(
        "{name:<20} {seed:>4} {:>12.0} {:>9.1} {:>12.0}% {:>11.0}% {:>10.2} {:>10.2} {:>6.2}",
        figure("steps_per_second"),
        figure("return_mean"),
        100.0 * sum("update_seconds") / wall,
        100.0 * (1.0 - sum("blocked_seconds") / (actors * wall)),
        sum("starved_seconds"),
        sum("blocked_seconds"),
        figure("lag_mean"),
    );
    std::fs::remove_dir_all(&folder).expect("the run directory can be removed");
}
