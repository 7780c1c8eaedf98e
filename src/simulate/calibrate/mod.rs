//! The models' figures, fitted to traces of real runs, and how well they then predict these and other runs.
//!
//! What is fitted: the time of a decode step (t₀ + t₁ n), of computing a token's state, of taking up weights, of an update
//! and of each of its tokens, of grading; how generation and learning slow each other down, from the difference between
//! runs that take turns and runs in which both go on at once; which share of groups is kept; and the lengths of
//! answers. Places and memory of an engine are not in a trace and stay as configured. Invariants:
//!
//! - A run is predicted from the schedule in its own trace, over the fitted models; nothing of its times is used but
//!   through the fit.
//! - Devices are taken as shared: each does both, and `contention` says at what price.

mod fit;
mod observe;

use std::path::{Path, PathBuf};

use serde::Serialize;

use self::observe::Observed;
use super::config::{ContentionConfig, CostConfig, EngineModel, SimulateConfig, SimulateError};
use super::driver::simulate_lengths;
use super::lengths::{LengthConfig, Lengths, SourceModel};
use super::report::SimulationReport;
use crate::schedule::axes::Layout;
use crate::schedule::trace::EngineStatistics;

/// A configuration whose models are fitted to runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The configuration.
    pub config: SimulateConfig,
    /// Lengths of the answers of each group that is complete in the runs: a file of these is `lengths.recorded`.
    pub lengths: Vec<Vec<u64>>,
}

/// What a run did, and what the models say that it does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// The run.
    pub run: PathBuf,
    /// Whether generation and learning share devices in turns.
    pub layout: Layout,
    /// Its updates.
    pub updates: u64,
    /// Tokens learned from a second, in the run.
    pub measured: f64,
    /// The same in the simulation.
    pub predicted: f64,
    /// predicted / measured − 1.
    pub error: f64,
    /// What else the simulation shows.
    pub report: SimulationReport,
}

/// Fits the models of a configuration to runs: directories with a trace, or traces.
///
/// # Errors
/// When a trace cannot be read, or has too little to fit anything to.
pub fn calibrate(base: &SimulateConfig, runs: &[PathBuf]) -> Result<Calibration, SimulateError> {
    let runs: Vec<Observed> = runs.iter().map(|run| Observed::read(run)).collect::<Result<_, _>>()?;
    let Some(first) = runs.first() else {
        return Err(SimulateError::Calibrate { run: PathBuf::new(), why: "no run is given".into() });
    };
    let engines = first.engines;
    if let Some(other) = runs.iter().find(|run| run.engines != engines) {
        let why = format!(
            "has {} engines and {} has {engines}; fit runs of the same machine",
            other.engines,
            first.path.display()
        );
        return Err(SimulateError::Calibrate { run: other.path.clone(), why });
    }
    let mut config = base.clone();
    config.devices.total = engines;
    config.devices.shared = true;
    (config.engine, config.costs, config.contention) = times(base, &runs, engines as f64)?;
    let lengths: Vec<Vec<u64>> = runs.iter().flat_map(Observed::complete_groups).collect();
    config.lengths = length_model(base, &runs, &lengths);
    Ok(Calibration { config, lengths })
}

impl Calibration {
    /// Simulates the schedule of a run, for as many updates, over the fitted models. With `own` lengths, its answers are
    /// as long as they were; otherwise as long as those of the runs that the models are fitted to.
    ///
    /// # Errors
    /// When its trace cannot be read, or its schedule stands still.
    pub fn predict(&self, run: &Path, own: bool) -> Result<Agreement, SimulateError> {
        let observed = Observed::read(run)?;
        let config = SimulateConfig {
            system: observed.name(),
            updates: observed.updates.len() as u64,
            warmup: 0,
            ..self.config.clone()
        };
        let recorded = if own { observed.all_groups() } else { self.lengths.clone() };
        let lengths = Lengths::of_groups(&config.lengths, config.seed, recorded);
        let layout = observed.settings.layout;
        let report = simulate_lengths(&config, observed.settings.clone(), lengths)?;
        let (measured, predicted) = (observed.tokens_per_second(), report.tokens_per_second);
        Ok(Agreement {
            run: run.to_owned(),
            layout,
            updates: config.updates,
            measured,
            predicted,
            error: predicted / measured - 1.0,
            report,
        })
    }

    /// Simulates a configuration over the lengths of the runs.
    ///
    /// # Errors
    /// When the configuration is wrong, or its schedule stands still.
    pub fn simulate(&self, config: &SimulateConfig) -> Result<SimulationReport, SimulateError> {
        let lengths = Lengths::of_groups(&config.lengths, config.seed, self.lengths.clone());
        simulate_lengths(config, config.settings()?, lengths)
    }

    /// The lengths as a file for `lengths.recorded`.
    #[must_use]
    pub fn lengths_file(&self) -> String {
        let line = |group: &Vec<u64>| {
            let lengths: Vec<String> = group.iter().map(u64::to_string).collect();
            lengths.join(" ") + "\n"
        };
        self.lengths.iter().map(line).collect()
    }
}

