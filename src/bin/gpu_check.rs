//! Checks this build on a CUDA device: every kernel, every operator, speed, language models, and half a minute of
//! training.
//!
//! Prints a table, writes figures to `--json FILE`, and exits with 1 when something is not as it must be. Run it from
//! the root of the repository, beside the `forebay` program of the same build.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use clap::Parser;
use forebay::kernel_check::{CaseReport, Report, on_device};
use serde::Serialize;

/// Checks kernels, operators, speed and training on a CUDA device.
#[derive(Debug, Parser)]
#[command(name = "gpu_check", version, about)]
struct Arguments {
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// File for the figures
    #[arg(long)]
    json: Option<PathBuf>,
    /// The program to train with [default: `forebay` beside this one]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Configuration to train with
    #[arg(long, default_value = "configs/control/cartpole.toml")]
    config: PathBuf,
    /// Seconds of training; 0 leaves it out
    #[arg(long, default_value_t = 30)]
    seconds: u32,
}

/// What is written to the file.
#[derive(Debug, Serialize)]
struct Figures {
    card: String,
    checks: Report,
    training: Option<serde_json::Value>,
    training_error: Option<String>,
    seconds: f64,
    failed: usize,
}

fn main() -> ExitCode {
    match check(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; gives back how many checks failed.
fn check(arguments: &Arguments) -> Result<usize> {
    let started = Instant::now();
    let card = card();
    println!("{card}");
    // A stream of its own, as in training.
    let device = match Device::new_cuda_with_stream(arguments.device) {
        Ok(device) => device,
        Err(error) => {
            bail!("no usable CUDA device: {}", error.to_string().lines().next().unwrap_or_default())
        }
    };
    let checks = on_device(&device, show)?;
    let (training, training_error) = match arguments.seconds {
        0 => (None, None),
        seconds => match train(arguments, seconds) {
            Ok(summary) => (Some(summary), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        },
    };
    let all = [&checks.kernels, &checks.operators, &checks.speed, &checks.language];
    let count: usize = all.iter().map(|reports| reports.len()).sum();
    let failed = all.into_iter().flatten().filter(|report| !report.passed).count()
        + usize::from(training_error.is_some());
    match (&training, &training_error) {
        (Some(summary), _) => {
            let field = |name: &str| summary.get(name).map_or_else(|| "-".into(), ToString::to_string);
            println!(
                "training: {} steps a second, return {}",
                field("steps_per_second"),
                field("return_mean")
            );
        }
        (None, Some(error)) => println!("training FAILED: {error}"),
        (None, None) => println!("training: left out"),
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{count} checks and training in {seconds:.0} s, {failed} failed");
    let figures = Figures { card, checks, training, training_error, seconds, failed };
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(failed)
}

/// A line of the table.
fn show(report: &CaseReport) {
    let verdict = if report.passed { "ok" } else { "FAILED" };
    let figures = match (&report.error, report.difference, report.milliseconds) {
        (Some(error), ..) => error.clone(),
        (None, Some((difference, bound)), _) => format!("difference {difference:.1e} of {bound:.1e}"),
        (None, None, Some((time, floor))) => {
            format!("{time:.3} ms, floor {floor:.3} ms ({:.0} %)", 100.0 * floor / time)
        }
        (None, None, None) => {
            report.tokens_per_second.map_or_else(String::new, |rate| format!("{rate:.0} tokens/s"))
        }
    };
    println!("{:70} {verdict:6} {figures}", report.name);
}

/// Name, driver and memory of the card, as far as the driver's tool says.
fn card() -> String {
    let query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output();
    output.map_or_else(
        |_| "unknown card".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// Trains with the learner on the device; the summary of the run.
fn train(arguments: &Arguments, seconds: u32) -> Result<serde_json::Value> {
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()?.parent().unwrap_or(Path::new(".")).join("forebay"),
    };
    let run = std::env::temp_dir().join(format!("gpu_check-{}", std::process::id()));
    let settings = [
        format!("devices.learner=\"cuda:{}\"", arguments.device),
        format!("stop={{ seconds = {seconds} }}"),
        "telemetry.listen=off".into(),
        "telemetry.progress=off".into(),
        "telemetry.tensorboard=false".into(),
    ];
    let mut command = Command::new(&binary);
    command.arg("train").arg(&arguments.config).arg("--run-dir").arg(&run);
    for setting in &settings {
        command.args(["--set", setting]);
    }
    let output = command.output().with_context(|| format!("starting {}", binary.display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let summary = std::fs::read_to_string(run.join("summary.json")).context("the run left no summary")?;
    let summary: serde_json::Value = serde_json::from_str(&summary)?;
    let _ = std::fs::remove_dir_all(&run);
    match summary.get("status").and_then(serde_json::Value::as_str) {
        Some("completed") => Ok(summary),
        status => bail!("the run ended with status {status:?}"),
    }
}
