//! `forebay envs`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::env::{ActionSpace, EnvSpec, Registry, WrapperConfig};

/// Arguments of `forebay envs`.
#[derive(Debug, Args)]
pub struct EnvsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EnvsArgs, registry: &Registry) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for entry in registry.entries() {
        // An environment whose options have no defaults cannot be shown in full.
        let spec = registry.make(entry.name(), &toml::Table::new(), &WrapperConfig::default());
        rows.push((entry, spec.ok().map(|env| env.spec().clone())));
    }
    if args.json {
        let entries: Vec<_> = rows
            .iter()
            .map(|(entry, spec)| {
                json!({
                    "name": entry.name(),
                    "summary": entry.summary(),
                    "time_limit": entry.time_limit(),
                    "spec": spec,
                })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{:<26} {:<14} {:<18} {:>6}  summary", "name", "observation", "action", "limit");
    for (entry, spec) in rows {
        let (observation, action) = spec.as_ref().map(describe).unwrap_or_default();
        let limit = entry.time_limit().map_or("none".into(), |limit| limit.to_string());
        println!("{:<26} {observation:<14} {action:<18} {limit:>6}  {}", entry.name(), entry.summary());
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(spec: &EnvSpec) -> (String, String) {
    let shape: Vec<String> = spec.observation_shape.iter().map(ToString::to_string).collect();
    let mut action = match &spec.action_space {
        ActionSpace::Discrete { n } => format!("discrete {n}"),
        ActionSpace::MultiDiscrete { sizes } => format!("multi {sizes:?}"),
        ActionSpace::Box { low, .. } => format!("box {}", low.len()),
    };
    if spec.masks_actions {
        action.push_str(" masked");
    }
    (shape.join("x"), action)
}
