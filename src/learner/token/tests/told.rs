//! What an update tells and moves beside the parameters: fates of tokens, norms of blocks, four bounds; tokens that are
//! too old.

use std::sync::Arc;

use candle_core::Device;

use crate::codec;
use crate::learner::token::{
    FourBounds, TokenApplied, TokenLearner, TokenLearnerConfig, TokenLearnerState, TokenOutcome,
};
use crate::policy::{BlockKind, Checkpointing, Decoder, DecoderConfig, NamePatterns, Packing, TrainingPass};
use crate::trajectory::{Finish, Group, Reward, TokenFate, Trajectory, TrajectoryId, Version};

fn learner(settings: &str, state: TokenLearnerState) -> TokenLearner {
    let config: TokenLearnerConfig = toml::from_str(settings).unwrap();
    let decoder = decoder(config.has_shared_critic());
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let frozen = NamePatterns::default();
    let mut learner =
        TokenLearner::new(config, 1, Arc::new(decoder), &parameters, &frozen, 1.0, state).unwrap();
    learner.begin().unwrap();
    learner
}

fn decoder(value_head: bool) -> Decoder {
    let config = DecoderConfig {
        vocabulary: 7,
        width: 8,
        inner: 8,
        layers: 2,
        heads: 1,
        kv_heads: 1,
        head_size: 8,
        context: 16,
        tied: false,
        value_head,
        ..DecoderConfig::default()
    };
    Decoder::new(config, &Device::Cpu).unwrap()
}

/// An answer of so many tokens of each version, an observation after the first.
fn answer(versions: &[(u64, usize)], reward: Option<f64>) -> Trajectory {
    let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([1, 2]));
    for &(version, tokens) in versions {
        for token in 0..tokens {
            trajectory.push_action(3 + token as u32 % 4, -1.9, Version(version));
            if trajectory.tokens.len() == 1 {
                trajectory.push_observation(&[2], Version(version));
            }
        }
    }
    trajectory.finish = Some(Finish::Stop);
    trajectory.reward = reward.map(Reward::of);
    trajectory
}

fn group(members: Vec<Trajectory>) -> Group {
    Group { epoch: 0, prompt: 0, source: "test".into(), budget: None, members }
}

/// Makes the log-probabilities of an answer's tokens those of the initial policy.
fn sample_again(group: &mut Group) {
    let decoder = decoder(false);
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let packs = Packing { rows: 64, experts_per_row: 0 }.pack(&[&*group]).unwrap();
    let pass = TrainingPass { decoder: &decoder, temperature: 1.0, checkpointing: Checkpointing::default() };
    for pack in &packs {
        let scores = pass.evaluate(&parameters, pack).unwrap();
        for (place, &log_prob) in pack.places.iter().zip(&scores.log_probs) {
            group.members[place.member].log_probs[place.token] = log_prob;
        }
    }
}

fn update(learner: &mut TokenLearner, groups: &[Group]) -> Box<TokenApplied> {
    let groups: Vec<&Group> = groups.iter().collect();
    match learner.update(&groups, 1e-2, false, &|| false).unwrap() {
        TokenOutcome::Applied(applied) => applied,
        other => panic!("{other:?}"),
    }
}

