//! Answers that are in flight at a time share the engine's steps.

use std::path::Path;

use forebay::actors::TrainOptions;
use forebay::actors::token::train_tokens;
use forebay::env::task::TaskRegistry;
use serde_json::Value;

use super::config;

const ANSWERS: u64 = 12;
const TOKENS: u64 = 6;
const UPDATES: u64 = 3;

/// Steps of the engines and tokens that these sampled, by the trace of a run.
fn steps_and_tokens(run_dir: &Path) -> (u64, u64) {
    let trace = std::fs::read_to_string(run_dir.join("trace.jsonl")).unwrap();
    let entries = trace.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let engines = entries.filter_map(|entry| entry.get("statistics").cloned());
    engines.fold((0, 0), |(steps, tokens), engine| {
        let of = |kind: &str| engine[kind]["steps"].as_u64().unwrap();
        (steps + of("alone") + of("beside"), tokens + engine["sampled"].as_u64().unwrap())
    })
}

#[test]
fn answers_of_one_length_that_begin_at_once_take_hardly_more_steps_than_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let updates = format!("stop.updates={UPDATES}");
    let changes = [
        "task={ name = \"long_tail\", options = { median = 6, prompts = 0.0, answers = 0.0, cap = 8 } }",
        "generate.engine={ cache_tokens = 4096, max_running = 12, prefill_tokens = 64 }",
        &updates,
    ];
    let options = TrainOptions { run_dir: dir.path().into(), resume: false, serial: false, trace: true };
    train_tokens(config(&changes), &TaskRegistry::builtin(), &options).unwrap();
    let (steps, tokens) = steps_and_tokens(dir.path());
    // What was begun for the batch after the last may be among them.
    assert!(tokens >= UPDATES * ANSWERS * TOKENS, "{tokens} tokens");
    // One more for the prompts, and one in which nothing is left but to find that out.
    let (rounds, most) = (tokens.div_ceil(ANSWERS * TOKENS), TOKENS + 2);
    assert!(steps <= rounds * most, "{steps} steps for {tokens} tokens");
}
