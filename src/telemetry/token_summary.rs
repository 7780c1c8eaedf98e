//! `summary.json` of a token run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::summary::{RunOutcome, read_summary, write_summary};
use super::{TelemetryError, TokenLedger};
use crate::trajectory::TokenFates;

/// What an evaluation found of one source of problems, at one effort where there is a choice of efforts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationPart {
    /// Where the problems come from.
    pub source: String,
    /// Name of the effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Answers that were graded.
    pub graded: u64,
    /// Share of them with a reward of at least 1.
    pub accuracy: f64,
    /// Their mean reward.
    pub reward_mean: f64,
}

/// The content of `summary.json` of a token run. Every field is always written, `eval_initial`, `eval_mean`
/// and `eval_parts` only where an evaluation ran, `explained_variance_initial` only where there are values; a mean of nothing is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenSummary {
    /// How the run ended.
    pub status: RunOutcome,
    /// Why it ended: the stop condition that was met, the signal, or the error.
    pub cause: String,
    /// Completed updates, which is the final policy version.
    pub updates: u64,
    /// Updates of the warm-up before them.
    #[serde(default)]
    pub warmup_updates: u64,
    /// Of the updates, those at the start that changed the value function alone.
    #[serde(default)]
    pub critic_warmup_updates: u64,
    /// Tokens generated, whatever became of them.
    pub tokens: u64,
    /// Time the run took, all its sessions together (seconds).
    pub wall_seconds: f64,
    /// `tokens` in a second of `wall_seconds`.
    pub tokens_per_second: f64,
    /// Mean reward of the trajectories consumed by the last 10 updates.
    pub reward_mean: Option<f64>,
    /// Mean reward of the initial policy in an evaluation, before reinforcement learning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_initial: Option<f64>,
    /// Mean reward of the last evaluation: its accuracy, where right is 1 and wrong 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_mean: Option<f64>,
    /// The evaluation of the final parameters for each source of problems, and for each effort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eval_parts: Vec<EvaluationPart>,
    /// Fraction of the value targets' variance that the values explained at the policy's first update, before anything was
    /// learned from its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_variance_initial: Option<f64>,
    /// Mean lag of all consumed tokens (updates).
    pub lag_mean: Option<f64>,
    /// Greatest lag of a consumed token (updates).
    pub lag_max: u64,
    /// Passes over the task's problems, the unfinished one as a fraction.
    pub epochs: f64,
    /// Trajectories that could not be graded.
    pub grading_errors: u64,
    /// Groups that a grader of groups could not grade.
    #[serde(default)]
    pub group_grading_errors: u64,
    /// Groups of which no answer could be graded.
    #[serde(default)]
    pub ungraded_groups: u64,
    /// Problems whose prompt leaves no room in the model's context.
    #[serde(default)]
    pub too_long_prompts: u64,
    /// Problems that could not be read, such as bad lines of a dataset that are to be left out.
    #[serde(default)]
    pub skipped_problems: u64,
    /// What updates made of the consumed tokens, a token counting once in each pass over its batch: learned from, or left
    /// out for a reason.
    #[serde(default)]
    pub token_fates: TokenFates,
    /// What became of every trajectory and token.
    pub ledger: TokenLedger,
    /// Restarts by kind of actor; kinds that never restarted may be absent.
    pub restarts: BTreeMap<String, u64>,
}

impl TokenSummary {
    /// Writes `summary.json` so that a reader sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, run_dir: &Path) -> Result<(), TelemetryError> {
        write_summary(self, run_dir)
    }

    /// Reads the summary of a token run.
    ///
    /// # Errors
    /// When there is none, it is damaged, or it is that of a control run.
    pub fn read(run_dir: &Path) -> Result<Self, TelemetryError> {
        read_summary(run_dir)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::telemetry::{RunSummary, Summary};
    use crate::trajectory::{DropReason, Ledger};

    /// A summary of a small completed run.
    pub fn example() -> TokenSummary {
        let ledger = Ledger::default();
        for index in 0..8_u64 {
            let mut ticket = ledger.begin();
            ticket.step(100 + index);
            let buffered = ticket.complete();
            if index < 6 { buffered.consume() } else { buffered.discard(DropReason::Stale) }
        }
        let ledger = ledger.snapshot();
        TokenSummary {
            status: RunOutcome::Completed,
            cause: "reached stop.tokens = 800".into(),
            updates: 3,
            warmup_updates: 2,
            critic_warmup_updates: 0,
            tokens: ledger.submitted.steps,
            wall_seconds: 4.0,
            tokens_per_second: 207.0,
            reward_mean: Some(0.625),
            eval_initial: None,
            eval_mean: None,
            eval_parts: Vec::new(),
            explained_variance_initial: None,
            lag_mean: Some(0.5),
            lag_max: 2,
            epochs: 1.25,
            grading_errors: 1,
            group_grading_errors: 0,
            ungraded_groups: 0,
            too_long_prompts: 0,
            skipped_problems: 0,
            token_fates: TokenFates::default(),
            ledger: ledger.into(),
            restarts: BTreeMap::from([("grading".into(), 1)]),
        }
    }

    #[test]
    fn the_summary_holds_the_documented_fields_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let summary = TokenSummary {
            eval_initial: Some(0.25),
            eval_mean: Some(0.5),
            eval_parts: vec![EvaluationPart {
                source: "sums".into(),
                effort: None,
                graded: 8,
                accuracy: 0.5,
                reward_mean: 0.5,
            }],
            explained_variance_initial: Some(0.75),
            ..example()
        };
        summary.write(dir.path()).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(dir.path().join(Summary::FILE)).unwrap()).unwrap();
        for field in [
            "status",
            "cause",
            "updates",
            "warmup_updates",
            "critic_warmup_updates",
            "tokens",
            "wall_seconds",
            "tokens_per_second",
            "reward_mean",
            "eval_initial",
            "eval_mean",
            "eval_parts",
            "explained_variance_initial",
            "lag_mean",
            "lag_max",
            "token_fates",
            "ledger",
            "restarts",
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
        assert_eq!(json["ledger"]["dropped"]["stale"]["tokens"], 213);
        assert_eq!(TokenSummary::read(dir.path()).unwrap(), summary);
    }

    #[test]
    fn a_run_directory_tells_which_workload_it_is_of() {
        let dir = tempfile::tempdir().unwrap();
        example().write(dir.path()).unwrap();
        assert_eq!(RunSummary::read(dir.path()).unwrap(), RunSummary::Token(example()));
        let control = crate::telemetry::summary::tests::example();
        control.write(dir.path()).unwrap();
        assert_eq!(RunSummary::read(dir.path()).unwrap(), RunSummary::Control(control));
        assert!(TokenSummary::read(dir.path()).unwrap_err().to_string().contains("missing field"));
    }

    #[test]
    fn a_damaged_summary_is_named_with_what_is_missing_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Summary::FILE);
        std::fs::write(&path, "{\"tokens\": 5, \"status\": \"completed\"}").unwrap();
        let message = RunSummary::read(dir.path()).unwrap_err().to_string();
        assert!(message.contains("summary.json, line 1: missing field `cause`"), "{message}");
        std::fs::write(&path, "{\n\"tokens\": ").unwrap();
        assert!(RunSummary::read(dir.path()).unwrap_err().to_string().contains("summary.json, line 2"));
    }
}
