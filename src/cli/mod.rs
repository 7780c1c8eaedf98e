//! The command line: one file for each subcommand.
//!
//! A program with environments or tasks of its own calls [`run`] with a registry that has them, and gets the whole
//! command line for them.

mod chat;
mod collect;
mod config;
mod doctor;
mod envs;
mod eval;
mod export;
mod generate;
mod objectives;
mod policy_of_run;
mod pretrain_value;
mod process;
mod replay;
mod simulate;
mod systems;
mod tasks;
mod train;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::env::Registry;
use crate::env::task::TaskRegistry;

/// What can be asked for by name. A program with environments or tasks of its own registers them in one of these.
#[derive(Debug, Clone)]
pub struct Registries {
    /// Environments.
    pub environments: Registry,
    /// Tasks.
    pub tasks: TaskRegistry,
}

impl Registries {
    /// Everything that comes with this crate.
    #[must_use]
    pub fn builtin() -> Self {
        Self { environments: Registry::builtin(), tasks: TaskRegistry::builtin() }
    }
}

impl From<Registry> for Registries {
    fn from(environments: Registry) -> Self {
        Self { environments, tasks: TaskRegistry::builtin() }
    }
}

impl From<TaskRegistry> for Registries {
    fn from(tasks: TaskRegistry) -> Self {
        Self { environments: Registry::builtin(), tasks }
    }
}

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
    /// Evaluate the newest checkpoint of a run
    Eval(eval::EvalArgs),
    /// Let the newest checkpoint of a token run answer a prompt
    Generate(generate::GenerateArgs),
    /// Talk to the newest checkpoint of a token run
    Chat(chat::ChatArgs),
    /// Save the newest checkpoint of a token run as a Hugging Face directory
    Export(export::ExportArgs),
    /// Collect graded answers of a token run's policy, to pretrain a critic on
    Collect(collect::CollectArgs),
    /// Train the critic of a token run on collected answers
    PretrainValue(pretrain_value::PretrainValueArgs),
    /// List the environments
    Envs(envs::EnvsArgs),
    /// List the tasks
    Tasks(tasks::TasksArgs),
    /// List the objectives of the token workload with formula, defaults, source and what each refuses
    Objectives(objectives::ObjectivesArgs),
    /// List the systems whose schedules there are, by the axes they choose
    Systems(systems::SystemsArgs),
    /// Run a schedule in virtual time: throughput, lag and utilisation without a model or a device
    Simulate(simulate::SimulateArgs),
    /// Tell the scheduler again what it was told in a run, and compare what it says
    Replay(replay::ReplayArgs),
    /// Print every configuration field with its default
    Config(config::ConfigArgs),
    /// Show devices, features, limits, and what is effective here
    Doctor,
}

impl Command {
    /// Whether all that it does is to print.
    fn only_prints(&self) -> bool {
        matches!(
            self,
            Self::Eval(_)
                | Self::Generate(_)
                | Self::Envs(_)
                | Self::Tasks(_)
                | Self::Objectives(_)
                | Self::Systems(_)
                | Self::Simulate(_)
                | Self::Replay(_)
                | Self::Config(_)
                | Self::Doctor
        )
    }
}

/// Parses the command line and does what it says; errors go to standard error with all their causes. Takes a registry
/// of environments, one of tasks, or both.
#[must_use]
pub fn run(registries: impl Into<Registries>) -> ExitCode {
    let registries = registries.into();
    process::prepare();
    let filter = tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let command = Cli::parse().command;
    if command.only_prints() {
        process::end_with_reader();
    }
    let outcome = match command {
        Command::Train(args) => train::run(&args, registries),
        Command::Eval(args) => eval::run(&args, &registries),
        Command::Generate(args) => generate::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Collect(args) => collect::run(&args, &registries),
        Command::PretrainValue(args) => pretrain_value::run(&args, &registries),
        Command::Envs(args) => envs::run(&args, &registries.environments),
        Command::Tasks(args) => tasks::run(&args, &registries.tasks),
        Command::Objectives(args) => objectives::run(&args),
        Command::Systems(args) => systems::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Doctor => Ok(doctor::run()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {}", with_causes(&error));
        ExitCode::FAILURE
    })
}

/// An error with all its causes, each once: many errors tell their cause themselves.
fn with_causes(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::with_causes;

    #[test]
    fn every_cause_is_told_once() {
        let told = |error: anyhow::Error| with_causes(&error);
        let cause = || anyhow::anyhow!("no space left");
        assert_eq!(told(cause().context("cannot save")), "cannot save: no space left");
        let wordy = cause().context("cannot save: no space left; free some").context("the run failed");
        assert_eq!(told(wordy), "the run failed: cannot save: no space left; free some");
    }
}
