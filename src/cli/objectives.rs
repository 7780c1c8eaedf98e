//! `forebay objectives`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use crate::learner::token::{TOKEN_OBJECTIVES, TokenObjectiveEntry};

/// What the letters of the formulas stand for.
const LETTERS: &str = "\
The loss of a token (a sequence, a pair) by `learner.loss.objective.kind`.
lp = log pi, the current policy's; mu sampled the token; prox is the policy at the start of the step; r = pi / mu;
A = advantage; sg[] has no gradient; clip(r) keeps r within the objective's bounds; 1[] is 1 where it holds, else 0.";

/// Arguments of `forebay objectives`.
#[derive(Debug, Args)]
pub struct ObjectivesArgs {
    /// Only this one
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ObjectivesArgs) -> anyhow::Result<ExitCode> {
    let wanted = |entry: &&TokenObjectiveEntry| args.name.as_deref().is_none_or(|name| name == entry.kind());
    let entries: Vec<&TokenObjectiveEntry> = TOKEN_OBJECTIVES.iter().filter(wanted).collect();
    if let (Some(name), true) = (&args.name, entries.is_empty()) {
        let known: Vec<&str> = TOKEN_OBJECTIVES.iter().map(TokenObjectiveEntry::kind).collect();
        bail!("unknown objective `{name}`; there are: {}", known.join(", "));
    }
    if args.json {
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| {
                json!({
                    "name": entry.kind(),
                    "formula": entry.formula,
                    "defaults": entry.defaults(),
                    "source": entry.source,
                    "refuses": entry.refuses(),
                })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{LETTERS}");
    for entry in entries {
        println!("\n{:<14} {}", entry.kind(), entry.formula);
        println!("{:<14} defaults  {}", "", entry.defaults());
        println!("{:<14} source    {}", "", entry.source);
        println!("{:<14} refuses   {}", "", entry.refuses());
    }
    Ok(ExitCode::SUCCESS)
}
