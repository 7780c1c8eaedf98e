//! `forebay config`: the reference of all fields, made from the code.

use std::process::ExitCode;

use clap::Args;

use crate::config::{Config, reference};

/// Arguments of `forebay config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the defaults as a TOML file instead of the reference
    #[arg(long)]
    toml: bool,
}

pub(super) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    if args.toml {
        print!("{}", toml::to_string(&Config::default())?);
    } else {
        print!("{}", reference::<Config>());
    }
    Ok(ExitCode::SUCCESS)
}
