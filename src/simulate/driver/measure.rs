//! The figures of a report.

use super::Simulation;
use crate::simulate::engine::{Engine, Usage};
use crate::simulate::report::Timeline;

/// Sums since the report's figures began.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Seconds in which the learner worked, and in which generation was on.
    pub learned: f64,
    pub generating: f64,
    /// Tokens learned from, by lag.
    tokens: Vec<u64>,
    /// Of these, tokens of versions before the one that ended their answer.
    carried: u64,
    pub answers: u64,
    /// Seconds for which answers waited for the last of their group, and how many did.
    waits: (f64, u64),
    /// Preemptions before.
    preempted: u64,
}

impl Sums {
    pub fn waited(&mut self, seconds: f64) {
        self.waits.0 += seconds;
        self.waits.1 += 1;
    }

    pub fn learned_from(&mut self, tokens: u64, lag: u64, carried: bool) {
        let lag = lag as usize;
        if self.tokens.len() <= lag {
            self.tokens.resize(lag + 1, 0);
        }
        self.tokens[lag] += tokens;
        self.carried += if carried { tokens } else { 0 };
    }
}

impl Simulation<'_> {
    /// The warm-up is over: figures begin anew.
    pub(super) fn measure_from_here(&mut self) {
        for engine in &mut self.engines {
            engine.advance(self.now);
            engine.usage = Usage { preemptions: engine.usage.preemptions, ..Usage::default() };
        }
        if let Some(learning) = &mut self.learning {
            learning.since = self.now;
        }
        self.sums = Sums { preempted: self.preempted(), ..Sums::default() };
        self.report.consumed_by_source.fill(0);
        self.report.timeline = Timeline { from: self.now, ..Timeline::default() };
    }

    fn preempted(&self) -> u64 {
        self.engines.iter().map(|engine| engine.usage.preemptions).sum()
    }

    pub(super) fn conclude(&mut self, from: f64) {
        for engine in &mut self.engines {
            engine.advance(self.now);
        }
        let seconds = self.now - from;
        let engines = self.engines.len() as f64;
        let sum = |of: fn(&Engine) -> f64| self.engines.iter().map(of).sum::<f64>();
        let busy = sum(|engine| engine.usage.busy);
        let sums = &self.sums;
        let generating = sums.generating.max(f64::MIN_POSITIVE);
        let all: u64 = sums.tokens.iter().sum();
        let lags: f64 = sums.tokens.iter().enumerate().map(|(lag, tokens)| lag as f64 * *tokens as f64).sum();
        let ledger = self.scheduler.ledger();
        let updates = self.config.updates - self.config.warmup;
        let preemptions = self.preempted() - sums.preempted;
        let report = &mut self.report;
        report.updates = updates;
        report.seconds = seconds;
        report.seconds_per_update = seconds / updates as f64;
        report.trained_tokens = all;
        report.tokens_per_second = all as f64 / seconds;
        report.old_fraction = (all - sums.tokens.first().copied().unwrap_or(0)) as f64 / all.max(1) as f64;
        report.carried_fraction = sums.carried as f64 / all.max(1) as f64;
        report.lag_mean = lags / all.max(1) as f64;
        report.lag_max = sums.tokens.len().saturating_sub(1) as u64;
        report.lag_histogram.clone_from(&sums.tokens);
        report.mean_length = all as f64 / sums.answers.max(1) as f64;
        report.live_mean = sum(|engine| engine.usage.occupancy) / generating;
        report.generation_busy = busy / (engines * seconds);
        report.learning_busy = sums.learned / seconds;
        report.prefill_share = sum(|engine| engine.usage.prefill) / busy.max(f64::MIN_POSITIVE);
        report.overlap_efficiency = (busy / engines).max(sums.learned) / seconds;
        report.group_wait_seconds = sums.waits.0 / sums.waits.1.max(1) as f64;
        if self.config.engine.kv_tokens.is_some() {
            let most = self.engines.iter().map(|engine| engine.usage.kv_most).fold(0.0, f64::max);
            report.kv_use = Some(sum(|engine| engine.usage.kv_use) / (engines * generating));
            (report.kv_use_max, report.preemptions) = (Some(most), Some(preemptions));
        }
        (report.submitted, report.consumed, report.dropped) =
            (ledger.submitted, ledger.consumed, ledger.dropped_in_all());
        report.timeline.until = self.now;
    }
}
