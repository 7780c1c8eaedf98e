//! The command line: one file for each subcommand.
//!
//! A program with environments of its own calls [`run`] with a registry that has them, and gets the whole command
//! line for them.

mod config;
mod doctor;
mod envs;
mod eval;
mod process;
mod train;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::env::Registry;

/// Asynchronous reinforcement learning in one binary.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train an agent as a configuration file says
    Train(train::TrainArgs),
    /// Evaluate the newest checkpoint of a run greedily
    Eval(eval::EvalArgs),
    /// List the environments
    Envs(envs::EnvsArgs),
    /// Print every configuration field with its default
    Config(config::ConfigArgs),
    /// Show devices, features, limits, and what is effective here
    Doctor,
}

/// Parses the command line and does what it says; errors go to standard error with all their causes.
#[must_use]
pub fn run(registry: Registry) -> ExitCode {
    process::prepare();
    let filter = tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let outcome = match Cli::parse().command {
        Command::Train(args) => train::run(&args, registry),
        Command::Eval(args) => eval::run(&args, &registry),
        Command::Envs(args) => envs::run(&args, &registry),
        Command::Config(args) => config::run(&args),
        Command::Doctor => Ok(doctor::run()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
