//! `summary.json`: how a run ended, in one object. Each workload has its own; [`RunSummary`] is either.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::run_files::write_atomically;
use super::{TelemetryError, TokenSummary};
use crate::trajectory::LedgerSnapshot;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// A stop condition was met.
    Completed,
    /// Someone asked it to stop; it can be resumed.
    Interrupted,
    /// Something broke; `cause` says what.
    Failed,
}

impl RunOutcome {
    /// The word used in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// The content of `summary.json` of a control run. Every field is always written, `eval_mean` only where an evaluation ran; a mean of
/// nothing is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How the run ended.
    pub status: RunOutcome,
    /// Why it ended: the stop condition that was met, the signal, or the error.
    pub cause: String,
    /// Completed updates, which is the final policy version.
    pub updates: u64,
    /// Environment steps taken by all actors.
    pub env_steps: u64,
    /// Time the run took, all its sessions together (seconds).
    pub wall_seconds: f64,
    /// `env_steps` in a second of `wall_seconds`.
    pub steps_per_second: f64,
    /// Mean undiscounted return of the last 100 episodes.
    pub return_mean: Option<f64>,
    /// Mean return of the last evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_mean: Option<f64>,
    /// Mean lag of all consumed steps (updates).
    pub lag_mean: Option<f64>,
    /// Greatest lag of a consumed step (updates).
    pub lag_max: u64,
    /// What became of every unroll and step.
    pub ledger: LedgerSnapshot,
    /// Restarts by kind of actor; kinds that never restarted may be absent.
    pub restarts: BTreeMap<String, u64>,
}

impl Summary {
    /// The file's name in a run directory.
    pub const FILE: &'static str = "summary.json";

    /// Writes `summary.json` so that a reader sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, run_dir: &Path) -> Result<(), TelemetryError> {
        write_summary(self, run_dir)
    }

    /// Reads the summary of a control run.
    ///
    /// # Errors
    /// When there is none, it is damaged, or it is that of a token run.
    pub fn read(run_dir: &Path) -> Result<Self, TelemetryError> {
        read_summary(run_dir)
    }
}

/// The summary of a run of either workload.
#[derive(Debug, Clone, PartialEq)]
pub enum RunSummary {
    /// Of a control run.
    Control(Summary),
    /// Of a token run.
    Token(TokenSummary),
}

impl RunSummary {
    /// Reads the summary of a run; the field `tokens` tells a token run.
    ///
    /// # Errors
    /// When there is none or it is damaged.
    pub fn read(run_dir: &Path) -> Result<Self, TelemetryError> {
        #[derive(Deserialize)]
        struct Probe {
            tokens: Option<IgnoredAny>,
        }
        match read_summary::<Probe>(run_dir)?.tokens {
            Some(_) => TokenSummary::read(run_dir).map(Self::Token),
            None => Summary::read(run_dir).map(Self::Control),
        }
    }

    /// How the run ended.
    #[must_use]
    pub fn status(&self) -> RunOutcome {
        match self {
            Self::Control(summary) => summary.status,
            Self::Token(summary) => summary.status,
        }
    }

    /// Why it ended.
    #[must_use]
    pub fn cause(&self) -> &str {
        match self {
            Self::Control(summary) => &summary.cause,
            Self::Token(summary) => &summary.cause,
        }
    }
}

/// Writes a summary in place of the one that is there.
pub(super) fn write_summary(summary: &impl Serialize, run_dir: &Path) -> Result<(), TelemetryError> {
    let path = run_dir.join(Summary::FILE);
    let mut text = serde_json::to_string_pretty(summary)
        .map_err(|error| TelemetryError::Write { path: path.clone(), source: error.into() })?;
    text.push('\n');
    write_atomically(&path, text.as_bytes())
}

/// Reads a summary, or what is asked of it.
pub(super) fn read_summary<T: DeserializeOwned>(run_dir: &Path) -> Result<T, TelemetryError> {
    let path = run_dir.join(Summary::FILE);
    let text = std::fs::read_to_string(&path).map_err(TelemetryError::read(&path))?;
    serde_json::from_str(&text).map_err(|source| TelemetryError::Parse { path, line: source.line(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trajectory::{DropReason, Ledger};

    /// A summary of a small completed run.
    pub fn example() -> Summary {
        let ledger = Ledger::default();
        let unrolls: Vec<_> = (0..3)
            .map(|_| {
                let mut ticket = ledger.begin();
                ticket.step(80);
                ticket.complete()
            })
            .collect();
        for (i, ticket) in unrolls.into_iter().enumerate() {
            if i < 2 { ticket.consume() } else { ticket.discard(DropReason::Shutdown) }
        }
        Summary {
            status: RunOutcome::Completed,
            cause: "reached stop.env_steps = 240".into(),
            updates: 2,
            env_steps: 240,
            wall_seconds: 0.5,
            steps_per_second: 480.0,
            return_mean: None,
            eval_mean: Some(21.5),
            lag_mean: Some(0.5),
            lag_max: 1,
            ledger: ledger.snapshot(),
            restarts: BTreeMap::from([("rollout".into(), 1)]),
        }
    }

    #[test]
    fn the_summary_holds_the_documented_fields_and_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut summary = example();
        summary.write(dir.path()).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(dir.path().join(Summary::FILE)).unwrap()).unwrap();
        let fields: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "status",
                "cause",
                "updates",
                "env_steps",
                "wall_seconds",
                "steps_per_second",
                "return_mean",
                "eval_mean",
                "lag_mean",
                "lag_max",
                "ledger",
                "restarts"
            ]
        );
        assert_eq!(json["status"], "completed");
        assert_eq!(json["return_mean"], serde_json::Value::Null);
        assert_eq!(json["ledger"]["dropped"]["shutdown"]["steps"], 80);

        summary.status = RunOutcome::Interrupted;
        summary.eval_mean = None;
        summary.write(dir.path()).unwrap();
        assert_eq!(Summary::read(dir.path()).unwrap(), summary);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays behind");
    }

    #[test]
    fn a_damaged_summary_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(Summary::FILE), "{\n\"status\": \"gone\"}").unwrap();
        let message = Summary::read(dir.path()).unwrap_err().to_string();
        assert!(message.contains("summary.json, line 2"), "{message}");
    }
}
