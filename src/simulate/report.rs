//! What a simulation shows.

use serde::Serialize;

/// Figures of the updates after the warm-up, unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SimulationReport {
    /// The system.
    pub system: String,
    /// Updates that the figures are of.
    pub updates: u64,
    /// Virtual seconds that they took.
    pub seconds: f64,
    /// Seconds an update.
    pub seconds_per_update: f64,
    /// Tokens learned from.
    pub trained_tokens: u64,
    /// Tokens learned from, a second.
    pub tokens_per_second: f64,
    /// Share of these that an older version sampled.
    pub old_fraction: f64,
    /// Share that is of a version before the one under which their own answer ended: old by carrying alone, without the
    /// wait for the rest of the group.
    pub carried_fraction: f64,
    /// Mean lag of a token, updates.
    pub lag_mean: f64,
    /// Greatest lag of a token.
    pub lag_max: u64,
    /// Tokens by lag, from 0.
    pub lag_histogram: Vec<u64>,
    /// Mean tokens of an answer that was learned from.
    pub mean_length: f64,
    /// The same of the first batch of all.
    pub first_batch_mean_length: f64,
    /// Trajectories in the engines, mean over the time in which generation is on.
    pub live_mean: f64,
    /// Share of time in which an engine works.
    pub generation_busy: f64,
    /// Share of time in which the learner works.
    pub learning_busy: f64,
    /// Share of the engines' work that computes prefixes again.
    pub prefill_share: f64,
    /// The longer of the seconds of generation and of learning that an update needs, as a share of those it takes.
    pub overlap_efficiency: f64,
    /// Mean seconds between the end of an answer and that of the last of its group.
    pub group_wait_seconds: f64,
    /// Share of the engines' memory in use, mean over the time in which generation is on; none where memory has no end.
    pub kv_use: Option<f64>,
    /// The greatest of any engine.
    pub kv_use_max: Option<f64>,
    /// Times that a sequence lost its memory to others.
    pub preemptions: Option<u64>,
    /// Trajectories in all, whole run: submitted, consumed, dropped.
    pub submitted: u64,
    /// Learned from, whole run.
    pub consumed: u64,
    /// Given up, whole run.
    pub dropped: u64,
    /// Trajectories learned from, by source.
    pub consumed_by_source: Vec<u64>,
    /// What the drawing shows.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// A stretch of time for drawing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// Sequences of each of the first engines, whenever they changed.
    pub engines: Vec<Vec<(f64, f64)>>,
    /// When the learner worked.
    pub learning: Vec<(f64, f64)>,
    /// Virtual time that it covers.
    pub from: f64,
    /// Its end.
    pub until: f64,
}

/// Engines that a timeline shows.
const SHOWN: usize = 16;
/// Most changes of an engine that a timeline shows.
const SHOWN_CHANGES: usize = 20_000;

impl Timeline {
    /// An engine's number of sequences has changed.
    pub(super) fn note(&mut self, engine: usize, at: f64, count: f64) {
        if engine >= SHOWN {
            return;
        }
        if self.engines.len() <= engine {
            self.engines.resize(engine + 1, Vec::new());
        }
        if self.engines[engine].len() < SHOWN_CHANGES {
            self.engines[engine].push((at, count));
        }
    }
}

impl SimulationReport {
    /// The figures of the table, with their headings; what has no figure is `-`.
    #[must_use]
    pub fn row(&self) -> [(&'static str, String); 12] {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        [
            ("system", self.system.clone()),
            ("tokens/s", format!("{:.0}", self.tokens_per_second)),
            ("s/update", format!("{:.1}", self.seconds_per_update)),
            ("old tokens", percent(self.old_fraction)),
            ("lag mean", format!("{:.2}", self.lag_mean)),
            ("lag max", self.lag_max.to_string()),
            ("generating", percent(self.generation_busy)),
            ("learning", percent(self.learning_busy)),
            ("prefill", percent(self.prefill_share)),
            ("kv use", self.kv_use.map_or("-".to_owned(), percent)),
            ("preempted", self.preemptions.map_or("-".to_owned(), |count| count.to_string())),
            ("dropped", self.dropped.to_string()),
        ]
    }
}
