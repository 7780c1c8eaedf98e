//! A critic with a trunk of its own: what it touches, how often it learns, and when.

use std::sync::Arc;

use candle_core::Device;

use crate::learner::LearnerError;
use crate::learner::advantage::SkipObservationGaeConfig;
use crate::learner::token::flat::{Flat, LossMask};
use crate::learner::token::update::estimate;
use crate::learner::token::{
    Critic, TokenApplied, TokenLearner, TokenLearnerConfig, TokenLearnerState, TokenOutcome, ValuePretraining,
};
use crate::policy::{Decoder, DecoderConfig, NamePatterns, Parameters};
use crate::random::CounterRng;
use crate::trajectory::{Finish, Group, Reward, Trajectory, TrajectoryId, Version};

const VOCABULARY: u32 = 9;
const RATE: f64 = 1e-2;

fn decoder() -> Decoder {
    let config = DecoderConfig {
        vocabulary: VOCABULARY as usize,
        width: 8,
        inner: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_size: 4,
        context: 16,
        ..DecoderConfig::default()
    };
    Decoder::new(config, &Device::Cpu).unwrap()
}

fn settings(critic: &str) -> TokenLearnerConfig {
    let text = format!(
        "group_size = 2\nmicrobatch_tokens = 9\nadvantage = {{ kind = 'skip_observation_gae' }}\n\
         loss = {{ objective = {{ kind = 'grpo' }} }}\ncritic = {{ trunk = 'separate', {critic} }}"
    );
    toml::from_str(&text).unwrap()
}

fn learner(config: TokenLearnerConfig) -> TokenLearner {
    let decoder = decoder();
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let (frozen, state) = (NamePatterns::default(), TokenLearnerState::default());
    let mut learner =
        TokenLearner::new(config, 1, Arc::new(decoder), &parameters, &frozen, 1.0, state).unwrap();
    learner.begin().unwrap();
    learner
}

/// Groups whose rewards the first token of their prompt tells.
fn groups(count: u32, seed: u64) -> Vec<Group> {
    let mut random = CounterRng::new(seed);
    let group = |index: u32| {
        let first = random.below(2) as u32;
        let prompt: Arc<[u32]> = [first, 2].into();
        let members = (0..2).map(|member| {
            let id = TrajectoryId { prompt: index, member, ..TrajectoryId::default() };
            let mut trajectory = Trajectory::new(id, Arc::clone(&prompt));
            for _ in 0..2 + random.below(3) {
                trajectory.push_action(3 + random.below(6) as u32, -1.5, Version(0));
            }
            trajectory.push_observation(&[2], Version(0));
            trajectory.push_action(3, -1.5, Version(0));
            trajectory.reward = Some(Reward::of(f64::from(first)));
            trajectory
        });
        Group { epoch: 0, prompt: index, source: "test".into(), budget: None, members: members.collect() }
    };
    (0..count).map(group).collect()
}

fn update(learner: &mut TokenLearner, poison: bool, abandon: bool) -> TokenOutcome {
    let groups = groups(4, 7);
    let groups: Vec<&Group> = groups.iter().collect();
    learner.update(&groups, RATE, poison, &|| abandon).unwrap()
}

fn applied(learner: &mut TokenLearner) -> Box<TokenApplied> {
    match update(learner, false, false) {
        TokenOutcome::Applied(applied) => applied,
        other => panic!("{other:?}"),
    }
}

fn bits(parameters: &Parameters) -> Vec<(String, Vec<u32>)> {
    let values = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let named = parameters.iter();
    named.map(|(name, t)| (name.to_owned(), values(t).into_iter().map(f32::to_bits).collect())).collect()
}

fn of_policy(learner: &TokenLearner) -> Vec<(String, Vec<u32>)> {
    bits(learner.parameters())
}

fn of_critic(learner: &TokenLearner) -> Vec<(String, Vec<u32>)> {
    bits(learner.critic().unwrap().parameters())
}

