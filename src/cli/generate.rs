//! `forebay generate`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::policy_of_run::{PolicyOfRun, SamplingArgs};
use crate::trajectory::Message;

/// Arguments of `forebay generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Run directory
    run: PathBuf,
    /// The prompt
    #[arg(long)]
    prompt: String,
    /// Go on from the prompt as it is [default for models from scratch]
    #[arg(long, conflicts_with = "template")]
    raw: bool,
    /// Write the prompt out by the model's chat template [default for pretrained models that have one]
    #[arg(long)]
    template: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
}

pub(super) fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let settings = args.sampling.settings()?;
    let policy = PolicyOfRun::open(&args.run)?;
    let tokenizer = &policy.model.tokenizer;
    let prompt = if args.template || (policy.chats() && !args.raw) {
        policy.chat(&[Message::user(&args.prompt)])?
    } else {
        tokenizer.encode_prompt(&args.prompt)?
    };
    let mut out = std::io::stdout();
    policy.answer(prompt, &settings, |text| {
        // Whoever closed the pipe wants no more.
        drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    })?;
    println!();
    Ok(ExitCode::SUCCESS)
}
