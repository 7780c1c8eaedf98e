use super::*;
use crate::telemetry::samples::tests::sample;
use crate::telemetry::summary::tests::example;
use crate::telemetry::token_summary::tests::example as token_example;
use crate::telemetry::{MetricsLine, SampleWriter, UpdateRecord};

/// A run directory with a few lines of metrics.
fn run_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (1..=20_u64)
        .map(|update| {
            let mut record = UpdateRecord {
                update,
                env_steps: update * 1_000,
                wall_seconds: update as f64,
                return_mean: Some(update as f64),
                loss: Some(1.0 / update as f64),
                ..Default::default()
            };
            record.add_lag(update % 3, 80);
            MetricsLine { record, merged_updates: 1, per_second: Some(1e3) }.to_json() + "\n"
        })
        .collect();
    std::fs::write(dir.path().join("metrics.jsonl"), lines).unwrap();
    dir
}

fn report(dir: &Path) -> String {
    std::fs::read_to_string(write_report(dir).unwrap()).unwrap()
}

#[test]
fn the_page_is_whole_and_needs_nothing_beside_it() {
    let dir = run_directory();
    example().write(dir.path()).unwrap();
    std::fs::write(dir.path().join("config.toml"), "name = \"<tag>\"\n").unwrap();
    let html = report(dir.path());
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for part in ["Learning curve", "Throughput", "Lag", "completed", "reached stop.env_steps", "&lt;tag&gt;"]
    {
        assert!(html.contains(part), "{part} is missing");
    }
    for outside in ["<script", "http://", "https://", "url(", "@import", "src=", "NaN"] {
        assert!(!html.contains(outside), "{outside} should not be there");
    }
    assert_eq!(
        html.matches("<svg class=\"chart\"").count(),
        html.matches("role=\"img\" aria-label=").count()
    );
}

#[test]
fn a_run_without_summary_gets_a_page_that_says_so() {
    let dir = run_directory();
    let html = report(dir.path());
    assert!(html.contains("no summary") && html.contains("20.0k"), "{html}");
}

#[test]
fn a_run_that_wrote_no_line_gets_a_page() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
    assert!(report(dir.path()).contains("Nothing was measured"));
}

/// A run directory of a token run: a warm-up of ten updates, then thirty of learning.
fn token_run_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (1..=40_u64)
        .map(|update| {
            let x = update as f64;
            let mut record = TokenRecord { update, wall_seconds: 3.0 * x, ..Default::default() };
            if update <= 10 {
                record.warmup_loss = Some(4.0 / x.sqrt());
            } else {
                record = learning(record);
            }
            MetricsLine { record, merged_updates: 1, per_second: Some(400.0 + 10.0 * x) }.to_json() + "\n"
        })
        .collect();
    std::fs::write(dir.path().join(METRICS_FILE), lines).unwrap();
    let mut writer = SampleWriter::create(dir.path()).unwrap();
    (1..=25).for_each(|update| writer.write(&sample(update)).unwrap());
    dir
}

/// A record of a learning update with every figure that the page shows.
fn learning(record: TokenRecord) -> TokenRecord {
    let x = record.update as f64 - 10.0;
    let wave = (x / 3.0).sin();
    let mut record = TokenRecord {
        tokens: (x * 9_000.0) as u64,
        trajectories: 64,
        groups: 8,
        reward_mean: Some(0.8 - 0.7 / (1.0 + x / 6.0) + 0.03 * wave),
        reward_std: Some(0.4),
        solved: Some(0.7 - 0.65 / (1.0 + x / 6.0)),
        eval_mean: record.update.is_multiple_of(8).then_some(0.75 - 0.7 / (1.0 + x / 6.0)),
        zero_variance_groups: 3,
        response_length_mean: Some(120.0 + 4.0 * x),
        response_length_max: Some(256),
        truncated_fraction: Some(0.3 / x.sqrt()),
        queue_wait_seconds: Some(0.8 + 0.2 * wave),
        starved_seconds: 0.9 - 0.4 * wave,
        policy_loss: Some(0.02 * wave),
        entropy: Some(1.2 / x.sqrt()),
        approx_kl: Some(0.002 + 0.001 * wave),
        reference_kl: Some(0.01 * x),
        gradient_norm: Some(0.6 + 0.2 * wave),
        clip_fraction_high: Some(0.05 + 0.02 * wave),
        clip_fraction_low: Some(0.03),
        ratio_max: Some(1.6 + 0.3 * wave),
        masked_fraction: Some(0.01),
        log_prob_difference: Some(0.0),
        kept_kv_log_prob_difference: Some(0.004 + 0.002 * wave),
        advantage_std: Some(0.9),
        learning_rate: Some(1e-5),
        ..record
    };
    for (lag, tokens) in [(0, 3_000), (1, 4_500), (2, 1_200), (4, 300)] {
        record.add_lag(lag, tokens);
    }
    record
}

#[test]
fn a_token_run_is_shown_in_rewards_tokens_and_samples() {
    let dir = token_run_directory();
    token_example().write(dir.path()).unwrap();
    let html = report(dir.path());
    for part in [
        "mean reward, and fraction solved",
        "evaluation: from",
        ">warm-up</text>",
        "Warm-up loss",
        "tokens a second",
        "Response length",
        "Truncated",
        "% of consumed tokens",
        "kept KV",
        "reached stop.tokens = 800",
        "<th scope=\"col\">Trajectories</th><th scope=\"col\">Tokens</th>",
        "1.25 epochs",
        "1 grading error<",
        "It is 25.",
        "It is 6.",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    for foreign in ["It is 5.", "Unrolls", "environment steps", "undiscounted", "NaN", "<script"] {
        assert!(!html.contains(foreign), "{foreign} should not be there");
    }
}

#[test]
fn a_token_run_without_summary_is_known_by_its_metrics() {
    let dir = token_run_directory();
    let html = report(dir.path());
    assert!(html.contains("no summary") && html.contains("270k") && html.contains("Tokens a second"));
}

#[test]
fn a_run_that_ended_in_its_warm_up_shows_the_loss_alone() {
    let dir = tempfile::tempdir().unwrap();
    let record = TokenRecord { update: 1, warmup_loss: Some(3.0), ..Default::default() };
    let line = MetricsLine { record, merged_updates: 1, per_second: None }.to_json() + "\n";
    std::fs::write(dir.path().join(METRICS_FILE), line).unwrap();
    let html = report(dir.path());
    assert!(html.contains("Warm-up loss") && !html.contains("Learning curve"), "{html}");
}

#[test]
fn a_directory_that_is_no_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(write_report(dir.path()).unwrap_err().to_string().contains("is this the directory of a run?"));
}
