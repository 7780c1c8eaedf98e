//! What is refused, and by which name.

use super::fixture::Fixture;
use crate::learner::token::{
    Denominators, KlEstimator, Shape, TOKEN_OBJECTIVES, TokenBatch, TokenLossConfig, TokenLossError,
    reference_kl_rewards, token_loss,
};

fn configuration(text: &str) -> TokenLossConfig {
    toml::from_str(text).unwrap()
}

fn refusal(config: &TokenLossConfig, batch: &TokenBatch<'_, f64>) -> TokenLossError {
    let denominators = Denominators::new(config, &Fixture::new(1).shape()).unwrap();
    token_loss(config, batch, &denominators).unwrap_err()
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    for (text, name) in [
        ("objective = { kind = 'ppo', clip_low = 1.5 }", "clip_low"),
        ("objective = { kind = 'ppo', clip_high = nan }", "clip_high"),
        ("objective = { kind = 'ppo', dual_clip = 1.0 }", "dual_clip"),
        ("objective = { kind = 'grpo', clip_low = -0.1 }", "clip_low"),
        ("objective = { kind = 'decoupled_ppo', weight_cap = 0.5 }", "weight_cap"),
        ("objective = { kind = 'tis', weight_cap = nan }", "weight_cap"),
        ("objective = { kind = 'rloo', seq_ratio_cap = 0.5 }", "seq_ratio_cap"),
        ("objective = { kind = 'icepop', low = 1.5 }", "low"),
        ("objective = { kind = 'dis', epsilon_low = 0.0 }", "epsilon_low"),
        ("objective = { kind = 'dis', epsilon_high = inf }", "epsilon_high"),
        ("objective = { kind = 'four_bound', neg_high = 0.9 }", "neg_high"),
        (
            "objective = { kind = 'four_bound', control = { entropy_low = 1.0, entropy_high = 0.5 } }",
            "control.entropy_high",
        ),
        ("objective = { kind = 'k15', tau = -1.0 }", "tau"),
        ("objective = { kind = 'k3', beta = 0.5 }", "beta"),
        ("objective = { kind = 'k25', p_delta = nan }", "p_delta"),
        ("objective = { kind = 'sapo', tau_neg = 0.0 }", "tau_neg"),
        ("objective = { kind = 'opsm', delta = -1.0 }", "delta"),
        ("objective = { kind = 'online_dpo', beta = 0.0 }", "beta"),
        ("objective = { kind = 'ipo', beta = -1.0 }", "beta"),
        ("objective = { kind = 'mopd', r_max = 0.0 }", "r_max"),
        ("reference_kl = { coefficient = -1.0 }", "reference_kl.coefficient"),
        ("entropy_coef = nan", "entropy_coef"),
    ] {
        let error = configuration(text).validate().unwrap_err().to_string();
        assert!(error.contains(name), "{text}: {error}");
    }
}

