//! What ends a run, and a warm-up.

use forebay::env::task::TaskRegistry;
use forebay::telemetry::RunOutcome;
use serde_json::Value;

use super::{complete, figures, train};
use crate::support::metrics;

#[test]
fn a_run_ends_at_the_first_evaluation_that_reaches_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, target: f64| {
        let target = format!("stop.target_evaluation={target:?}");
        let changes = [
            "evaluation={ every_updates = 2, problems = 20, final_problems = 0 }",
            "warmup={ updates = 30, batch = 5 }",
            "learner.schedule.learning_rate=0.003",
            "stop.updates=30",
            &target,
        ];
        let run_dir = dir.path().join(name);
        let summary = train(&run_dir, &TaskRegistry::builtin(), &changes, true, false).unwrap();
        assert_eq!(summary.status, RunOutcome::Completed, "{}", summary.cause);
        (summary, metrics(&run_dir))
    };
    // Never reached: what the evaluations are.
    let (whole, lines) = run("whole", 2.0);
    assert_eq!(whole.cause, "reached stop.updates = 30");
    let initial = whole.eval_initial.unwrap();
    let of = |line: &Value| Some((line["update"].as_u64()?, line.get("eval_mean")?.as_f64()?));
    let (update, better) = lines.iter().filter_map(of).find(|(_, mean)| *mean > initial).unwrap();
    let (summary, _) = run("better", better);
    assert_eq!((summary.updates, summary.eval_mean), (update, Some(better)), "{}", summary.cause);
    // The initial policy reaches it.
    let (summary, _) = run("at once", initial);
    assert_eq!((summary.updates, summary.eval_mean), (0, Some(initial)), "{}", summary.cause);
}

#[test]
fn a_warm_up_ends_when_it_knows_enough() {
    let dir = tempfile::tempdir().unwrap();
    let warm_up = |target: &str, name: &str| {
        let changes = [&format!("warmup={{ updates = 40, batch = 5, target_loss = {target} }}") as &str];
        let run_dir = dir.path().join(name);
        let summary = complete(&run_dir, &changes, 1, true, false);
        (summary.warmup_updates, figures(&metrics(&run_dir), "warmup_loss"))
    };
    let (all, losses) = warm_up("1e-9", "never");
    assert_eq!((all, losses.len()), (40, 40));
    let mean = |end: usize| losses[end - 5..end].iter().sum::<f64>() / 5.0;
    // The first mean over five updates that is at or below that of the 20th.
    let first = (5..=20).find(|&end| mean(end) <= mean(20)).unwrap();
    let (some, _) = warm_up(&format!("{:?}", mean(20)), "soon");
    assert_eq!(some, first as u64);
}
