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
    /// Save the adapters alone, for Hugging Face's peft, instead of the model with its adapters put in
    #[arg(long)]
    adapters: bool,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let policy = PolicyOfRun::open(&args.run)?;
    let model = &policy.model;
    let (directory, parameters) = (&args.directory, policy.parameters());
    if args.adapters {
        let base = policy.config.model.path.as_deref();
        pretrained::save_adapters(directory, &model.decoder, parameters, base)?;
    } else {
        pretrained::save(directory, &model.decoder, parameters, &model.tokenizer)?;
    }
    println!("wrote {} ({} updates)", args.directory.display(), policy.version());
    Ok(ExitCode::SUCCESS)
}
