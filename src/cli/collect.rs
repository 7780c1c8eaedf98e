//! `forebay collect`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::Registries;
use super::process::share_freed_memory;
use super::train::read_token_config;
use crate::actors::run_dir::RunDir;
use crate::actors::token::{CollectOptions, Policy, collect};

/// Arguments of `forebay collect`.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Configuration file (TOML) of a token run, or a run directory to take the newest checkpoint of
    from: PathBuf,
    /// Directory to write; must not exist, or be empty
    #[arg(long)]
    out: PathBuf,
    /// Answers at least; whole groups are collected
    #[arg(long, default_value_t = 4096)]
    trajectories: u64,
    /// Override a field of the configuration; may be given several times
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
}

pub(super) fn run(args: &CollectArgs, registries: &Registries) -> anyhow::Result<ExitCode> {
    share_freed_memory();
    let (path, policy) = if args.from.is_dir() {
        (args.from.join(RunDir::CONFIG), Policy::OfRun(args.from.clone()))
    } else {
        (args.from.clone(), Policy::OfConfiguration)
    };
    let (config, source) = read_token_config(&path, &args.overrides)
        .with_context(|| format!("no answers can be collected with {}", args.from.display()))?;
    let options = CollectOptions { out: args.out.clone(), trajectories: args.trajectories };
    let terminal = std::io::stderr().is_terminal();
    let mut watch = |answers: u64| {
        if terminal {
            eprint!("\r{answers} of {} answers ", options.trajectories);
        }
    };
    let collected = collect(&config, &policy, &registries.tasks, &options, &mut watch);
    if terminal {
        eprintln!();
    }
    let collected = collected.map_err(|error| super::train::placed(&source, error))?;
    let corpus = &collected.corpus;
    println!(
        "wrote {} answers of {} tokens to {}: mean reward {:.3}, {} not graded",
        corpus.trajectories,
        corpus.tokens,
        args.out.display(),
        corpus.reward_mean,
        corpus.grading_errors
    );
    Ok(ExitCode::SUCCESS)
}
