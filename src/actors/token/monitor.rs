//! What the root shows of a token run while it goes on: gauges that belong to no single actor, the progress line, the
//! status page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::run::TokenRun;
use crate::actors::threaded::Observer;
use crate::telemetry::{Progress, StatusBoard, TokenProgress, TokenRunStatus};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Totals at the last look, from which rates are told.
struct Last {
    instant: Instant,
    tokens: u64,
    learner_busy: Duration,
    generator_busy: Duration,
}

/// See the module's documentation.
pub struct TokenMonitor {
    run: Arc<TokenRun>,
    progress: Progress,
    board: Arc<StatusBoard<TokenRunStatus>>,
    started: Instant,
    earlier_seconds: f64,
    last: Option<Last>,
}

impl TokenMonitor {
    /// A monitor that shows through `progress` and `board`.
    #[must_use]
    pub fn new(
        run: Arc<TokenRun>,
        progress: Progress,
        board: Arc<StatusBoard<TokenRunStatus>>,
        earlier_seconds: f64,
    ) -> Self {
        Self { run, progress, board, started: Instant::now(), earlier_seconds, last: None }
    }
}

impl Observer for TokenMonitor {
    fn tick(&mut self) {
        let now = Instant::now();
        if self.last.as_ref().is_some_and(|last| now - last.instant < INTERVAL) {
            return;
        }
        let run = &self.run;
        let ledger = run.ledger.snapshot();
        let tokens = ledger.submitted.steps;
        let figures = run.figures();
        let totals = Last {
            instant: now,
            tokens,
            learner_busy: run.learner_busy.total(),
            generator_busy: run.generator_busy.total(),
        };
        let mut tokens_per_second = 0.0;
        if let Some(last) = &self.last {
            tokens_per_second = (tokens - last.tokens) as f64 / (now - last.instant).as_secs_f64();
            show_busy(run, last, &totals);
        }
        for (generator, lag) in run.bus.lags(figures.version).enumerate() {
            run.metrics.generator(generator as u32).lag.set(lag);
        }
        let ready = run.plane.ready_groups() as u64;
        run.metrics.queue.depth.set(ready);
        let (kept, refused) = run.plane.host_cache();
        run.metrics.host_cache.tokens.set(kept as u64);
        run.metrics.host_cache.refused.set(refused);
        run.metrics.observe_ledger(&ledger);
        let stop = &run.config.stop;
        let wall_seconds = self.earlier_seconds + self.started.elapsed().as_secs_f64();
        let fractions = [
            stop.tokens.map(|limit| tokens as f64 / limit as f64),
            stop.updates.map(|limit| figures.version.0 as f64 / limit as f64),
            stop.seconds.map(|limit| wall_seconds / limit),
        ];
        let generators = (0..run.plane.generators()).map(|index| run.metrics.generator(index as u32));
        let (running, waiting) = generators.fold((0, 0), |(running, waiting), generator| {
            (running + generator.running.get(), waiting + generator.waiting.get())
        });
        let snapshot = TokenProgress {
            tokens,
            updates: figures.version.0,
            wall_seconds,
            tokens_per_second,
            warmup_loss: figures.warmup_loss,
            reward_mean: figures.reward_mean,
            solved: figures.solved,
            eval_mean: figures.eval_mean,
            response_length_mean: figures.response_length_mean,
            lag_mean: figures.lag_mean,
            running,
            waiting,
            queue_depth: ready,
            queue_capacity: run.metrics.queue.capacity.get(),
            fraction_done: fractions.into_iter().flatten().reduce(f64::max).map(|fraction| fraction.min(1.0)),
        };
        self.progress.update(&snapshot);
        let status = TokenRunStatus {
            progress: snapshot,
            ledger: ledger.into(),
            restarts: run.restarts(),
            ..self.board.get()
        };
        self.board.set(status);
        self.last = Some(totals);
    }

    fn restarted(&mut self, kind: &str) {
        self.run.note_restart(kind);
    }

    fn detached(&mut self) {
        self.run.note_detached();
    }
}

/// Busy fraction of each role, and how well generation and learning overlap.
fn show_busy(run: &TokenRun, last: &Last, now: &Last) {
    let elapsed = (now.instant - last.instant).as_secs_f64();
    let fraction = |now: Duration, last: Duration, threads: usize| {
        now.saturating_sub(last).as_secs_f64() / (elapsed * threads.max(1) as f64)
    };
    let learner = fraction(now.learner_busy, last.learner_busy, 1);
    let generator = fraction(now.generator_busy, last.generator_busy, run.plane.generators());
    run.metrics.roles.set_busy_fraction("learner", learner);
    run.metrics.roles.set_busy_fraction("generation", generator);
    // Busy time of the slower side over elapsed time, which is max(T_generate, T_train) / T_step.
    run.metrics.roles.set_overlap_efficiency(learner.max(generator).min(1.0));
}