#[test]
fn what_the_critic_learns_leaves_the_policy_as_it_is() {
    let trained = |critic: &str| {
        let mut learner = learner(settings(critic));
        let applied = applied(&mut learner);
        assert!(applied.gradient_norm > 0.0 && applied.value_gradient_norm.unwrap() > 0.0);
        learner
    };
    let one = trained("order = 'policy_first'");
    // More value updates, with a clip that stops some: the same policy.
    let other = trained("order = 'policy_first', updates = 3, clip = 0.01, train = 'feed_forward'");
    assert_eq!(of_policy(&one), of_policy(&other));
    assert_ne!(of_critic(&one), of_critic(&other));
    assert!(one.parameters().iter().all(|(name, _)| name != "value_head.weight"));
}

#[test]
fn its_optimiser_makes_so_many_steps_for_each_of_the_policys() {
    for (critic, epochs, minibatches, policy, values) in
        [("updates = 1", 1, 1, 1, 1), ("updates = 2", 1, 1, 1, 2), ("updates = 3", 2, 2, 4, 12)]
    {
        let config = TokenLearnerConfig { epochs, minibatches, ..settings(critic) };
        let mut learner = learner(config);
        let applied = applied(&mut learner);
        assert_eq!(applied.value_steps, values);
        assert_eq!(learner.optimizer().updates(), policy, "{critic}");
        assert_eq!(learner.critic_mut().unwrap().optimizer().updates(), values, "{critic}");
    }
}

#[test]
fn while_it_warms_up_it_alone_learns() {
    let mut learner = learner(settings("updates = 2, warmup_updates = 2"));
    let before = of_policy(&learner);
    for made in 1..=2 {
        let values = of_critic(&learner);
        let applied = applied(&mut learner);
        assert!(applied.value_only && applied.value_loss == Some(applied.loss));
        assert_eq!((learner.version(), learner.state().policy_updates()), (Version(made), 0));
        assert_eq!((of_policy(&learner), learner.optimizer().updates()), (before.clone(), 0));
        assert_ne!(of_critic(&learner), values);
    }
    assert!(!applied(&mut learner).value_only);
    assert_ne!(of_policy(&learner), before);
    assert_eq!((learner.state().policy_updates(), learner.state().value_only), (1, 2));
}