fn parameters(learner: &TokenLearner) -> Vec<f32> {
    let tensors = learner.parameters().iter();
    tensors.flat_map(|(_, tensor)| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect()
}

/// Version 9, so that tokens may be of different ages.
fn at_version_9() -> TokenLearnerState {
    TokenLearnerState { version: Version(9), ..TokenLearnerState::default() }
}

#[test]
fn every_token_of_a_batch_has_one_fate_in_each_pass_and_the_counts_add_up_exactly() {
    let mut cut_off = answer(&[(9, 4)], Some(0.5));
    cut_off.finish = Some(Finish::Length);
    let members = || {
        vec![
            answer(&[(5, 2), (8, 3)], Some(1.0)),
            answer(&[(4, 1), (9, 2)], Some(0.0)),
            answer(&[(9, 6)], None),
            cut_off.clone(),
        ]
    };
    let groups = [group(members()), group(members())];
    let tokens: u64 = groups.iter().map(Group::token_count).sum();
    let settings = "mask_truncated = true\nmax_token_age = 4\nepochs = 3\nminibatches = 2\n";
    let of = |loss: &str| {
        let mut learner = learner(&format!("{settings}loss = {{ {loss} }}"), at_version_9());
        let fates = update(&mut learner, &groups).fates;
        assert_eq!(fates.total(), 3 * tokens, "{loss}: {fates:?}");
        // Of each group: four observations, six tokens without a grade, four cut off, one too old.
        let outside = [TokenFate::Observation, TokenFate::Ungraded, TokenFate::Truncated, TokenFate::Age];
        assert_eq!(outside.map(|fate| fates.get(fate)), [24, 36, 24, 6], "{loss}");
        fates
    };
    assert_eq!(of("objective = { kind = 'ppo' }").get(TokenFate::Learned), 6 * 7);
    let best = of("objective = { kind = 'best_of_n' }");
    assert_eq!([TokenFate::Learned, TokenFate::NotChosen].map(|fate| best.get(fate)), [6 * 5, 6 * 2]);
    let young = of("objective = { kind = 'lag_mask', max_lag = 0 }");
    assert_eq!([TokenFate::Learned, TokenFate::Lag].map(|fate| young.get(fate)), [6 * 2, 6 * 5]);
    // Sampled at −1.9 where the policy says about −ln 7: a ratio just below 1.
    let shut_out = of("objective = { kind = 'dis', epsilon_low = 1e-9 }");
    assert!(shut_out.get(TokenFate::OffPolicyLow) > 0, "{shut_out:?}");
}

#[test]
fn norms_of_blocks_are_the_norm_of_the_gradient_in_parts() {
    for (settings, value_head) in [
        ("loss = { objective = { kind = 'ppo' } }", false),
        ("loss = { objective = { kind = 'ppo' } }\nadvantage = { kind = 'skip_observation_gae' }", true),
    ] {
        let mut learner = learner(settings, TokenLearnerState::default());
        let members = vec![answer(&[(0, 4)], Some(1.0)), answer(&[(0, 3)], Some(0.0))];
        let applied = update(&mut learner, &[group(members)]);
        let norms = BlockKind::ALL.map(|kind| applied.block_norms.get(kind));
        let whole = norms.iter().flatten().map(|norm| norm.powi(2)).sum::<f64>().sqrt();
        assert!((whole - applied.gradient_norm).abs() < 1e-12 * whole, "{norms:?}");
        assert_eq!(applied.block_norms.get(BlockKind::ValueHead).is_some(), value_head);
        assert_eq!(applied.block_norms.get(BlockKind::Router), None);
        assert!(applied.block_norms.get(BlockKind::Attention).unwrap() > 0.0);
        let (least, greatest) = applied.ratios.unwrap();
        assert!(least <= greatest && applied.advantages.is_some());
    }
}

#[test]
fn a_sequence_that_is_too_old_as_a_whole_contributes_exactly_nothing() {
    let plain = "advantage = { kind = 'reinforce', baseline = { kind = 'none' } }";
    for objective in ["ppo", "grpo", "decoupled_ppo", "dis", "k3", "k15", "dr_grpo"] {
        let loss = format!(
            "{plain}\nmax_token_age = 3\nloss = {{ max_length = 8, objective = {{ kind = '{objective}' }} }}"
        );
        let after = |members: Vec<Trajectory>| {
            let mut learner = learner(&loss, at_version_9());
            update(&mut learner, &[group(members)]);
            parameters(&learner)
        };
        let young = || answer(&[(8, 3)], Some(1.0));
        // What stands in the old one must not be read either.
        let mut old = answer(&[(2, 5)], Some(-1.0));
        old.log_probs.fill(f32::NAN);
        if matches!(objective, "k15" | "dr_grpo") {
            // These count every row, with tokens or not.
            let mut other = old.clone();
            other.tokens.fill(6);
            assert_eq!(after(vec![young(), old]), after(vec![young(), other]), "{objective}");
        } else {
            assert_eq!(after(vec![young(), old]), after(vec![young()]), "{objective}");
        }
    }
}

#[test]
fn old_tokens_are_left_out_of_the_denominators_and_the_younger_rest_of_their_answer_stays() {
    let settings = |age: &str| {
        format!(
            "{age}\nadvantage = {{ kind = 'reinforce', baseline = {{ kind = 'none' }} }}\n\
             loss = {{ objective = {{ kind = 'reinforce' }} }}"
        )
    };
    let members = || vec![answer(&[(2, 2), (8, 4)], Some(2.0))];
    let mut bounded = learner(&settings("max_token_age = 1"), at_version_9());
    let applied = update(&mut bounded, &[group(members())]);
    assert_eq!((applied.fates.get(TokenFate::Age), applied.fates.get(TokenFate::Learned)), (2, 4));
    // All tokens have about the same log-probability: the mean over fewer of them is the same, not a share of it.
    let mut unbounded = learner(&settings(""), at_version_9());
    let all = update(&mut unbounded, &[group(members())]);
    assert!((applied.policy_loss / all.policy_loss - 1.0).abs() < 0.2, "{applied:?} {all:?}");
    assert_ne!(parameters(&bounded), parameters(&unbounded));
}

const CONTROLLED: &str = "loss = { objective = { kind = 'four_bound', control = { entropy_low = 5.0, entropy_high = 6.0, step = 1.5 } } }";

#[test]
fn bounds_follow_the_entropy_and_are_part_of_the_state_that_a_run_goes_on_from() {
    let groups = [group(vec![answer(&[(0, 4)], Some(1.0)), answer(&[(0, 3)], Some(0.0))])];
    let mut whole = learner(CONTROLLED, TokenLearnerState::default());
    let begin = FourBounds { pos_low: 0.2, pos_high: 5.0, neg_low: 0.2, neg_high: 5.0 };
    let first = update(&mut whole, &groups);
    // The update went by the bounds before the move: an entropy of about ln 7 is low here.
    assert_eq!(first.bounds, Some(begin));
    let moved = whole.state().bounds.unwrap();
    assert!((moved.pos_high - 7.5).abs() < 1e-12 && (moved.neg_high - 5.0 / 1.5).abs() < 1e-12);
    let kind = codec::Kind::new(*b"TEST");
    let saved = codec::encode(kind, whole.state()).unwrap();
    let state: TokenLearnerState = codec::decode(kind, &saved, 4096).unwrap();
    let resumed = learner(CONTROLLED, state);
    assert_eq!(resumed.state(), whole.state());
    let [mut whole, mut resumed] = [whole, resumed];
    assert_eq!(update(&mut whole, &groups).bounds, Some(moved));
    assert_eq!(update(&mut resumed, &groups).bounds, Some(moved));
    assert_eq!(resumed.state(), whole.state());
    // Without a controller there are none to remember.
    let fixed = learner("loss = { objective = { kind = 'four_bound' } }", whole.state().clone());
    assert_eq!(fixed.state().bounds, None);
}

#[test]
fn bounds_decide_which_tokens_are_learned_from() {
    let mut groups = [group(vec![answer(&[(0, 4)], Some(1.0)), answer(&[(0, 3)], Some(0.0))])];
    // A ratio of about 3.
    groups[0].members.iter_mut().for_each(|member| member.log_probs.fill(-3.0));
    let mut learner = learner(CONTROLLED, TokenLearnerState::default());
    let all = update(&mut learner, &groups).fates;
    assert_eq!(all.get(TokenFate::Learned), 7);
    // Bounds that a checkpoint holds count for more than those that are set, within the limits that are set.
    let narrow = FourBounds { pos_low: 0.5, pos_high: 1.1, neg_low: 0.5, neg_high: 1.5 };
    let state = TokenLearnerState { bounds: Some(narrow), ..TokenLearnerState::default() };
    let mut resumed = self::learner(CONTROLLED, state);
    let figures = update(&mut resumed, &groups);
    assert_eq!(figures.bounds, Some(FourBounds { pos_high: 1.5, ..narrow }));
    assert_eq!(figures.fates.get(TokenFate::OffPolicyHigh), 7);
}

#[test]
fn on_policy_v_trace_learns_what_a_return_less_its_value_does() {
    let groups = || [group(vec![answer(&[(0, 4)], Some(1.0)), answer(&[(0, 3)], Some(0.0))])];
    let objective = "loss = { objective = { kind = 'reinforce' } }";
    let after = |advantage: &str, groups: &[Group]| {
        let mut learner =
            learner(&format!("{objective}\nadvantage = {{ {advantage} }}"), TokenLearnerState::default());
        let applied = update(&mut learner, groups);
        (parameters(&learner), applied)
    };
    let mut own = groups();
    sample_again(&mut own[0]);
    let gae = "kind = 'skip_observation_gae', lambda_policy = 1.0";
    let (vtrace, figures) = after("kind = 'vtrace'", &own);
    let (returns, expected) = after(gae, &own);
    assert_eq!(
        (figures.explained_variance, figures.value_bias),
        (expected.explained_variance, expected.value_bias)
    );
    for (vtrace, returns) in vtrace.iter().zip(&returns) {
        assert!((vtrace - returns).abs() < 1e-5, "{vtrace} is not {returns}");
    }
    // Off policy they differ.
    assert_ne!(after("kind = 'vtrace', rho_bar = 0.5, c_bar = 0.5", &groups()).0, after(gae, &groups()).0);
}
