//! `forebay config`: the reference of all fields, made from the code.

use std::process::ExitCode;

use clap::Args;

use crate::config::{Config, TokenConfig, reference};

/// Arguments of `forebay config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the defaults as a TOML file instead of the reference
    #[arg(long)]
    toml: bool,
    /// Of the token workload instead of control
    #[arg(long)]
    token: bool,
}

pub(super) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let text = match (args.token, args.toml) {
        (false, true) => toml::to_string(&Config::default())?,
        (true, true) => toml::to_string(&TokenConfig::default())?,
        (false, false) => reference::<Config>(),
        (true, false) => reference::<TokenConfig>(),
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}