/// Settings of a critic, and whether the parameter of a name is trained under them.
type Kind = (&'static str, fn(&str) -> bool);

#[test]
fn frozen_parameters_stay_the_same_bits() {
    let kinds: [Kind; 3] = [
        ("train = 'feed_forward'", Decoder::is_feed_forward),
        ("train = 'feed_forward', frozen = ['*layers.0.*']", |name| {
            Decoder::is_feed_forward(name) && !name.contains("layers.0.")
        }),
        // Its trunk is a copy: the policy's goes on without it.
        ("frozen = ['model.*']", |name| name == "value_head.weight"),
    ];
    for (critic, is_trained) in kinds {
        let mut learner = learner(settings(critic));
        let (policy, before) = (of_policy(&learner), of_critic(&learner));
        for _ in 0..3 {
            applied(&mut learner);
        }
        for ((name, before), (_, after)) in before.iter().zip(&of_critic(&learner)) {
            assert_eq!(before != after, is_trained(name), "{critic}: {name}");
        }
        assert!(policy.iter().zip(&of_policy(&learner)).all(|(before, after)| before != after));
    }
}

#[test]
fn by_default_values_are_learned_first_and_computed_anew_for_the_advantages() {
    let mut at_once = learner(settings("updates = 3"));
    let figures = applied(&mut at_once);
    // The same in two updates on the same batch: the values alone, and then the policy before the values.
    let mut in_turn = learner(settings("updates = 3, warmup_updates = 1, order = 'policy_first'"));
    applied(&mut in_turn);
    let second = applied(&mut in_turn);
    assert_eq!(of_policy(&at_once), of_policy(&in_turn));
    assert_eq!(figures.explained_variance_updated, second.explained_variance);
    assert_eq!(figures.advantage_mean, second.advantage_mean);
    assert!(figures.explained_variance_updated > figures.explained_variance);
    // The other order gives another policy, whose advantages are those of the values before.
    let mut policy_first = learner(settings("updates = 3, order = 'policy_first'"));
    let figures = applied(&mut policy_first);
    assert_eq!(figures.explained_variance_updated, None);
    assert_ne!(of_policy(&at_once), of_policy(&policy_first));
}

#[test]
fn it_begins_as_the_policy_when_reinforcement_learning_begins_or_as_it_was_given() {
    let mut warmed = learner(settings(""));
    let trunk = |of: &[(String, Vec<u32>)]| -> Vec<_> {
        of.iter().filter(|(name, _)| name.starts_with("model.")).cloned().collect()
    };
    assert_eq!(trunk(&of_critic(&warmed)), trunk(&of_policy(&warmed)));
    let own = Decoder::value_function(decoder().config(), &Device::Cpu).unwrap();
    let given = own.layout().initialize(11, &Device::Cpu).unwrap();
    warmed.set_critic(Arc::new(own), &given).unwrap();
    warmed.imitate(&groups(2, 1), RATE).unwrap();
    warmed.begin().unwrap();
    assert_eq!(of_critic(&warmed), bits(&given));
}

#[test]
fn a_step_that_is_stopped_or_not_finite_changes_nothing() {
    let mut learner = learner(settings("warmup_updates = 1"));
    let before = (of_policy(&learner), of_critic(&learner));
    assert!(matches!(update(&mut learner, false, true), TokenOutcome::Abandoned));
    let TokenOutcome::Skipped { culprit } = update(&mut learner, true, false) else { panic!() };
    assert!(culprit.contains("of the critic"), "{culprit}");
    assert_eq!((of_policy(&learner), of_critic(&learner)), before);
    assert_eq!((learner.version(), learner.state().value_only), (Version(0), 0));
}

#[test]
fn pretraining_teaches_values_that_hold_for_answers_it_has_not_seen() -> Result<(), LearnerError> {
    let config = TokenLearnerConfig { prompts: 8, ..settings("") };
    let own = Decoder::value_function(decoder().config(), &Device::Cpu)?;
    let parameters = own.layout().initialize(3, &Device::Cpu)?;
    let critic = Critic::new(&config, Arc::new(own), &parameters)?;
    let mut pretraining = ValuePretraining::new(config, SkipObservationGaeConfig::default(), critic, 1);
    let (corpus, held_out) = (groups(32, 1), groups(16, 2));
    let before = pretraining.fit(&held_out)?;
    // A new value head says 0 of everything.
    assert_eq!(before.explained_variance, Some(0.0));
    let mut steps = Vec::new();
    for _ in 0..10 {
        pretraining.pass(&corpus, &|made| RATE / (1.0 + made as f64 / 40.0), &mut |step, _| {
            steps.push(step);
            true
        })?;
    }
    assert_eq!(steps, (1..=40).collect::<Vec<_>>());
    let after = pretraining.fit(&held_out)?;
    assert_eq!(after.tokens, before.tokens);
    assert!(after.explained_variance.unwrap() > 0.9 && after.loss < 0.1 * before.loss, "{after:?}");
    Ok(())
}

#[test]
fn the_rest_of_an_answer_that_was_cut_off_counts_as_the_critic_expects_where_that_is_set() {
    let settings =
        SkipObservationGaeConfig { lambda_policy: Some(1.0), ..SkipObservationGaeConfig::default() };
    let mut group = groups(1, 7).remove(0);
    let answer = group.members[0].clone();
    let ended = |finish| Trajectory { finish: Some(finish), ..answer.clone() };
    group.members = vec![ended(Finish::Stop), ended(Finish::Length), ended(Finish::Context)];
    let reward = answer.reward.as_ref().unwrap().value as f32;
    for bootstrap in [false, true] {
        let mut flat = Flat::new(&[&group], LossMask::default());
        flat.values =
            (0..flat.tokens()).map(|token| 0.25 + 0.5 * (token % answer.tokens.len()) as f32).collect();
        let costs = vec![0.0; flat.tokens()];
        estimate(&settings, bootstrap, &[&group], &costs, &mut flat).unwrap();
        for (row, cut_off) in [false, true, true].into_iter().enumerate() {
            let tokens = flat.rows[row].clone();
            let last = flat.values[tokens.end - 1];
            let worth = if cut_off && bootstrap { reward + last } else { reward };
            for (index, token) in tokens.enumerate() {
                let expected = if answer.is_action[index] { worth - flat.values[token] } else { 0.0 };
                assert!((flat.advantages[token] - expected).abs() < 1e-5, "row {row}, token {index}");
            }
        }
    }
}
