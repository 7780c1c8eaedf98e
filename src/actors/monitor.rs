//! What the root shows of the whole while a run goes on: gauges that belong to no single actor, the progress line,
//! the status page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::run::Run;
use crate::telemetry::{Progress, ProgressSnapshot, RunStatus, StatusBoard};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Totals at the last look, from which rates are told.
struct Last {
    instant: Instant,
    env_steps: u64,
    learner_busy: Duration,
    rollout_busy: Duration,
    inference_busy: Duration,
}

/// See the module's documentation.
pub struct Monitor {
    progress: Progress,
    board: Arc<StatusBoard>,
    started: Instant,
    earlier_seconds: f64,
    last: Option<Last>,
}

impl Monitor {
    /// A monitor that shows through `progress` and `board`.
    #[must_use]
    pub fn new(progress: Progress, board: Arc<StatusBoard>, earlier_seconds: f64) -> Self {
        Self { progress, board, started: Instant::now(), earlier_seconds, last: None }
    }

    /// Shows where the run stands, unless it did a moment ago.
    pub fn tick(&mut self, run: &Run) {
        let now = Instant::now();
        if self.last.as_ref().is_some_and(|last| now - last.instant < INTERVAL) {
            return;
        }
        let ledger = run.ledger.snapshot();
        let env_steps = ledger.submitted.steps;
        let figures = run.figures();
        let totals = Last {
            instant: now,
            env_steps,
            learner_busy: run.learner_busy.total(),
            rollout_busy: run.rollout_busy.total(),
            inference_busy: run.inference_busy.total(),
        };
        let mut steps_per_second = 0.0;
        if let Some(last) = &self.last {
            steps_per_second = (env_steps - last.env_steps) as f64 / (now - last.instant).as_secs_f64();
            show_busy(run, last, &totals);
        }
        for (actor, lag) in run.bus.lags(figures.version).take(run.config.rollout.actors).enumerate() {
            run.metrics.actor(actor as u32).lag.set(lag);
        }
        run.metrics.queue.depth.set(run.queue_depth() as u64);
        run.metrics.observe_ledger(&ledger);
        let stop = &run.config.stop;
        let wall_seconds = self.earlier_seconds + self.started.elapsed().as_secs_f64();
        let fractions = [
            stop.env_steps.map(|limit| env_steps as f64 / limit as f64),
            stop.updates.map(|limit| figures.version.0 as f64 / limit as f64),
            stop.seconds.map(|limit| wall_seconds / limit),
        ];
        let snapshot = ProgressSnapshot {
            env_steps,
            updates: figures.version.0,
            wall_seconds,
            steps_per_second,
            return_mean: figures.return_mean,
            eval_mean: figures.eval_mean,
            lag_mean: figures.lag_mean,
            queue_depth: run.queue_depth() as u64,
            queue_capacity: run.queue_capacity() as u64,
            fraction_done: fractions.into_iter().flatten().reduce(f64::max).map(|fraction| fraction.min(1.0)),
        };
        self.progress.update(&snapshot);
        let status = RunStatus { progress: snapshot, ledger, restarts: run.restarts(), ..self.board.get() };
        self.board.set(status);
        self.last = Some(totals);
    }
}

/// Busy fraction of each role, and how well rollout and learning overlap.
fn show_busy(run: &Run, last: &Last, now: &Last) {
    let elapsed = (now.instant - last.instant).as_secs_f64();
    let fraction = |now: Duration, last: Duration, threads: usize| {
        now.saturating_sub(last).as_secs_f64() / (elapsed * threads.max(1) as f64)
    };
    let learner = fraction(now.learner_busy, last.learner_busy, 1);
    let rollout = fraction(now.rollout_busy, last.rollout_busy, run.config.rollout.actors);
    run.metrics.roles.set_busy_fraction("learner", learner);
    run.metrics.roles.set_busy_fraction("rollout", rollout);
    if run.inference_actors() > 0 {
        let inference = fraction(now.inference_busy, last.inference_busy, run.inference_actors());
        run.metrics.roles.set_busy_fraction("inference", inference);
    }
    // Busy time of the slower side over elapsed time, which is max(T_generate, T_train) / T_step.
    run.metrics.roles.set_overlap_efficiency(learner.max(rollout).min(1.0));
}
