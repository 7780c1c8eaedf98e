use super::super::tests::value;
use super::*;
use crate::trajectory::{DropReason, Ledger, TokenFate};

#[test]
fn the_ledger_is_shown_in_trajectories_and_tokens() {
    let (metrics, ledger) = (TokenMetrics::new("arithmetic"), Ledger::default());
    let mut ticket = ledger.begin();
    ticket.step(120);
    ticket.discard(DropReason::Stale);
    metrics.observe_ledger(&ledger.snapshot());
    metrics.observe_ledger(&ledger.snapshot());
    assert_eq!(value(&metrics, "forebay_dropped_trajectories_total{reason=\"stale\"}"), Some(1.0));
    assert_eq!(value(&metrics, "forebay_dropped_tokens_total{reason=\"stale\"}"), Some(120.0));
    assert_eq!(value(&metrics, "forebay_ledger_tokens{state=\"submitted\"}"), Some(120.0));
    assert_eq!(value(&metrics, "forebay_dropped_tokens_total{reason=\"masked\"}"), Some(0.0));
}

#[test]
fn a_generators_handles_survive_its_restart() {
    let metrics = TokenMetrics::new("arithmetic");
    metrics.generator(1).tokens.inc_by(10);
    metrics.generator(1).tokens.inc_by(5);
    metrics.generator(1).kv_cache_capacity.set(4_096);
    assert_eq!(value(&metrics, "forebay_tokens_total{actor=\"1\"}"), Some(15.0));
    assert_eq!(value(&metrics, "forebay_kv_cache_capacity_tokens{actor=\"1\"}"), Some(4_096.0));
}

#[test]
fn grading_is_counted_with_its_failures_apart() {
    let metrics = TokenMetrics::new("arithmetic");
    metrics.record_graded("sums", 200, 0.25);
    metrics.record_grading_error("timeout");
    assert_eq!(value(&metrics, "forebay_trajectories_total{source=\"sums\"}"), Some(1.0));
    assert_eq!(value(&metrics, "forebay_response_length_tokens_bucket{le=\"256\"}"), Some(1.0));
    assert_eq!(value(&metrics, "forebay_response_length_tokens_bucket{le=\"128\"}"), Some(0.0));
    assert_eq!(value(&metrics, "forebay_grading_seconds_count"), Some(1.0));
    assert_eq!(value(&metrics, "forebay_grading_errors_total{kind=\"timeout\"}"), Some(1.0));
}

#[test]
fn a_rubric_shows_pass_rates_by_source_and_groups_by_how_they_were_graded() {
    let metrics = TokenMetrics::new("arithmetic");
    metrics.record_pass_rate("sums", 0.75);
    (0..LabelSet::MOST).for_each(|source| metrics.record_pass_rate(&format!("source {source}"), 0.5));
    metrics.record_update(&TokenRecord {
        gar_groups: 2,
        rubric_failures: 1,
        confirmed_hacks: 3,
        ..Default::default()
    });
    metrics.record_group_grading_error("panicked");
    for (name, expected) in [
        ("forebay_pass_rate{source=\"sums\"}", Some(0.75)),
        ("forebay_pass_rate{source=\"source 0\"}", Some(0.5)),
        ("forebay_pass_rate{source=\"source 31\"}", None),
        ("forebay_pass_rate{source=\"other\"}", None),
        ("forebay_rubric_groups_total{grading=\"gar\"}", Some(2.0)),
        ("forebay_rubric_groups_total{grading=\"failed\"}", Some(1.0)),
        ("forebay_confirmed_hacks_total", Some(3.0)),
        ("forebay_group_grading_errors_total{kind=\"panicked\"}", Some(1.0)),
    ] {
        assert_eq!(value(&metrics, name), expected, "{name}");
    }
}

