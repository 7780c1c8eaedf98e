//! `forebay train`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;

use super::Registries;
use super::process::share_freed_memory;
use crate::actors::token::train_tokens;
use crate::actors::{TrainError, TrainOptions, train};
use crate::config::{Override, RunConfig, Source, TokenConfig};
use crate::telemetry::{RunOutcome, Summary, TokenSummary};

/// Arguments of `forebay train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Configuration file (TOML)
    config: PathBuf,
    /// Override a field of the configuration, such as learner.discount=0.99; may be given several times
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// Directory for everything the run writes [default: a new one under runs/]
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// Continue the run in --run-dir from its newest checkpoint
    #[arg(long, requires = "run_dir")]
    resume: bool,
    /// Step everything in a fixed order on one thread: the same configuration gives the same bytes
    #[arg(long)]
    serial: bool,
    /// Write every event and command of a token run's schedule to trace.jsonl in the run directory, for forebay replay
    /// and for forebay simulate --calibrate
    #[arg(long)]
    trace: bool,
}

/// Reads a configuration file with overrides.
///
/// # Errors
/// When it cannot be read or is not a configuration.
pub fn read_config(path: &Path, overrides: &[String]) -> anyhow::Result<(RunConfig, Source)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let overrides = overrides.iter().map(|text| text.parse::<Override>()).collect::<Result<Vec<_>, _>>()?;
    let source = Source::parse(&text, &path.display().to_string(), &overrides)?;
    Ok((RunConfig::read(&source)?, source))
}

/// Reads a configuration file of a token run with overrides.
///
/// # Errors
/// As [`read_config`]; when it is of a control run.
pub(super) fn read_token_config(path: &Path, overrides: &[String]) -> anyhow::Result<(TokenConfig, Source)> {
    match read_config(path, overrides)? {
        (RunConfig::Token(config), source) => Ok((*config, source)),
        (RunConfig::Control(_), _) => {
            anyhow::bail!("{} is of a control run; this is for token runs", path.display())
        }
    }
}

/// An error with the place of the fields it names in the configuration file.
pub(super) fn placed(source: &Source, error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Config(contradiction) => {
            let fields: Vec<&str> = contradiction.fields.iter().map(String::as_str).collect();
            anyhow::Error::from(source.error(&fields, contradiction.why))
        }
        other => other.into(),
    }
}

pub(super) fn run(args: &TrainArgs, registries: Registries) -> anyhow::Result<ExitCode> {
    let (config, source) = read_config(&args.config, &args.overrides)?;
    let run_dir = args.run_dir.clone().unwrap_or_else(|| default_run_dir(&args.config));
    let options = TrainOptions { run_dir, resume: args.resume, serial: args.serial, trace: args.trace };
    let placed = |error| placed(&source, error);
    let (status, cause) = match config {
        RunConfig::Control(_) if args.trace => {
            anyhow::bail!("--trace: the schedule of a control run has no events to trace; leave it away")
        }
        RunConfig::Control(config) => {
            let summary = train(*config, registries.environments, &options).map_err(placed)?;
            print_summary(&summary);
            (summary.status, summary.cause)
        }
        RunConfig::Token(config) => {
            share_freed_memory();
            let summary = train_tokens(*config, &registries.tasks, &options).map_err(placed)?;
            print_token_summary(&summary);
            (summary.status, summary.cause)
        }
    };
    println!("  report: {}", options.run_dir.join("report.html").display());
    match status {
        RunOutcome::Failed => anyhow::bail!("the run failed: {cause}"),
        RunOutcome::Completed | RunOutcome::Interrupted => Ok(ExitCode::SUCCESS),
    }
}

/// `runs/NAME-TIME`, unique by the second of its start.
fn default_run_dir(config: &Path) -> PathBuf {
    let name = config.file_stem().unwrap_or_default().to_string_lossy();
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    PathBuf::from("runs").join(format!("{name}-{seconds}"))
}

fn figure(value: Option<f64>) -> String {
    value.map_or("none".into(), |value| format!("{value:.2}"))
}

fn print_summary(summary: &Summary) {
    println!("{}: {}", summary.status.as_str(), summary.cause);
    println!(
        "  {} environment steps, {} updates, {:.1} s, {:.0} steps/s",
        summary.env_steps, summary.updates, summary.wall_seconds, summary.steps_per_second
    );
    println!(
        "  return {} (last 100 episodes), evaluation {}, lag {} on average, {} at most",
        figure(summary.return_mean),
        figure(summary.eval_mean),
        figure(summary.lag_mean),
        summary.lag_max
    );
}

fn print_token_summary(summary: &TokenSummary) {
    println!("{}: {}", summary.status.as_str(), summary.cause);
    println!(
        "  {} tokens, {} updates, {:.1} s, {:.0} tokens/s",
        summary.tokens, summary.updates, summary.wall_seconds, summary.tokens_per_second
    );
    let from = summary.eval_initial.map_or(String::new(), |initial| format!("{initial:.2} at the start, "));
    println!(
        "  reward {} (last 10 updates), evaluation {from}{}, lag {} on average, {} at most",
        figure(summary.reward_mean),
        figure(summary.eval_mean),
        figure(summary.lag_mean),
        summary.lag_max
    );
}
