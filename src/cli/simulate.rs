//! `forebay simulate`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::config::{Override, Source};
use crate::simulate::{SimulateConfig, SimulationReport, render_svg, simulate_schedule};

/// Arguments of `forebay simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Configuration file (TOML)
    config: PathBuf,
    /// Override a field, as in `--set schedule.admission.lead=4`
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<Override>,
    /// Put these systems side by side, all with the rest of the configuration
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM,...")]
    compare: Vec<String>,
    /// Simulate once for each value of a field, as in `schedule.admission.lead=0,1,2,4`
    #[arg(long, value_name = "FIELD=VALUE,...")]
    sweep: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw engines, learner, lags and throughput into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the trace of a single simulation into this file, for `forebay replay`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "sweep"])]
    trace: Option<PathBuf>,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let name = args.config.display().to_string();
    let text = std::fs::read_to_string(&args.config).with_context(|| format!("cannot read {name}"))?;
    let reports: Vec<SimulationReport> = variants(args)?
        .into_iter()
        .map(|(label, changes)| {
            let overrides = [args.overrides.as_slice(), &changes].concat();
            let config: SimulateConfig = Source::parse(&text, &name, &overrides)?.read()?;
            let place = if label.is_empty() { name.clone() } else { format!("{name} ({label})") };
            let settings = config.settings().with_context(|| place.clone())?;
            let report = simulate_schedule(&config, settings, args.trace.as_deref()).context(place)?;
            Ok(SimulationReport {
                system: if label.is_empty() { report.system.clone() } else { label },
                ..report
            })
        })
        .collect::<anyhow::Result<_>>()?;
    if let Some(path) = &args.svg {
        std::fs::write(path, render_svg(&reports))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    } else {
        print!("{}", table(&reports));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is simulated: a label and the changes that make it.
fn variants(args: &SimulateArgs) -> anyhow::Result<Vec<(String, Vec<Override>)>> {
    let change = |text: String| text.parse::<Override>().map_err(anyhow::Error::from);
    let systems: Vec<(String, Vec<Override>)> = match args.compare.as_slice() {
        [] => vec![(String::new(), Vec::new())],
        systems => systems
            .iter()
            .map(|system| Ok((system.clone(), vec![change(format!("system={system}"))?])))
            .collect::<anyhow::Result<_>>()?,
    };
    let Some(sweep) = &args.sweep else { return Ok(systems) };
    let Some((field, values)) = sweep.split_once('=') else {
        bail!("`--sweep {sweep}`: expected `field=value,value,...`");
    };
    let mut variants = Vec::new();
    for (label, changes) in systems {
        for value in values.split(',') {
            let mut changes = changes.clone();
            changes.push(change(format!("{field}={value}"))?);
            let last = field.rsplit('.').next().unwrap_or(field);
            variants.push((format!("{label} {last}={value}").trim().to_owned(), changes));
        }
    }
    Ok(variants)
}

fn table(reports: &[SimulationReport]) -> String {
    let rows: Vec<_> = reports.iter().map(SimulationReport::row).collect();
    let Some(first) = rows.first() else { return String::new() };
    // A column in which nothing has a figure is left out.
    let shown: Vec<usize> =
        (0..first.len()).filter(|column| rows.iter().any(|row| row[*column].1 != "-")).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].1.chars().count());
        cells.chain([first[column].0.len()]).max().unwrap_or_default()
    };
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = shown
            .iter()
            .map(|&column| {
                let (cell, width) = (cells[column], width(column));
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            })
            .collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(first.iter().map(|(heading, _)| *heading).collect());
    for row in &rows {
        text.push_str(&line(row.iter().map(|(_, cell)| cell.as_str()).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(compare: &[&str], sweep: Option<&str>) -> SimulateArgs {
        SimulateArgs {
            config: PathBuf::new(),
            overrides: Vec::new(),
            compare: compare.iter().map(|name| (*name).to_owned()).collect(),
            sweep: sweep.map(str::to_owned),
            json: false,
            svg: None,
            trace: None,
        }
    }

    #[test]
    fn comparisons_and_sweeps_multiply() {
        let labels = |compare: &[&str], sweep| {
            let variants = variants(&args(compare, sweep)).unwrap();
            variants.into_iter().map(|(label, _)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&[], None), [""]);
        assert_eq!(labels(&["sync", "april"], None), ["sync", "april"]);
        assert_eq!(labels(&["areal"], Some("schedule.admission.lead=0,2")), ["areal lead=0", "areal lead=2"]);
        let error = variants(&args(&[], Some("lead"))).unwrap_err().to_string();
        assert!(error.contains("`--sweep lead`: expected"), "{error}");
    }

    #[test]
    fn the_table_has_a_line_for_each_report_under_its_headings() {
        let report = |system: &str| SimulationReport { system: system.into(), ..SimulationReport::default() };
        let text = table(&[report("sync"), report("kimi_k1_5")]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("system     tokens/s"), "{text}");
        assert!(lines[1].starts_with("sync ") && lines[2].starts_with("kimi_k1_5 ") && lines.len() == 3);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    }
}
