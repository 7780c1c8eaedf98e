//! `forebay pretrain-value`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Registries;
use super::process::share_freed_memory;
use super::train::read_token_config;
use crate::actors::token::{PretrainOptions, pretrain_value};

/// Arguments of `forebay pretrain-value`.
#[derive(Debug, Args)]
pub struct PretrainValueArgs {
    /// Configuration file (TOML) of the token run that the critic is for
    config: PathBuf,
    /// Directory that `forebay collect` wrote
    corpus: PathBuf,
    /// Directory to write the critic to, for learner.critic.path; must not exist, or be empty
    #[arg(long)]
    out: PathBuf,
    /// Passes over the answers that are trained on
    #[arg(long, default_value_t = 1)]
    epochs: u32,
    /// Fraction of the corpus that is held out
    #[arg(long, default_value_t = 0.1)]
    held_out: f64,
    /// Answers to train on [default: all that are not held out]
    #[arg(long)]
    trajectories: Option<usize>,
    /// Override a field of the configuration; may be given several times
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
}

pub(super) fn run(args: &PretrainValueArgs, registries: &Registries) -> anyhow::Result<ExitCode> {
    share_freed_memory();
    let (config, source) = read_token_config(&args.config, &args.overrides)?;
    let options = PretrainOptions {
        corpus: args.corpus.clone(),
        out: args.out.clone(),
        epochs: args.epochs,
        held_out: args.held_out,
        trajectories: args.trajectories,
    };
    let terminal = std::io::stderr().is_terminal();
    let mut watch = |step: u64, steps: u64, loss: f64| {
        if terminal {
            eprint!("\rstep {step} of {steps}, loss {loss:.4} ");
        }
    };
    let found = pretrain_value(&config, &registries.tasks, &options, &mut watch);
    if terminal {
        eprintln!();
    }
    let found = found.map_err(|error| super::train::placed(&source, error))?;
    let explained = |variance: Option<f64>| variance.map_or("none".into(), |value| format!("{value:.3}"));
    println!(
        "wrote {}: {} answers, {} steps; of {} answers that were held out, explained variance {} before and {} after",
        args.out.display(),
        found.trajectories,
        found.steps,
        found.held_out,
        explained(found.explained_variance_before),
        explained(found.explained_variance)
    );
    Ok(ExitCode::SUCCESS)
}
