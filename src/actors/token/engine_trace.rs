//! What an engine's steps take, for the run's trace.
//!
//! A step may decode and compute prompts at once. Its time is divided: decoding takes what a fit of t₀ + t₁ n to the steps
//! that do nothing else says, the rest is prefill. A step that decodes nothing still takes t₀.

use std::time::Duration;

use crate::generate::Usage;
use crate::schedule::trace::{EngineStatistics, StepSums};

/// Time between two lines of an engine.
const INTERVAL: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct EngineTrace {
    sums: EngineStatistics,
    /// Steps that only decoded.
    pure: StepSums,
    /// Time that `sums` covers.
    covered: Duration,
}

impl EngineTrace {
    /// A step took so long; `before` and `after` are the engine's totals around it, and `beside` says whether the
    /// learner worked meanwhile.
    pub(super) fn step(&mut self, before: &Usage, after: &Usage, took: Duration, beside: bool) {
        let sampled = after.sampled_tokens - before.sampled_tokens;
        let prefilled = after.prefilled_tokens - before.prefilled_tokens;
        let seconds = took.as_secs_f64();
        let mut decoding = seconds;
        if prefilled == 0 {
            self.pure.add(sampled, seconds);
        } else {
            let share = seconds * sampled as f64 / (sampled + prefilled) as f64;
            decoding = usual(&self.pure, sampled).unwrap_or(share).clamp(0.0, seconds);
            self.sums.prefill_tokens += prefilled;
            self.sums.prefill_seconds += seconds - decoding;
        }
        self.sums.step(sampled, decoding, beside);
        self.covered += took;
    }

    /// An answer began.
    pub(super) fn began(&mut self, prompt: usize) {
        self.sums.began += 1;
        self.sums.prompt_tokens += prompt as u64;
    }

    /// Weights were taken up.
    pub(super) fn loaded(&mut self, took: Duration) {
        self.sums.loads += 1;
        self.sums.load_seconds += took.as_secs_f64();
        self.covered += took;
    }

    /// There was nothing to do.
    pub(super) fn idle(&mut self, took: Duration) {
        self.sums.idle_seconds += took.as_secs_f64();
        self.covered += took;
    }

    /// The sums, once they cover enough; they begin anew.
    pub(super) fn take_if_due(&mut self) -> Option<EngineStatistics> {
        if self.covered < INTERVAL {
            return None;
        }
        self.covered = Duration::ZERO;
        Some(std::mem::take(&mut self.sums))
    }

    /// What there is of the sums.
    pub(super) fn take(&mut self) -> EngineStatistics {
        self.covered = Duration::ZERO;
        std::mem::take(&mut self.sums)
    }
}

/// Seconds of a step that only decodes so many sequences: t₀ + t₁ n by least squares, where there are different n.
fn usual(pure: &StepSums, sequences: u64) -> Option<f64> {
    let (steps, all) = (pure.steps as f64, pure.sequences as f64);
    let spread = steps * pure.squares - all * all;
    let slope = if spread > 0.0 { (steps * pure.products - all * pure.seconds) / spread } else { 0.0 };
    (pure.steps > 0).then(|| pure.seconds / steps + slope * (sequences as f64 - all / steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(sampled: u64, prefilled: u64) -> Usage {
        Usage { sampled_tokens: sampled, prefilled_tokens: prefilled, ..Usage::default() }
    }

    #[test]
    fn the_time_of_a_step_that_does_both_is_divided_by_what_decoding_usually_takes() {
        let mut trace = EngineTrace::default();
        let ms = Duration::from_millis;
        // 200 ms and 50 ms for each sequence.
        trace.step(&usage(0, 0), &usage(4, 0), ms(400), false);
        trace.step(&usage(4, 0), &usage(6, 0), ms(300), false);
        assert!(trace.take_if_due().is_none(), "less than a second");
        trace.step(&usage(6, 0), &usage(8, 50), ms(700), true);
        trace.step(&usage(8, 50), &usage(8, 60), ms(250), true);
        let sums = trace.take_if_due().unwrap();
        assert_eq!((sums.alone.sequences, sums.beside.sequences, sums.sampled), (6, 2, 8));
        assert_eq!((sums.alone.steps, sums.beside.steps, sums.prefill_tokens), (2, 2, 60));
        assert!((sums.beside.seconds - 0.5).abs() < 1e-9 && (sums.prefill_seconds - 0.45).abs() < 1e-9);
        assert_eq!(trace.take(), EngineStatistics::default());
    }
}
