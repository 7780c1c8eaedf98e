use super::*;
use crate::telemetry::MetricsLine;
use crate::telemetry::record::Record;

#[test]
fn rewards_and_lengths_are_merged_in_proportion_to_their_trajectories() {
    let mut first = TokenRecord {
        update: 1,
        trajectories: 8,
        groups: 2,
        reward_mean: Some(0.25),
        solved: Some(0.0),
        response_length_max: Some(90),
        ratio_max: Some(3.0),
        policy_loss: Some(1.0),
        ..Default::default()
    };
    first.add_lag(0, 300);
    let mut second = TokenRecord {
        update: 2,
        trajectories: 24,
        groups: 6,
        reward_mean: Some(0.75),
        solved: Some(1.0),
        response_length_max: Some(70),
        ratio_max: Some(1.5),
        policy_loss: Some(3.0),
        ..Default::default()
    };
    second.add_lag(2, 100);
    let merged = TokenRecord::merge(&[first, second]).unwrap();
    assert_eq!((merged.trajectories, merged.groups), (32, 8));
    assert_eq!((merged.reward_mean, merged.solved), (Some(0.625), Some(0.75)));
    assert_eq!((merged.response_length_max, merged.ratio_max), (Some(90), Some(3.0)));
    assert_eq!((merged.policy_loss, merged.warmup_loss), (Some(2.0), None));
    assert_eq!((merged.lag_mean, merged.lag_max), (Some(0.5), Some(2)));
}

#[test]
fn a_line_names_its_rate_in_tokens_and_reads_back() {
    let record = TokenRecord { update: 7, tokens: 900, solved: Some(0.5), ..Default::default() };
    let line = MetricsLine { record, merged_updates: 2, per_second: Some(450.0) };
    let json = line.to_json();
    assert!(json.starts_with("{\"update\":7,\"tokens\":900,"), "{json}");
    assert!(json.ends_with("\"merged_updates\":2,\"tokens_per_second\":450.0}"), "{json}");
    assert!(!json.contains("null") && !json.contains("warmup_loss"), "{json}");
    assert_eq!(serde_json::from_str::<MetricsLine<TokenRecord>>(&json).unwrap(), line);
}

#[test]
fn everything_that_depends_on_the_clock_is_named_so_and_left_out_of_checkpoints() {
    let mut fields = serde_json::to_value(TokenRecord::default()).unwrap();
    for (name, value) in fields.as_object_mut().unwrap() {
        if name.ends_with("_seconds") {
            *value = 1.5.into();
        }
    }
    let record: TokenRecord = serde_json::from_value(fields).unwrap();
    assert_eq!((record.generate_seconds, record.queue_wait_seconds), (1.5, Some(1.5)));
    assert_eq!(record.without_clock(), TokenRecord::default());
}

#[test]
fn a_warm_up_update_shows_its_loss_and_no_reward() {
    let record = TokenRecord { update: 1, warmup_loss: Some(2.5), ..Default::default() };
    let tags: Vec<_> = record.scalars().into_iter().map(|(tag, _)| tag).collect();
    assert!(tags.contains(&"loss/warmup") && !tags.contains(&"reward/mean"), "{tags:?}");
}

#[test]
fn groups_of_each_source_add_up_over_updates_and_stand_in_a_line_by_name() {
    let of = |sources: &[(&str, u64)]| TokenRecord {
        sources: sources.iter().map(|&(name, groups)| (name.into(), groups)).collect(),
        ..Default::default()
    };
    let merged = TokenRecord::merge(&[of(&[("short", 2), ("long", 1)]), of(&[]), of(&[("short", 3)])]);
    let json = MetricsLine { record: merged.unwrap(), merged_updates: 3, per_second: None }.to_json();
    assert!(json.contains(r#""sources":{"long":1,"short":5}"#), "{json}");
}

#[test]
fn fates_of_tokens_add_up_over_updates_and_stand_in_a_line_by_name() {
    let of = |fates: &[(TokenFate, u64)], ratio_min, groups, alike| {
        let mut record = TokenRecord {
            ratio_min: Some(ratio_min),
            groups,
            zero_variance_fraction: Some(alike),
            ..Default::default()
        };
        fates.iter().for_each(|&(fate, tokens)| record.token_fates.add(fate, tokens));
        record
    };
    let merged = TokenRecord::merge(&[
        of(&[(TokenFate::Learned, 30), (TokenFate::Lag, 2)], 0.5, 3, 0.0),
        of(&[(TokenFate::Learned, 10), (TokenFate::Observation, 8)], 0.25, 1, 1.0),
    ])
    .unwrap();
    assert_eq!((merged.token_fates.total(), merged.ratio_min), (50, Some(0.25)));
    assert_eq!((merged.learned_fraction(), merged.zero_variance_fraction), (Some(40.0 / 42.0), Some(0.25)));
    let json = MetricsLine { record: merged, merged_updates: 2, per_second: None }.to_json();
    assert!(json.contains(r#""token_fates":{"learned":40,"observation":8,"lag":2}"#), "{json}");
    assert_eq!(TokenRecord::default().learned_fraction(), None);
}
