//! `forebay tasks`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::env::task::{Prompt, Split, TaskRegistry};

/// Arguments of `forebay tasks`.
#[derive(Debug, Args)]
pub struct TasksArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TasksArgs, registry: &TaskRegistry) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for entry in registry.entries() {
        // A task whose options have no defaults, such as a dataset's path, has no example.
        let task = registry.make(entry.name(), &toml::Table::new(), 0).ok();
        let example = task.and_then(|task| task.problem(Split::Train, 0).ok()).map(|problem| {
            let prompt = match problem.prompt {
                Prompt::Text(text) => text,
                Prompt::Messages(messages) => {
                    messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join(" / ")
                }
            };
            (prompt, problem.answer)
        });
        rows.push((entry, example));
    }
    if args.json {
        let entries: Vec<_> = rows
            .iter()
            .map(|(entry, example)| {
                json!({
                    "name": entry.name(),
                    "summary": entry.summary(),
                    "example": example.as_ref().map(|(prompt, answer)| json!({"prompt": prompt, "answer": answer})),
                })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{:<20} {:<34} summary", "name", "example");
    for (entry, example) in rows {
        let example = example.map(|(prompt, answer)| format!("{prompt} -> {answer}")).unwrap_or_default();
        let mut short: String = example.replace('\n', " ").chars().take(33).collect();
        if short.len() < example.len() {
            short.push('…');
        }
        println!("{:<20} {short:<34} {}", entry.name(), entry.summary());
    }
    Ok(ExitCode::SUCCESS)
}
