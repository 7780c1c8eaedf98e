//! `forebay eval`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::Registries;
use super::policy_of_run::PolicyOfRun;
use super::train::read_config;
use crate::actors::run::Run;
use crate::actors::run_dir::RunDir;
use crate::actors::{evaluate, load_policy};
use crate::config::{Config, RunConfig, TokenConfig};
use crate::telemetry::EvaluationPart;

/// Arguments of `forebay eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Run directory
    run: PathBuf,
    /// Episodes, or problems of a token run [default: 100, or evaluation.final_problems]
    #[arg(long, visible_alias = "problems")]
    episodes: Option<usize>,
    /// Sampling temperature of a token run [default: evaluation.temperature]
    #[arg(long)]
    temperature: Option<f32>,
    /// Seed of the episodes or problems [default: that of the run]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON with every episode or answer
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EvalArgs, registries: &Registries) -> anyhow::Result<ExitCode> {
    let path = args.run.join(RunDir::CONFIG);
    let (config, _) =
        read_config(&path, &[]).with_context(|| format!("{} is not a run directory", args.run.display()))?;
    match config {
        RunConfig::Control(config) => control(args, &config, registries),
        RunConfig::Token(config) => tokens(args, *config, registries),
    }
}

fn control(args: &EvalArgs, config: &Config, registries: &Registries) -> anyhow::Result<ExitCode> {
    let registry = &registries.environments;
    let episodes = args.episodes.unwrap_or(100);
    anyhow::ensure!(episodes > 0, "--episodes must be at least 1");
    let (policy, published) = load_policy(&args.run, config, registry)?;
    let envs = (0..config.evaluation.envs.min(episodes))
        .map(|_| Run::make_env(registry, config))
        .collect::<Result<Vec<_>, _>>()?;
    let seed = args.seed.unwrap_or(config.seed);
    let result = evaluate(&policy, &published, envs, seed, episodes, config.env.reward_clip, &|| true)?
        .context("the evaluation was abandoned")?;
    if args.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        let (least, greatest) = result.range();
        println!(
            "{} after {} updates: mean return {:.3} over {episodes} episodes (standard deviation {:.3}, {least} to \
             {greatest})",
            config.env.name,
            published.version,
            result.mean(),
            result.deviation()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(args: &EvalArgs, mut config: TokenConfig, registries: &Registries) -> anyhow::Result<ExitCode> {
    if let Some(seed) = args.seed {
        config.seed = seed;
    }
    let name = config.task.name.clone();
    let problems = args.episodes.unwrap_or(config.evaluation.final_problems.max(1));
    anyhow::ensure!(problems > 0, "--episodes must be at least 1");
    let task = config.make_task(&registries.tasks)?;
    let temperature = args.temperature.unwrap_or(config.evaluation.temperature);
    let policy = PolicyOfRun::load(&args.run, config)?;
    let version = policy.version();
    let result = policy.evaluate(task, problems, temperature)?;
    if args.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        let (low, high) = result.interval();
        println!(
            "{name} after {version} updates: accuracy {:.1} % over {} problems (95 % interval {:.1} to {:.1} %), mean \
             reward {:.3}, {:.1} % cut off, {} not graded",
            100.0 * result.accuracy(),
            result.graded(),
            100.0 * low,
            100.0 * high,
            result.mean(),
            100.0 * result.truncated(),
            result.answers.len() - result.graded()
        );
        print_parts(&result.parts());
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each source and effort, where there are several.
fn print_parts(parts: &[EvaluationPart]) {
    if parts.len() < 2 {
        return;
    }
    let label = |part: &EvaluationPart| match &part.effort {
        Some(effort) => format!("{}, {effort}", part.source),
        None => part.source.clone(),
    };
    let width = parts.iter().map(|part| label(part).chars().count()).max().unwrap_or_default();
    for part in parts {
        println!(
            "  {:<width$}  accuracy {:5.1} % over {} problems, mean reward {:.3}",
            label(part),
            100.0 * part.accuracy,
            part.graded,
            part.reward_mean
        );
    }
}