#[test]
fn tokens_are_counted_by_what_became_of_them_and_gradients_told_by_block() {
    let metrics = TokenMetrics::new("arithmetic");
    let mut record = TokenRecord {
        gradient_norm_attention: Some(0.5),
        bound_pos_high: Some(5.1),
        ratio_min: Some(0.25),
        ..Default::default()
    };
    record.token_fates.add(TokenFate::Learned, 30);
    record.token_fates.add(TokenFate::OffPolicyHigh, 2);
    metrics.record_update(&record);
    metrics.record_update(&TokenRecord { gradient_norm_attention: None, ..record });
    for (name, expected) in [
        ("forebay_batch_tokens_total{fate=\"learned\"}", Some(60.0)),
        ("forebay_batch_tokens_total{fate=\"off_policy_high\"}", Some(4.0)),
        ("forebay_batch_tokens_total{fate=\"age\"}", Some(0.0)),
        ("forebay_block_gradient_norm{block=\"attention\"}", Some(0.5)),
        ("forebay_block_gradient_norm{block=\"router\"}", None),
        ("forebay_ratio_bound{advantage=\"positive\",side=\"high\"}", Some(5.1)),
        ("forebay_ratio_bound{advantage=\"negative\",side=\"high\"}", None),
        ("forebay_ratio_min", Some(0.25)),
    ] {
        assert_eq!(value(&metrics, name), expected, "{name}");
    }
}

#[test]
fn an_evaluation_is_shown_for_each_source_and_effort() {
    let metrics = TokenMetrics::new("arithmetic");
    let part = |source: &str, effort: Option<&str>, accuracy: f64| EvaluationPart {
        source: source.into(),
        effort: effort.map(Into::into),
        graded: 10,
        accuracy,
        reward_mean: accuracy / 2.0,
    };
    metrics.record_evaluation(&[
        part("sums", None, 0.5),
        part("copy", Some("low"), 0.25),
        part("copy", Some("high"), 1.0),
    ]);
    metrics.record_evaluation(&[part("sums", None, 0.75)]);
    for (name, expected) in [
        ("forebay_evaluation_source_accuracy{effort=\"\",source=\"sums\"}", Some(0.75)),
        ("forebay_evaluation_source_accuracy{effort=\"low\",source=\"copy\"}", Some(0.25)),
        ("forebay_evaluation_source_accuracy{effort=\"high\",source=\"copy\"}", Some(1.0)),
        ("forebay_evaluation_source_reward_mean{effort=\"high\",source=\"copy\"}", Some(0.5)),
        ("forebay_evaluation_source_accuracy{effort=\"\",source=\"copy\"}", None),
    ] {
        assert_eq!(value(&metrics, name), expected, "{name}");
    }
}

#[test]
fn the_first_sources_have_names_and_all_others_one_together() {
    let metrics = TokenMetrics::new("arithmetic");
    for round in 0..2 {
        for source in 0..LabelSet::MOST + 7 {
            metrics.record_graded(&format!("source {}", source + round), 1, 0.0);
        }
    }
    let count = |source: &str| value(&metrics, &format!("forebay_trajectories_total{{source=\"{source}\"}}"));
    assert_eq!(count("source 0"), Some(1.0));
    assert_eq!(count("source 31"), Some(2.0));
    assert_eq!(count("source 32"), None);
    assert_eq!(count(LabelSet::OTHER), Some(7.0 + 8.0));
}

#[test]
fn a_reward_is_absent_before_the_first_trajectory_and_a_warm_up_changes_none() {
    let metrics = TokenMetrics::new("arithmetic");
    let reward = "forebay_reward_mean{task=\"arithmetic\"}";
    metrics.record_update(&TokenRecord { update: 1, warmup_loss: Some(2.0), ..Default::default() });
    assert_eq!((value(&metrics, reward), value(&metrics, "forebay_warmup_loss_nats")), (None, Some(2.0)));
    let record = TokenRecord {
        update: 2,
        reward_mean: Some(0.5),
        zero_variance_groups: 3,
        starved_seconds: 0.5,
        ..Default::default()
    };
    metrics.record_update(&record);
    metrics.record_update(&TokenRecord { skipped_masked: 1, ..record });
    assert_eq!(value(&metrics, reward), Some(0.5));
    assert_eq!(value(&metrics, "forebay_zero_variance_groups_total"), Some(6.0));
    assert_eq!(value(&metrics, "forebay_updates_total"), Some(2.0));
    assert_eq!(value(&metrics, "forebay_skipped_updates_total{reason=\"masked\"}"), Some(1.0));
    assert_eq!(value(&metrics, "forebay_learner_starved_seconds_total"), Some(1.0));
}
