//! Token runs as a whole: exact log-probabilities under every schedule, the same bytes from the same settings, lag as
//! the schedule promises, books that balance whatever fails, and errors that are not rewards.

mod books;
mod command_line;
mod critic;
mod endings;
mod exactness;
mod learning;
mod options;
mod refusals;
mod reward_model;
mod rewards;
mod steps;
mod systems;
mod teachers;
mod together;
mod trained;

use std::path::Path;

use forebay::actors::token::train_tokens;
use forebay::actors::{TrainError, TrainOptions};
use forebay::config::{Override, TokenConfig, load};
use forebay::env::task::TaskRegistry;
use forebay::telemetry::{RunOutcome, TokenSummary};
use serde_json::Value;

const SETTINGS: &str = r#"
seed = 7
task = { name = "copy", options = { alphabet = "abc", min_length = 1, max_length = 3, partial = true } }
model.decoder = { width = 16, inner = 24, layers = 2, heads = 2, kv_heads = 1, head_size = 8, context = 24 }
generate = { max_new_tokens = 6, engine = { cache_tokens = 1024, max_running = 5, prefill_tokens = 7 } }
learner = { prompts = 3, group_size = 4, microbatch_tokens = 40, check_every = 1, loss = { objective = { kind = "ppo" } } }
evaluation = { final_problems = 0 }
telemetry = { listen = "off", progress = "off", tensorboard = false, serial_updates_per_line = 1 }
checkpoint = { every_seconds = 0, keep = 100 }
"#;

const EXPERTS: &str = "model.decoder.experts={ count = 4, per_token = 2, inner = 12 }";
const ADAPTERS: &str = "model.adapters={ rank = 2, alpha = 4.0, targets = [\"q_proj\", \"down_proj\"] }";
const FROZEN: &str = "model.frozen=[\"model.embed_tokens.*\", \"model.layers.0.*\"]";
const ONE_STEP: &str = "schedule={ kind = \"one_step\" }";
const REPREFILL: &str = "schedule={ kind = \"async\", lead = 2, resume = \"reprefill\" }";
const KEEP_KV: &str = "schedule={ kind = \"async\", lead = 2, resume = \"keep_kv\" }";

/// A critic on the policy's layers, and from the third setting on one with a trunk of its own.
const SEPARATE: &[&str] = &[
    "learner.advantage={ kind = \"skip_observation_gae\" }",
    "learner.loss.objective={ kind = \"grpo\" }",
    "learner.critic={ trunk = \"separate\", updates = 2, warmup_updates = 2, train = \"feed_forward\", learning_rate = 0.01 }",
];

const REFERENCE_KL: &str =
    "learner.loss={ objective = { kind = \"ppo\" }, reference_kl = { coefficient = 0.1 } }";

fn config(changes: &[&str]) -> TokenConfig {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    load(SETTINGS, "settings.toml", &overrides).unwrap()
}

fn train(
    run_dir: &Path,
    registry: &TaskRegistry,
    changes: &[&str],
    serial: bool,
    resume: bool,
) -> Result<TokenSummary, TrainError> {
    let options = TrainOptions { run_dir: run_dir.into(), resume, serial, trace: false };
    train_tokens(config(changes), registry, &options)
}

/// A run of so many updates that completes; its books are balanced and closed.
fn complete(run_dir: &Path, changes: &[&str], updates: u64, serial: bool, resume: bool) -> TokenSummary {
    let stop = format!("stop.updates={updates}");
    let changes = [changes, &[&stop]].concat();
    let summary = train(run_dir, &TaskRegistry::builtin(), &changes, serial, resume).unwrap();
    assert_eq!((summary.status, summary.updates), (RunOutcome::Completed, updates), "{}", summary.cause);
    assert_books(&summary);
    summary
}

fn assert_books(summary: &TokenSummary) {
    let ledger = &summary.ledger;
    let dropped = ledger.dropped.values();
    let (trajectories, tokens) =
        dropped.fold((0, 0), |sum, amount| (sum.0 + amount.trajectories, sum.1 + amount.tokens));
    assert_eq!((ledger.live.trajectories, ledger.buffered.trajectories), (0, 0));
    assert_eq!(ledger.submitted.trajectories, ledger.consumed.trajectories + trajectories);
    assert_eq!(ledger.submitted.tokens, ledger.consumed.tokens + tokens);
    assert_eq!(summary.tokens, ledger.submitted.tokens);
}

fn figures(lines: &[Value], field: &str) -> Vec<f64> {
    lines.iter().filter_map(|line| line.get(field)?.as_f64()).collect()
}
