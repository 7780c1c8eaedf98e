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
    print!("{}", table(&systems)?);
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

/// A line for each system under the names of the axes, each column as wide as its longest word.
fn table(systems: &[&System]) -> Result<String, serde_json::Error> {
    let headings = ["system"].into_iter().chain(AXES.map(|(axis, _)| axis)).chain(["objective"]);
    let mut rows: Vec<Vec<String>> = vec![headings.map(str::to_owned).collect()];
    for system in systems {
        let schedule = serde_json::to_value(system.settings())?;
        let axes = AXES.iter().map(|(axis, kind)| shown(&schedule[*axis], kind));
        let ends = (system.name.to_owned(), system.objective.to_owned());
        rows.push([ends.0].into_iter().chain(axes).chain([ends.1]).collect());
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    Ok(rows.iter().map(line).collect())
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
    fn columns_stand_below_their_headings() {
        let text = table(&SYSTEMS.iter().collect::<Vec<_>>()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + SYSTEMS.len());
        for (axis, _) in AXES {
            let start = lines[0].find(axis).unwrap();
            for line in &lines[1..] {
                let (before, cell) = line.split_at(start);
                assert!(before.ends_with("  ") && !cell.starts_with(' '), "{axis} in\n{text}");
            }
        }
    }

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
