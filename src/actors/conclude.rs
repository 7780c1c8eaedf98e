//! The end of a run: closed books, an evaluation of the final parameters, summary and report.

use std::sync::Arc;

use super::evaluation::EvaluationResult;
use super::evaluator::Evaluator;
use super::interrupt::Interrupt;
use super::journal::Journal;
use super::learner::LearnerRole;
use super::role::{Learning, RoleError};
use super::run::Run;
use super::run_dir::RunDir;
use super::threaded::Ending;
use super::train_error::TrainError;
use crate::telemetry::{RunOutcome, Summary, write_report};

/// Closes the books, evaluates the final parameters, and writes summary and report.
pub(super) fn conclude(
    run: &Arc<Run>,
    run_dir: &RunDir,
    ending: Ending,
    role: Option<LearnerRole>,
    earlier_seconds: f64,
    interrupt: &Interrupt,
) -> Result<Summary, TrainError> {
    let (mut status, mut cause) = match ending {
        Ending::Completed(cause) => (RunOutcome::Completed, cause),
        Ending::Interrupted(cause) => (RunOutcome::Interrupted, cause),
        Ending::Failed(cause) => (RunOutcome::Failed, cause),
    };
    let mut journal = Journal::default();
    let mut version = run.bus.latest().version;
    let mut wall_seconds = earlier_seconds;
    if let Some(mut role) = role {
        role.finish()?;
        if let (RunOutcome::Completed, Some(condition)) = (status, role.complete()) {
            condition.clone_into(&mut cause);
        }
        journal = role.journal().clone();
        version = role.version();
        wall_seconds = role.wall_seconds();
    }
    // What the learner still held was booked when it went; what is left belongs to threads left behind.
    run.ledger.close();
    run.metrics.observe_ledger(&run.ledger.snapshot());
    let mut eval_mean = journal.returns.evaluation();
    let episodes = run.config.evaluation.final_episodes;
    if status == RunOutcome::Completed && episodes > 0 {
        match evaluate_final(run, episodes, interrupt) {
            Ok(None) => {}
            Ok(Some(result)) => eval_mean = Some(result.mean()),
            Err(error) => {
                (status, cause) =
                    (RunOutcome::Failed, format!("evaluation of the final parameters: {error}"));
            }
        }
    }
    if run.detached() > 0 {
        tracing::warn!("{} thread(s) were left behind inside an environment", run.detached());
    }
    let ledger = run.ledger.snapshot();
    let env_steps = ledger.submitted.steps;
    let summary = Summary {
        status,
        cause,
        updates: version.0,
        env_steps,
        wall_seconds,
        steps_per_second: if wall_seconds > 0.0 { env_steps as f64 / wall_seconds } else { 0.0 },
        return_mean: journal.returns.mean(),
        eval_mean,
        lag_mean: journal.lags.mean(),
        lag_max: journal.lags.max,
        ledger,
        restarts: run.restarts(),
    };
    summary.write(run_dir.path())?;
    write_report(run_dir.path())?;
    Ok(summary)
}

fn evaluate_final(
    run: &Arc<Run>,
    episodes: usize,
    interrupt: &Interrupt,
) -> Result<Option<EvaluationResult>, RoleError> {
    let mut evaluator = Evaluator::new(true);
    evaluator.start(run, run.bus.latest(), episodes)?;
    evaluator.wait(run.env_timeout(), interrupt)
}
