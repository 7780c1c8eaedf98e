//! `forebay systems`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use crate::schedule::systems::{SYSTEMS, System};

/// Axes of the table, as fields of a schedule; the value of a table is the field that says its kind.
const AXES: [(&str, &str); 9] = [
    ("layout", ""),
    ("dispatch", "unit"),
    ("round_end", "rule"),
    ("interrupt", ""),
    ("resume", "mode"),
    ("order", ""),
    ("push", "when"),
    ("admission", ""),
    ("consume", ""),
];

/// Arguments of `forebay systems`.
#[derive(Debug, Args)]
pub struct SystemsArgs {
    /// Only this one, with what its description leaves open
    name: Option<String>,
    /// Print JSON, with every field of each schedule
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SystemsArgs) -> anyhow::Result<ExitCode> {
    let wanted = |system: &&System| args.name.as_deref().is_none_or(|name| name == system.name);
    let systems: Vec<&System> = SYSTEMS.iter().filter(wanted).collect();
    if let (Some(name), true) = (&args.name, systems.is_empty()) {
        let known: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
        bail!("unknown system `{name}`; there are: {}", known.join(", "));
    }
    if args.json {
        let entries: Result<Vec<Value>, serde_json::Error> =
            systems.iter().map(|system| entry(system)).collect();
        println!("{}", serde_json::to_string_pretty(&entries?)?);
        return Ok(ExitCode::SUCCESS);
    }
    let width = |index: usize| if index < 7 { 12 } else { 22 };
    print!("{:<14}", "system");
    for (index, (axis, _)) in AXES.iter().enumerate() {
        print!(" {axis:<w$}", w = width(index));
    }
    println!(" objective");
    for system in &systems {
        let schedule = serde_json::to_value(system.settings())?;
        print!("{:<14}", system.name);
        for (index, (axis, kind)) in AXES.iter().enumerate() {
            print!(" {:<w$}", shown(&schedule[*axis], kind), w = width(index));
        }
        println!(" {}", system.objective);
    }
    if let (Some(_), [system]) = (&args.name, systems.as_slice()) {
        println!("\n{}, {}", system.title, system.source);
        println!(
            "{}, {} advantage, {} aggregation, discount {}",
            system.objective, system.advantage, system.aggregation, system.gamma
        );
        println!("ours: {}", system.reading);
    }
    Ok(ExitCode::SUCCESS)
}

fn entry(system: &System) -> Result<Value, serde_json::Error> {
    Ok(json!({
        "name": system.name,
        "title": system.title,
        "source": system.source,
        "objective": system.objective,
        "advantage": system.advantage,
        "aggregation": system.aggregation,
        "gamma": system.gamma,
        "reading": system.reading,
        "schedule": serde_json::to_value(system.settings())?,
    }))
}

/// A kind, a word, or the fields that are set, in short.
fn shown(value: &Value, kind: &str) -> String {
    match (value, kind) {
        (Value::String(word), _) => word.clone(),
        (Value::Object(fields), "") => {
            let set = fields.iter().filter_map(|(name, value)| match value {
                Value::Null | Value::Bool(false) | Value::String(_) => None,
                Value::Bool(true) => Some(name.clone()),
                Value::Object(inner) => {
                    let none = inner.get("rule").is_some_and(|rule| rule == "none");
                    (!none).then(|| name.clone())
                }
                value => Some(format!("{name}={value}")),
            });
            let set: Vec<String> = set.collect();
            if set.is_empty() { "-".to_owned() } else { set.join(" ") }
        }
        (Value::Object(fields), kind) => fields.get(kind).and_then(Value::as_str).unwrap_or("-").to_owned(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_of_every_system_has_a_word() {
        for system in &SYSTEMS {
            let entry = entry(system).unwrap();
            for (axis, kind) in AXES {
                let value = &entry["schedule"][axis];
                assert!(!value.is_null(), "{}: {axis}", system.name);
                assert!(kind.is_empty() || shown(value, kind) != "-", "{}: {axis}", system.name);
            }
        }
        let april = entry(System::named("april").unwrap()).unwrap();
        assert_eq!(shown(&april["schedule"]["round_end"], "rule"), "groups");
        assert_eq!(shown(&april["schedule"]["consume"], ""), "-");
    }
}
