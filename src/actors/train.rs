//! A whole training run: from a configuration and a run directory to a summary.
//!
//! The same call trains built-in environments from the command line and environments of a user's own program; the
//! registry is all that differs.

use std::path::PathBuf;
use std::sync::Arc;

use super::build::{Devices, Prepared, build};
use super::conclude::conclude;
use super::interrupt::Interrupt;
use super::monitor::Monitor;
use super::run::Run;
use super::run_dir::RunDir;
use super::serial::run_serial;
use super::threaded::run_threaded;
use super::train_error::TrainError;
use crate::config::Config;
use crate::env::Registry;
use crate::telemetry::{Metrics, MetricsServer, Progress, RunStatus, StatusBoard, Summary};

/// How to run.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Where everything is written.
    pub run_dir: PathBuf,
    /// Continue the run in that directory from its last checkpoint.
    pub resume: bool,
    /// Start no threads for compute and step everything in a fixed order.
    pub serial: bool,
    /// Write every event and command of a token run's schedule to `trace.jsonl` in the run directory.
    pub trace: bool,
}

/// Trains until a stop condition, a signal or a failure; the summary is also in the run directory. A run that failed
/// after it started is an `Ok` with that status.
///
/// # Errors
/// When the run cannot start, or its files cannot be written.
pub fn train(config: Config, registry: Registry, options: &TrainOptions) -> Result<Summary, TrainError> {
    config.check(&registry)?;
    let spec = Run::make_env(&registry, &config)?.spec().clone();
    config.check_spec(&spec)?;
    let devices = Devices::open(&config)?;
    let metrics = Arc::new(Metrics::new(&config.env.name));
    let board = Arc::new(StatusBoard::default());
    // Before the directory, like all that can refuse to start, so that a port in use leaves nothing behind.
    let server = MetricsServer::start(config.telemetry.listen, Arc::clone(&metrics), Arc::clone(&board))?;
    let run_dir = RunDir::prepare(&options.run_dir, options.resume)?;
    let earlier = Summary::read(run_dir.path()).ok().filter(|_| options.resume);
    if let Some(summary) = earlier.filter(|summary| config.stop.is_complete(summary)) {
        eprintln!("{} is complete already; nothing to do", options.run_dir.display());
        return Ok(summary);
    }
    board.set(RunStatus { run: run_dir.name(), env: config.env.name.clone(), ..RunStatus::default() });
    if let Some(server) = &server {
        eprintln!("metrics and status: http://{}/", server.address());
        run_dir.note_address(server.address())?;
    }

    let prepared = build(config, registry, spec, devices, &metrics, &run_dir, options)?;
    let Prepared { run, mut learner, rollouts } = prepared;
    let earlier_seconds = learner.wall_seconds();
    let interrupt = Interrupt::listen();
    let monitor =
        Monitor::new(Progress::new(run.config.telemetry.progress), Arc::clone(&board), earlier_seconds);
    let (ending, role) = if options.serial {
        let ending = run_serial(&run, &mut learner, rollouts, &interrupt, monitor);
        (ending, Some(learner))
    } else {
        run_threaded(&run, learner, rollouts, &interrupt, monitor)
    };
    let summary = conclude(&run, &run_dir, ending, role, earlier_seconds, &interrupt)?;
    board.set(RunStatus { outcome: Some(summary.status), ..board.get() });
    if let Some(server) = server {
        server.stop();
    }
    Ok(summary)
}
