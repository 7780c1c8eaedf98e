//! What an engine's steps take, for the run's trace.
//!
//! A step may decode and compute prompts at once. Its time is divided: decoding takes what it takes on average in steps
//! that do nothing else, the rest is prefill.

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
    /// A step took so long; `before` and `after` are the engine's totals around it.
    pub(super) fn step(&mut self, before: &Usage, after: &Usage, took: Duration, learner_works: bool) {
        let sampled = after.sampled_tokens - before.sampled_tokens;
        let prefilled = after.prefilled_tokens - before.prefilled_tokens;
        let seconds = took.as_secs_f64();
        let mut decoding = seconds;
        if prefilled == 0 {
            self.pure.add(sampled, seconds);
        } else {
            let rows = (sampled + prefilled) as f64;
            let usual = self.pure.seconds / self.pure.sequences.max(1) as f64;
            let of_a_sequence = if self.pure.steps > 0 { usual } else { seconds / rows };
            decoding = seconds.min(of_a_sequence * sampled as f64);
            self.sums.prefill_tokens += prefilled;
            self.sums.prefill_seconds += seconds - decoding;
        }
        if sampled > 0 {
            self.sums.step(sampled, decoding, learner_works);
        }
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
        trace.step(&usage(0, 0), &usage(4, 0), ms(400), false);
        assert!(trace.take_if_due().is_none(), "less than a second");
        trace.step(&usage(4, 0), &usage(6, 50), ms(700), true);
        let sums = trace.take_if_due().unwrap();
        assert_eq!((sums.alone.sequences, sums.beside.sequences, sums.sampled), (4, 2, 6));
        assert!((sums.beside.seconds - 0.2).abs() < 1e-9 && (sums.prefill_seconds - 0.5).abs() < 1e-9);
        assert_eq!(sums.prefill_tokens, 50);
        assert_eq!(trace.take(), EngineStatistics::default());
    }
}
