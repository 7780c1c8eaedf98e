//! What updates tell of a run's tokens, ratios, bounds and gradients, and that every correction for the lag of tokens
//! repeats itself and goes on from a checkpoint byte for byte.

use forebay::telemetry::TokenSummary;
use forebay::trajectory::{DropReason, TokenFate, TokenFates};
use serde_json::Value;

use super::exactness::assert_repeats_and_resumes;
use super::{ONE_STEP, REPREFILL, SEPARATE, complete, figures};
use crate::support::metrics;

const CONTROLLED: &str = "learner.loss.objective={ kind = \"four_bound\", \
    control = { entropy_low = 5.0, entropy_high = 6.0, step = 1.2 } }";
const VTRACE: &str = "learner.advantage={ kind = \"vtrace\" }";
const REINFORCE: &str = "learner.loss.objective={ kind = \"reinforce\" }";

/// The fates of all lines together.
fn told(lines: &[Value]) -> TokenFates {
    let mut told = TokenFates::default();
    for line in lines {
        told.merge(&serde_json::from_value(line["token_fates"].clone()).unwrap());
    }
    told
}

#[test]
fn every_consumed_token_has_its_fate_in_lines_and_summary() {
    for (changes, passes) in [
        (vec![], 1),
        (vec!["learner.epochs=2", "learner.minibatches=3"], 2),
        (vec!["learner.loss.objective={ kind = \"best_of_n\" }", "learner.mask_truncated=true"], 1),
        (
            vec![
                "task={ name = \"guess_number\" }",
                "model.decoder.context=200",
                "generate.max_new_tokens=20",
            ],
            1,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let summary: TokenSummary = complete(dir.path(), &changes, 4, true, false);
        let (lines, ledger) = (metrics(dir.path()), &summary.ledger);
        assert_eq!(told(&lines), summary.token_fates);
        assert_eq!(summary.token_fates.total(), passes * ledger.consumed.tokens, "{changes:?}");
        assert!(summary.token_fates.get(TokenFate::Learned) > 0);
    }
}

#[test]
fn an_update_tells_extremes_blocks_and_how_alike_the_rewards_were() {
    let dir = tempfile::tempdir().unwrap();
    let values = "learner.advantage={ kind = \"skip_observation_gae\" }";
    complete(dir.path(), &[values, "learner.loss.objective={ kind = \"grpo\" }"], 3, true, false);
    let lines = metrics(dir.path());
    for field in [
        "ratio_min",
        "ratio_max",
        "advantage_min",
        "advantage_max",
        "value_bias",
        "gradient_norm_embedding",
        "gradient_norm_attention",
        "gradient_norm_feed_forward",
        "gradient_norm_norm",
        "gradient_norm_value_head",
    ] {
        assert_eq!(figures(&lines, field).len(), 3, "{field}");
    }
    for line in &lines {
        let number = |field: &str| line[field].as_f64().unwrap();
        assert!(number("ratio_min") <= number("ratio_mean") && number("ratio_mean") <= number("ratio_max"));
        assert!(number("advantage_min") <= number("advantage_max"));
        assert!(line.get("zero_variance_fraction").is_none(), "nothing is compared");
    }
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &["learner.drop_zero_variance=false"], 3, true, false);
    let alike = figures(&metrics(dir.path()), "zero_variance_fraction");
    assert!(alike.len() == 3 && alike.iter().all(|share| (0.0..=1.0).contains(share)), "{alike:?}");
}

#[test]
fn bounds_that_a_controller_moves_are_told_and_go_on_from_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    complete(dir.path(), &[CONTROLLED], 4, true, false);
    let high = figures(&metrics(dir.path()), "bound_pos_high");
    assert!(high.len() == 4 && high[0] == 5.0 && high.windows(2).all(|pair| pair[0] < pair[1]), "{high:?}");
    assert_repeats_and_resumes(&[CONTROLLED, ONE_STEP]);
}

#[test]
fn approximated_anchors_and_v_trace_repeat_themselves_and_go_on_from_a_checkpoint() {
    let separate = [SEPARATE, &[VTRACE, REINFORCE, "learner.minibatches=2"]].concat();
    for kind in [
        &[
            "learner.loss.objective={ kind = \"decoupled_ppo\", proximal = \"log_linear\" }",
            "learner.epochs=2",
            ONE_STEP,
        ] as &[&str],
        &["learner.loss.objective={ kind = \"tis\", proximal = \"linear\" }", "learner.forced_lag=2"],
        &[VTRACE, REINFORCE, ONE_STEP],
        &separate,
    ] {
        assert_repeats_and_resumes(kind);
    }
}

#[test]
fn tokens_that_are_too_old_are_masked_and_groups_of_nothing_else_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let changes = [REPREFILL, "learner.max_token_age=0", "generate.max_new_tokens=18"];
    let summary = complete(dir.path(), &changes, 6, true, false);
    let dropped = summary.ledger.dropped.get(&DropReason::Masked).map_or(0, |amount| amount.trajectories);
    let masked = summary.token_fates.get(TokenFate::Age);
    assert!(masked > 0 || dropped > 0, "{:?}", summary.token_fates);
    // What was learned from is of the consuming version, token by token.
    let learned = summary.token_fates.get(TokenFate::Learned);
    let lags = metrics(dir.path());
    let fresh: u64 = lags
        .iter()
        .flat_map(|line| line["lag"].as_array().unwrap())
        .filter(|bucket| bucket[0] == 0)
        .map(|bucket| bucket[1].as_u64().unwrap())
        .sum();
    assert_eq!(learned, fresh);
}
