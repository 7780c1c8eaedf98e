//! `forebay eval`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::train::read_config;
use crate::actors::run::Run;
use crate::actors::run_dir::RunDir;
use crate::actors::{evaluate, load_policy};
use crate::env::Registry;

/// Arguments of `forebay eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Run directory
    run: PathBuf,
    /// Episodes
    #[arg(long, default_value_t = 100)]
    episodes: usize,
    /// Seed of the episodes [default: that of the run]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON with the return of every episode
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EvalArgs, registry: &Registry) -> anyhow::Result<ExitCode> {
    let path = args.run.join(RunDir::CONFIG);
    let (config, _) =
        read_config(&path, &[]).with_context(|| format!("{} is not a run directory", args.run.display()))?;
    anyhow::ensure!(args.episodes > 0, "--episodes must be at least 1");
    let (policy, published) = load_policy(&args.run, &config, registry)?;
    let envs = (0..config.evaluation.envs.min(args.episodes))
        .map(|_| Run::make_env(registry, &config))
        .collect::<Result<Vec<_>, _>>()?;
    let seed = args.seed.unwrap_or(config.seed);
    let result = evaluate(&policy, &published, envs, seed, args.episodes, config.env.reward_clip, &|| true)?
        .context("the evaluation was abandoned")?;
    if args.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        let (least, greatest) = result.range();
        println!(
            "{} after {} updates: mean return {:.3} over {} episodes (standard deviation {:.3}, {least} to {greatest})",
            config.env.name,
            published.version,
            result.mean(),
            args.episodes,
            result.deviation()
        );
    }
    Ok(ExitCode::SUCCESS)
}
