//! What a trace tells of engines and updates beside decisions: sums, from which models of both can be fitted.

use serde::{Deserialize, Serialize};

/// Sums over decode steps of n sequences and s seconds each: enough for a least-squares fit of s = t₀ + t₁ n.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSums {
    /// Steps.
    pub steps: u64,
    /// Σ n.
    pub sequences: u64,
    /// Σ n².
    pub squares: f64,
    /// Σ s.
    pub seconds: f64,
    /// Σ n s.
    pub products: f64,
}

impl StepSums {
    /// Counts a step of so many sequences.
    pub fn add(&mut self, sequences: u64, seconds: f64) {
        self.steps += 1;
        self.sequences += sequences;
        self.squares += (sequences * sequences) as f64;
        self.seconds += seconds;
        self.products += sequences as f64 * seconds;
    }

    /// Counts all steps of other sums.
    pub fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.sequences += other.sequences;
        self.squares += other.squares;
        self.seconds += other.seconds;
        self.products += other.products;
    }
}

/// What one engine did since its last line in the trace.
///
/// Every second of its wall time belongs to a step, to prefill, to loading weights, or is idle.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineStatistics {
    /// Decode steps while the learner had no batch.
    pub alone: StepSums,
    /// Decode steps while the learner had a batch, from taking it until what came of it is published: for a part of the
    /// step at least. Both may share cores then. None where generation and learning take turns.
    pub beside: StepSums,
    /// Tokens whose state was computed outside of decode steps: prompts, and prefixes of answers that went on.
    pub prefill_tokens: u64,
    /// Seconds that took.
    pub prefill_seconds: f64,
    /// Of these tokens, those of prompts of answers that began.
    pub prompt_tokens: u64,
    /// Answers that began.
    pub began: u64,
    /// Times that weights were taken up.
    pub loads: u64,
    /// Seconds that took.
    pub load_seconds: f64,
    /// Tokens that were sampled.
    pub sampled: u64,
    /// Seconds with nothing to do.
    pub idle_seconds: f64,
}

impl EngineStatistics {
    /// Counts a decode step that gave each of so many sequences a token.
    pub fn step(&mut self, sequences: u64, seconds: f64, beside: bool) {
        let sums = if beside { &mut self.beside } else { &mut self.alone };
        sums.add(sequences, seconds);
        self.sampled += sequences;
    }

    /// Counts all of another stretch, or of another engine.
    pub fn merge(&mut self, other: &Self) {
        self.alone.merge(&other.alone);
        self.beside.merge(&other.beside);
        self.prefill_tokens += other.prefill_tokens;
        self.prefill_seconds += other.prefill_seconds;
        self.prompt_tokens += other.prompt_tokens;
        self.began += other.began;
        self.loads += other.loads;
        self.load_seconds += other.load_seconds;
        self.sampled += other.sampled;
        self.idle_seconds += other.idle_seconds;
    }
}

/// What one update learned from, and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateStatistics {
    /// Version that it made, from 1.
    pub version: u64,
    /// Groups.
    pub groups: u64,
    /// Answers.
    pub answers: u64,
    /// Sampled tokens learned from.
    pub tokens: u64,
    /// Of these, those of versions older than the one that learned.
    pub old_tokens: u64,
    /// Mean lag of a token, updates.
    pub lag_mean: f64,
    /// Greatest lag of a token, updates.
    pub lag_max: u64,
    /// Seconds from taking the batch to publishing.
    pub learning_seconds: f64,
    /// Seconds for which the learner waited for the batch.
    pub waiting_seconds: f64,
}
