//! `forebay simulate`.

mod calibrate;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::config::{Override, Source};
use crate::simulate::{
    SimulateConfig, SimulateError, SimulationReport, Sweep, render_sweep, render_timelines, simulate,
    simulate_schedule,
};

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
    /// Compare throughputs with that of this system, under the same configuration without its changes of the schedule
    #[arg(long, value_name = "SYSTEM", conflicts_with = "calibrate")]
    against: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw into this file: of a sweep, throughput by value and by lag; otherwise engines, learner and lags over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw these figures of the report (as `--json` names them) of a sweep instead
    #[arg(long, value_delimiter = ',', value_name = "FIGURE,...", requires_all = ["svg", "sweep"])]
    plot: Vec<String>,
    /// Draw a sweep over time as well, as without one
    #[arg(long, requires_all = ["svg", "sweep"], conflicts_with = "plot")]
    timelines: bool,
    /// Write the trace of a single simulation into this file, for `forebay replay`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "sweep"])]
    trace: Option<PathBuf>,
    /// Fit the models to these runs (directories with a `trace.jsonl`, or traces) and predict them
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with = "trace")]
    calibrate: Vec<PathBuf>,
    /// Predict these runs as well, which the models are not fitted to
    #[arg(long, value_name = "RUN", num_args = 1.., requires = "calibrate")]
    predict: Vec<PathBuf>,
    /// Write the fitted configuration into this file, and recorded lengths beside it
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    write: Option<PathBuf>,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let name = args.config.display().to_string();
    let text = std::fs::read_to_string(&args.config).with_context(|| format!("cannot read {name}"))?;
    if !args.calibrate.is_empty() {
        return calibrated(args, &Source::parse(&text, &name, &args.overrides)?.read()?);
    }
    let reports = each_variant(args, &text, &args.overrides, |config| {
        simulate_schedule(config, config.settings()?, args.trace.as_deref())
    })?;
    let baseline = args.against.as_deref().map(|system| baseline(args, &text, system)).transpose()?;
    draw(args, &reports, baseline.as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    } else {
        print!("{}", table(&reports, baseline.as_ref()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The system that throughputs are compared with. Changes of the schedule belong to what is compared.
fn baseline(args: &SimulateArgs, text: &str, system: &str) -> anyhow::Result<SimulationReport> {
    let of_schedule = |change: &&Override| change.is_under("schedule") || change.is_under("system");
    let mut overrides: Vec<Override> =
        args.overrides.iter().filter(|change| !of_schedule(change)).cloned().collect();
    for change in [format!("system={system}"), "schedule={}".to_owned()] {
        overrides.push(change.parse()?);
    }
    let name = args.config.display().to_string();
    let config: SimulateConfig = Source::parse(text, &name, &overrides)?.read()?;
    simulate(&config).with_context(|| format!("{name} ({system})"))
}

/// Fits the models first; simulates what is to be compared or swept over them.
fn calibrated(args: &SimulateArgs, base: &SimulateConfig) -> anyhow::Result<ExitCode> {
    let (calibration, predicted) = calibrate::fitted(base, &args.calibrate, &args.predict)?;
    if let Some(path) = &args.write {
        calibrate::write(&calibration, path)?;
    }
    let reports = if args.compare.is_empty() && args.sweep.is_none() {
        Vec::new()
    } else {
        let fitted = toml::to_string(&calibration.config)?;
        each_variant(args, &fitted, &[], |config| calibration.simulate(config))?
    };
    draw(args, &reports, None)?;
    if args.json {
        let value = serde_json::json!({
            "fitted": serde_json::to_value(&calibration.config)?,
            "runs": serde_json::to_value(&predicted)?,
            "simulations": serde_json::to_value(&reports)?,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", calibrate::shown(&calibration, &predicted));
        if !reports.is_empty() {
            print!("\n{}", table(&reports, None));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates all that is to be compared or swept, each under its label.
fn each_variant(
    args: &SimulateArgs,
    text: &str,
    overrides: &[Override],
    simulated: impl Fn(&SimulateConfig) -> Result<SimulationReport, SimulateError>,
) -> anyhow::Result<Vec<SimulationReport>> {
    let name = args.config.display().to_string();
    variants(args)?
        .into_iter()
        .map(|(label, changes)| {
            let config: SimulateConfig =
                Source::parse(text, &name, &[overrides, &changes].concat())?.read()?;
            let place = if label.is_empty() { name.clone() } else { format!("{name} ({label})") };
            let report = simulated(&config).context(place)?;
            let system = if label.is_empty() { report.system.clone() } else { label };
            Ok(SimulationReport { system, ..report })
        })
        .collect()
}

fn draw(
    args: &SimulateArgs,
    reports: &[SimulationReport],
    baseline: Option<&SimulationReport>,
) -> anyhow::Result<()> {
    let Some(path) = &args.svg else { return Ok(()) };
    let drawing = match &args.sweep {
        Some(sweep) if !args.timelines => {
            let (field, values) = split_sweep(sweep)?;
            let known = serde_json::to_value(SimulationReport::default())?;
            if let Some(unknown) = args.plot.iter().find(|figure| known.get(figure).is_none()) {
                let names: Vec<&str> = known
                    .as_object()
                    .into_iter()
                    .flat_map(|fields| fields.keys())
                    .map(String::as_str)
                    .collect();
                bail!("`--plot {unknown}`: no such figure; there are: {}", names.join(", "));
            }
            let systems = if args.compare.is_empty() { vec![String::new()] } else { args.compare.clone() };
            let of = |index: usize| {
                let reports = reports.iter().skip(index * values.len()).cloned();
                values.iter().map(|value| shortened(value)).zip(reports).collect()
            };
            let series = systems.into_iter().enumerate().map(|(index, system)| (system, of(index))).collect();
            render_sweep(&Sweep {
                field: field.to_owned(),
                series,
                baseline: baseline.cloned(),
                figures: args.plot.clone(),
            })
        }
        _ => render_timelines(reports),
    };
    std::fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))
}

/// The field of a sweep and its values: what stands between commas that no bracket encloses.
fn split_sweep(sweep: &str) -> anyhow::Result<(&str, Vec<&str>)> {
    let Some((field, values)) = sweep.split_once('=') else {
        bail!("`--sweep {sweep}`: expected `field=value,value,...`");
    };
    let mut depth = 0_i32;
    let split = values.split(|letter| {
        depth += i32::from(matches!(letter, '{' | '[')) - i32::from(matches!(letter, '}' | ']'));
        letter == ',' && depth == 0
    });
    Ok((field.trim(), split.map(str::trim).collect()))
}

/// A value as a label: of a table, the words and numbers in it, and of tables in a table the first word.
fn shortened(value: &str) -> String {
    if !value.starts_with('{') {
        return value.trim_matches('"').to_owned();
    }
    if let (1.., Some(word)) = (value.matches('{').count() - 1, value.split('"').nth(1)) {
        return word.to_owned();
    }
    let inner = value.trim_matches(['{', '}']).split(',');
    let values =
        inner.filter_map(|entry| entry.split_once('=')).map(|(_, value)| value.trim().trim_matches('"'));
    values.collect::<Vec<_>>().join(" ")
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
    let (field, values) = split_sweep(sweep)?;
    let mut variants = Vec::new();
    for (label, changes) in systems {
        for value in &values {
            let mut changes = changes.clone();
            changes.push(change(format!("{field}={value}"))?);
            let last = field.rsplit('.').next().unwrap_or(field);
            variants.push((format!("{label} {last}={}", shortened(value)).trim().to_owned(), changes));
        }
    }
    Ok(variants)
}

fn table(reports: &[SimulationReport], baseline: Option<&SimulationReport>) -> String {
    let against = baseline.map(|of| format!("of {}", of.system));
    let cells = |report: &SimulationReport| {
        let mut row = report.row().to_vec();
        if let (Some(heading), Some(of)) = (&against, baseline) {
            row.insert(
                2,
                (heading.as_str(), format!("{:.2}", report.tokens_per_second / of.tokens_per_second)),
            );
        }
        row
    };
    let rows: Vec<Vec<(&str, String)>> = reports.iter().map(cells).collect();
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
            against: None,
            svg: None,
            plot: Vec::new(),
            timelines: false,
            trace: None,
            calibrate: Vec::new(),
            predict: Vec::new(),
            write: None,
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
        let units = "schedule.dispatch={unit=\"sample\"},{unit = \"batch\", groups = 16}";
        assert_eq!(labels(&[], Some(units)), ["dispatch=sample", "dispatch=batch 16"]);
        let whole = "schedule={dispatch={unit=\"mixer\"},sources=[{name=\"a\"}]}";
        assert_eq!(labels(&[], Some(whole)), ["schedule=mixer"]);
        let error = variants(&args(&[], Some("lead"))).unwrap_err().to_string();
        assert!(error.contains("`--sweep lead`: expected"), "{error}");
    }

    #[test]
    fn the_table_has_a_line_for_each_report_under_its_headings() {
        let report = |system: &str| SimulationReport { system: system.into(), ..SimulationReport::default() };
        let text = table(&[report("sync"), report("kimi_k1_5")], None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("system     tokens/s"), "{text}");
        assert!(lines[1].starts_with("sync ") && lines[2].starts_with("kimi_k1_5 ") && lines.len() == 3);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    }
}
