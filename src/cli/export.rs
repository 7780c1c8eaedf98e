//! `forebay export`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::policy_of_run::PolicyOfRun;
use crate::policy::pretrained;

/// Arguments of `forebay export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run directory
    run: PathBuf,
    /// Directory to write; must not exist
    directory: PathBuf,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let policy = PolicyOfRun::open(&args.run)?;
    let model = &policy.model;
    pretrained::save(&args.directory, &model.decoder, policy.parameters(), &model.tokenizer)?;
    println!("wrote {} ({} updates)", args.directory.display(), policy.version());
    Ok(ExitCode::SUCCESS)
}