/// Times of engines and of the learner, each where nothing slows it down, and how they slow each other down.
fn times(
    base: &SimulateConfig,
    runs: &[Observed],
    engines: f64,
) -> Result<(EngineModel, CostConfig, ContentionConfig), SimulateError> {
    let of = |layout: Layout| runs.iter().filter(move |run| run.settings.layout == layout);
    let sums = |layout: Layout| {
        let mut sums = EngineStatistics::default();
        of(layout).for_each(|run| sums.merge(&run.statistics));
        sums
    };
    let (turns, both) = (sums(Layout::Colocated), sums(Layout::Decoupled));
    // What all else is measured against: engines that have the machine for themselves, as far as runs show them. Those of
    // decoupled runs have more sequences at a time, and rounds fewer: together they tell of all numbers.
    let mut free = turns.alone;
    free.merge(&both.alone);
    let reference = [free, both.beside].into_iter().find(|sums| sums.steps > 0);
    let Some((step_seconds, sequence_seconds)) = reference.and_then(|sums| fit::steps(&sums)) else {
        let why = "no decode steps are in the traces".to_owned();
        return Err(SimulateError::Calibrate { run: runs[0].path.clone(), why });
    };
    let factor = |sums: &crate::schedule::trace::StepSums| {
        let alone = step_seconds * sums.steps as f64 + sequence_seconds * sums.sequences as f64;
        if sums.steps > 0 { sums.seconds / alone } else { 1.0 }
    };
    let generation = factor(&both.beside);
    // The pace at which both go on at once, on average.
    let pace = (both.beside.seconds + both.alone.seconds)
        / (both.beside.seconds / generation + both.alone.seconds).max(f64::MIN_POSITIVE);
    let undisturbed = |of_turns: (f64, f64), of_both: (f64, f64)| {
        let (seconds, count) =
            if of_turns.1 > 0.0 { of_turns } else { (of_both.0 / pace.max(1e-9), of_both.1) };
        if count > 0.0 { seconds / count } else { 0.0 }
    };
    let prefill = |sums: &EngineStatistics| {
        // What takes up hardly any tokens tells what a round takes to begin, not what a token takes.
        let tells = 10 * sums.prefill_tokens >= sums.sampled;
        if tells { (sums.prefill_seconds, sums.prefill_tokens as f64) } else { (0.0, 0.0) }
    };
    let loads = |sums: &EngineStatistics| (sums.load_seconds, sums.loads as f64);
    let updates = |layout: Layout| of(layout).flat_map(Observed::update_points).collect::<Vec<_>>();
    let (apart, beside) = (updates(Layout::Colocated), updates(Layout::Decoupled));
    let points = if apart.is_empty() { &beside } else { &apart };
    let (update_seconds, token_seconds) = fit::line(points);
    let learning = if apart.is_empty() || beside.is_empty() {
        1.0
    } else {
        let taken: f64 = beside.iter().map(|(_, seconds)| seconds).sum();
        let alone: f64 = beside.iter().map(|(tokens, _)| update_seconds + token_seconds * tokens).sum();
        let overlap: f64 = of(Layout::Decoupled).map(|run| run.overlap).sum();
        let learned: f64 = of(Layout::Decoupled).map(|run| run.learned).sum();
        // Beside engines that work all the time.
        (1.0 + (taken / alone - 1.0) / (overlap / learned).clamp(0.05, 1.0)).max(0.05)
    };
    let graded: (f64, f64) =
        runs.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.grading_seconds, sum.1 + run.graded as f64));
    let engine = EngineModel {
        step_seconds,
        sequence_seconds,
        prefill_seconds: undisturbed(prefill(&turns), prefill(&both)),
        ..base.engine
    };
    let costs = CostConfig {
        train_seconds_per_token: token_seconds * engines,
        update_seconds,
        sync_seconds: undisturbed(loads(&turns), loads(&both)),
        grading_seconds: if graded.1 > 0.0 { graded.0 / graded.1 } else { 0.0 },
    };
    Ok((engine, costs, ContentionConfig { generation, learning }))
}

/// Lengths as a log-normal, prompts as long as they were on average, and the share of each source that is kept.
fn length_model(base: &SimulateConfig, runs: &[Observed], groups: &[Vec<u64>]) -> LengthConfig {
    let mut sums = EngineStatistics::default();
    runs.iter().for_each(|run| sums.merge(&run.statistics));
    let sources = runs.iter().map(|run| run.kept.len()).max().unwrap_or_default();
    let source = |index: usize| {
        let counts = runs.iter().filter_map(|run| run.kept.get(index));
        let (kept, all) = counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let acceptance = if kept > 0 { kept as f64 / all as f64 } else { 1.0 };
        SourceModel { acceptance, ..SourceModel::default() }
    };
    let fitted = fit::log_normal(groups).unwrap_or(fit::LogNormal {
        median: base.lengths.median,
        prompt_sigma: base.lengths.prompt_sigma,
        within_sigma: base.lengths.within_sigma,
        longest: base.lengths.cap,
    });
    LengthConfig {
        median: fitted.median,
        prompt_sigma: fitted.prompt_sigma,
        within_sigma: fitted.within_sigma,
        cap: fitted.longest,
        prompt_tokens: (sums.prompt_tokens as f64 / sums.began.max(1) as f64).round() as u64,
        sources: (0..sources).map(source).collect(),
        recorded: None,
    }
}
