//! A whole token run: from a configuration and a run directory to a summary.

use std::sync::Arc;

use super::build::{Prepared, build};
use super::critic::ValueFunction;
use super::devices::TokenDevices;
use super::language_model::LanguageModel;
use super::learner::TokenLearnerRole;
use super::monitor::TokenMonitor;
use super::run::TokenRun;
use super::teachers::OpenTeachers;
use super::tree::{run_token_serial, token_tree};
use crate::actors::interrupt::Interrupt;
use crate::actors::role::Learning;
use crate::actors::run_dir::RunDir;
use crate::actors::threaded::{Ending, run_tree};
use crate::actors::train::TrainOptions;
use crate::actors::train_error::TrainError;
use crate::config::TokenConfig;
use crate::env::task::TaskRegistry;
use crate::telemetry::{
    MetricsServer, Progress, RunOutcome, StatusBoard, TokenMetrics, TokenRunStatus, TokenSummary,
    write_report,
};
use crate::trajectory::TokenFates;

/// Trains until a stop condition, a signal or a failure; the summary is also in the run directory. A run that failed
/// after it started is an `Ok` with that status.
///
/// # Errors
/// When the run cannot start, or its files cannot be written.
pub fn train_tokens(
    config: TokenConfig,
    registry: &TaskRegistry,
    options: &TrainOptions,
) -> Result<TokenSummary, TrainError> {
    config.check(registry)?;
    let devices = TokenDevices::open(&config.devices)?;
    let task = config.make_task(registry)?;
    let model = LanguageModel::open(&config, &*task, &devices.learner.device)?;
    config.check_model(&model, &*task)?;
    let critic = ValueFunction::open(&config, &model)?;
    let teachers = OpenTeachers::open(&config, &model)?;
    let metrics = Arc::new(TokenMetrics::new(&config.task.name));
    let board = Arc::new(StatusBoard::default());
    // Before the directory, like all that can refuse to start, so that a port in use leaves nothing behind.
    let server = MetricsServer::start(config.telemetry.listen, Arc::clone(&metrics), Arc::clone(&board))?;
    let run_dir = RunDir::prepare(&options.run_dir, options.resume)?;
    let earlier = TokenSummary::read(run_dir.path()).ok().filter(|_| options.resume);
    if let Some(summary) = earlier.filter(|summary| config.stop.is_complete(summary)) {
        eprintln!("{} is complete already; nothing to do", options.run_dir.display());
        return Ok(summary);
    }
    let task_name = config.task.name.clone();
    board.set(TokenRunStatus { run: run_dir.name(), task: task_name, ..TokenRunStatus::default() });
    if let Some(server) = &server {
        eprintln!("metrics and status: http://{}/", server.address());
        run_dir.note_address(server.address())?;
    }

    let interrupt = Interrupt::listen();
    let Prepared { run, mut learner } =
        build(config, task, model, critic, &teachers, &devices, &metrics, &run_dir, options, &interrupt)?;
    let earlier_seconds = learner.wall_seconds();
    let progress = Progress::new(run.config.telemetry.progress);
    let mut monitor = TokenMonitor::new(Arc::clone(&run), progress, Arc::clone(&board), earlier_seconds);
    let (ending, role) = if options.serial {
        let ending = run_token_serial(&run, &mut learner, &interrupt, &mut monitor);
        (ending, Some(learner))
    } else {
        let tree = token_tree(&run);
        run_tree(tree, learner, &interrupt, &mut monitor)
    };
    drop(monitor);
    let summary = conclude(&run, &run_dir, ending, role, earlier_seconds)?;
    board.set(TokenRunStatus { outcome: Some(summary.status), ..board.get() });
    if let Some(server) = server {
        server.stop();
    }
    Ok(summary)
}

/// Closes the books, evaluates the final parameters, and writes summary and report.
fn conclude(
    run: &Arc<TokenRun>,
    run_dir: &RunDir,
    ending: Ending,
    role: Option<TokenLearnerRole>,
    earlier_seconds: f64,
) -> Result<TokenSummary, TrainError> {
    let (mut status, mut cause) = match ending {
        Ending::Completed(cause) => (RunOutcome::Completed, cause),
        Ending::Interrupted(cause) => (RunOutcome::Interrupted, cause),
        Ending::Failed(cause) => (RunOutcome::Failed, cause),
    };
    let mut summary = TokenSummary {
        status,
        cause: String::new(),
        updates: run.bus.latest().version.0,
        warmup_updates: 0,
        critic_warmup_updates: 0,
        tokens: 0,
        wall_seconds: earlier_seconds,
        tokens_per_second: 0.0,
        reward_mean: None,
        eval_initial: None,
        eval_mean: None,
        eval_parts: Vec::new(),
        explained_variance_initial: None,
        lag_mean: None,
        lag_max: 0,
        epochs: run.plane.epochs(),
        grading_errors: run.plane.counts().grading_errors,
        group_grading_errors: run.plane.counts().group_grading_errors,
        ungraded_groups: run.plane.counts().ungraded,
        too_long_prompts: run.plane.counts().too_long,
        skipped_problems: run.task.skipped(),
        token_fates: TokenFates::default(),
        ledger: run.ledger.snapshot().into(),
        restarts: run.restarts(),
    };
    if let Some(mut role) = role {
        if let (RunOutcome::Completed, Some(condition)) = (status, role.complete()) {
            condition.clone_into(&mut cause);
        }
        summary.updates = role.version().0;
        summary.wall_seconds = role.wall_seconds();
        summary.reward_mean = role.journal().rewards.mean();
        summary.lag_mean = role.journal().lags.mean();
        summary.lag_max = role.journal().lags.max;
        summary.token_fates = role.journal().token_fates.clone();
        summary.warmup_updates = role.journal().warmup;
        summary.eval_initial = role.journal().initial_evaluation;
        summary.eval_mean = role.journal().rewards.evaluation();
        summary.critic_warmup_updates = role.value_only();
        summary.explained_variance_initial = role.journal().initial_explained_variance;
        let problems = run.config.evaluation.final_problems;
        if status == RunOutcome::Completed && problems > 0 {
            match role.evaluate(problems) {
                Ok(Some(evaluation)) if evaluation.graded() > 0 => {
                    summary.eval_mean = Some(evaluation.mean());
                    summary.eval_parts = evaluation.parts();
                    run.metrics.record_evaluation(&summary.eval_parts);
                }
                Ok(_) => {}
                Err(error) => {
                    (status, cause) =
                        (RunOutcome::Failed, format!("evaluation of the final parameters: {error}"));
                }
            }
        }
        role.finish()?;
    }
    // What the learner still held was booked when it went; what is left belongs to threads left behind.
    run.plane.close();
    run.ledger.close();
    let ledger = run.ledger.snapshot();
    run.metrics.observe_ledger(&ledger);
    if run.detached() > 0 {
        tracing::warn!("{} thread(s) were left behind inside the task", run.detached());
    }
    summary.status = status;
    summary.cause = cause;
    summary.tokens = ledger.submitted.steps;
    if summary.wall_seconds > 0.0 {
        summary.tokens_per_second = summary.tokens as f64 / summary.wall_seconds;
    }
    summary.ledger = ledger.into();
    summary.write(run_dir.path())?;
    write_report(run_dir.path())?;
    Ok(summary)
}