#[test]
fn axes_that_contradict_each_other_are_refused_naming_both() {
    for (text, parts) in [
        ("aggregation = 'group_mean'\nobjective = { kind = 'ppo' }", ["ppo", "group_mean"]),
        ("aggregation = 'token_mean'\nobjective = { kind = 'k15' }", ["k15", "token_mean"]),
        ("objective = { kind = 'dr_grpo' }", ["fixed_length", "max_length"]),
        ("max_length = 0\nobjective = { kind = 'dr_grpo' }", ["fixed_length", "max_length"]),
        (
            "reference_kl = { coefficient = 0.1 }\nobjective = { kind = 'online_dpo' }",
            ["online_dpo", "reference_kl"],
        ),
    ] {
        let error = configuration(text).validate().unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn an_array_that_is_needed_and_absent_is_named() {
    let fixture = Fixture::new(1);
    let full = fixture.batch();
    for entry in TOKEN_OBJECTIVES {
        let config = TokenLossConfig { max_length: Some(8), ..TokenLossConfig::of((entry.default)()) };
        let needs = config.needs();
        let without = [
            (needs.advantages, TokenBatch { advantages: None, ..full }, "advantages"),
            (needs.proximal, TokenBatch { proximal: None, ..full }, "proximal"),
            (needs.reference, TokenBatch { reference: None, ..full }, "reference"),
            (needs.teacher, TokenBatch { teacher: None, ..full }, "teacher"),
            (needs.versions, TokenBatch { versions: None, ..full }, "versions"),
        ];
        for (needed, batch, array) in without {
            let denominators = Denominators::new(&config, &fixture.shape()).unwrap();
            let result = token_loss(&config, &batch, &denominators);
            match result {
                Err(error) if needed => assert!(error.to_string().contains(array), "{error}"),
                result => assert_eq!(result.is_err(), needed, "{} without {array}", entry.kind()),
            }
        }
        let unrewarded = Denominators::new(&config, &Shape { rewards: None, ..fixture.shape() });
        assert_eq!(unrewarded.is_err(), needs.rewards, "{} without rewards", entry.kind());
    }
    let bonus = configuration("entropy_coef = 0.1\nobjective = { kind = 'ppo' }");
    let error = refusal(&bonus, &TokenBatch { entropies: None, ..full });
    assert!(error.to_string().contains("entropies"), "{error}");
}

#[test]
fn arrays_of_another_length_are_named() {
    let fixture = Fixture::new(1);
    let config = configuration("objective = { kind = 'ppo' }");
    let batch = TokenBatch { advantages: Some(&fixture.advantages[1..]), ..fixture.batch() };
    assert!(matches!(refusal(&config, &batch), TokenLossError::Length { name: "advantages", .. }));
    let batch = TokenBatch { log_probs: &fixture.log_probs[1..], ..fixture.batch() };
    assert!(matches!(refusal(&config, &batch), TokenLossError::Length { name: "log_probs", .. }));
    let fewer =
        Shape { rows: &fixture.rows[1..], prompts: &fixture.prompts[1..], rewards: None, ..fixture.shape() };
    let error = refusal(&config, &fixture.batch_of(fewer));
    assert!(error.to_string().contains("weights"), "{error}");
}

#[test]
fn rows_that_overlap_or_leave_the_batch_are_refused() {
    let config = configuration("objective = { kind = 'ppo' }");
    for rows in [[0..2, 1..3], [0..2, 2..4], [2..3, 0..1]] {
        let shape = Shape { rows: &rows, prompts: &[0, 0], mask: &[true; 3], rewards: None };
        let refused = Denominators::new(&config, &shape);
        assert!(matches!(refused, Err(TokenLossError::Row { row: 1, .. })), "{rows:?}");
    }
}

#[test]
fn a_reward_that_is_no_number_is_refused_with_its_row() {
    let mut fixture = Fixture::new(1);
    fixture.rewards[3] = Some(f64::NAN);
    let refused = Denominators::new(&configuration("objective = { kind = 'online_dpo' }"), &fixture.shape());
    assert!(matches!(refused, Err(TokenLossError::Reward { row: 3, .. })));
}

#[test]
fn whole_sequence_objectives_refuse_advantages_that_differ_within_one() {
    let mut fixture = Fixture::new(1);
    for (index, advantage) in fixture.advantages.iter_mut().enumerate() {
        *advantage += index as f64;
    }
    for kind in ["gspo", "opsm", "k15"] {
        let config = configuration(&format!("objective = {{ kind = '{kind}' }}"));
        let error = refusal(&config, &fixture.batch());
        assert!(matches!(error, TokenLossError::MixedAdvantages { .. }), "{kind}: {error}");
    }
}

#[test]
fn a_micro_batch_must_exist_and_keep_pairs_together() {
    let config = configuration("objective = { kind = 'online_dpo' }");
    let denominators = Denominators::new(&config, &Fixture::new(1).shape()).unwrap();
    assert!(matches!(denominators.select(&[1]), Err(TokenLossError::SplitPair { chosen: 1, rejected: 2 })));
    assert!(matches!(denominators.select(&[8]), Err(TokenLossError::UnknownRow { row: 8, rows: 8 })));
    assert_eq!(denominators.select(&[0]).unwrap().pairs(), []);
}

#[test]
fn a_reference_reward_refuses_a_negative_coefficient() {
    let fixture = Fixture::new(1);
    let rewards =
        reference_kl_rewards(-0.1, KlEstimator::K3, &fixture.shape(), &fixture.log_probs, &fixture.reference);
    assert!(rewards.is_err());
}
