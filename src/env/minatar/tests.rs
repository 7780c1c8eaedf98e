//! What holds for every game: the contract of an environment, determinism, saving, and the options.

use super::*;
use crate::env::{Action, EnvError};
use crate::random::CounterRng;

/// Every reward, end and observation of `frames` frames with random actions. An episode that ends is followed by one
/// with the next seed, `next_seed` at first.
fn play(
    env: &mut dyn Environment,
    next_seed: u64,
    actions: &mut CounterRng,
    frames: usize,
) -> Vec<(f32, bool, Vec<f32>)> {
    let mut seeds = next_seed..;
    let mut trace = Vec::new();
    for _ in 0..frames {
        let step = env.step(Action::new(&[actions.below(6) as f32])).unwrap();
        let mut observation = Vec::new();
        env.observe(&mut observation);
        trace.push((step.reward, step.terminated, observation));
        if step.done() {
            env.reset(seeds.next().unwrap()).unwrap();
        }
    }
    trace
}

#[test]
fn an_episode_depends_on_its_seed_and_actions_only() {
    for game in GAMES {
        let from = |env: &mut dyn Environment, seed| {
            env.reset(seed).unwrap();
            play(env, seed + 1, &mut CounterRng::new(2), 500)
        };
        let (mut fresh, mut used) = ((game.make)(&Options::default()), (game.make)(&Options::default()));
        play(&mut *used, 1, &mut CounterRng::new(1), 77);
        let expected = from(&mut *fresh, 500);
        assert!(from(&mut *used, 500) == expected, "{}", game.name);
        assert!(from(&mut *used, 600) != expected, "{} with another seed", game.name);
    }
}

#[test]
fn a_restored_game_continues_as_if_never_stopped() {
    for game in GAMES {
        let mut env = (game.make)(&Options::default());
        let mut actions = CounterRng::new(3);
        for _ in 0..20 {
            play(&mut *env, 1, &mut actions, 23);
            let saved = env.save().unwrap();
            let mut copy = (game.make)(&Options::default());
            copy.restore(&saved).unwrap();
            assert_eq!(copy.save().unwrap(), saved);
            let expected = play(&mut *env, 50, &mut actions.clone(), 60);
            assert!(play(&mut *copy, 50, &mut actions.clone(), 60) == expected, "{}", game.name);
        }
    }
}

#[test]
fn a_finished_game_stays_finished_until_reset() {
    for game in GAMES {
        let mut env = (game.make)(&Options::default());
        let mut actions = CounterRng::new(4);
        while !env.step(Action::new(&[actions.below(6) as f32])).unwrap().terminated {}
        let (mut last, mut later) = (Vec::new(), Vec::new());
        env.observe(&mut last);
        let mut copy = (game.make)(&Options::default());
        copy.restore(&env.save().unwrap()).unwrap();
        for env in [&mut env, &mut copy] {
            let step = env.step(Action::new(&[1.0])).unwrap();
            assert_eq!((step.reward, step.terminated), (0.0, true));
            later.clear();
            env.observe(&mut later);
            assert_eq!(later, last);
        }
        env.reset(0).unwrap();
        assert!(!env.step(Action::new(&[0.0])).unwrap().terminated);
    }
}

#[test]
fn observations_are_appended_and_have_the_announced_length() {
    for game in GAMES {
        let env = (game.make)(&Options::default());
        let mut out = vec![7.0];
        env.observe(&mut out);
        env.observe(&mut out);
        let length = env.spec().observation_len();
        assert_eq!((env.spec().name.as_str(), out.len(), out[0]), (game.name, 1 + 2 * length, 7.0));
        assert_eq!(out[1..=length], out[1 + length..]);
    }
}

#[test]
fn minimal_actions_are_renumbered_and_others_refused() {
    let options = Options { minimal_actions: true, sticky_action_prob: 0.0, ..Options::default() };
    for (game, minimal) in GAMES.iter().zip([5, 3, 3, 6, 4]) {
        let env = (game.make)(&options);
        assert_eq!(env.spec().action_space.choices(), minimal, "{}", game.name);
    }
    let mut breakout = breakout::make(&options);
    let paddle = |env: &dyn Environment| {
        let mut observation = Vec::new();
        env.observe(&mut observation);
        (0..10).find(|column| observation[(90 + column) * 4] == 1.0).unwrap()
    };
    assert_eq!(paddle(&breakout), 4);
    breakout.step(Action::new(&[2.0])).unwrap();
    assert_eq!(paddle(&breakout), 5, "the third minimal move of Breakout is to the right");
    let refusal = breakout.step(Action::new(&[3.0])).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "environment `minatar/breakout` broke its contract in step: action 3 where 3 are known; send 0 to 2"
    );
}

#[test]
fn a_sticky_first_frame_repeats_nothing_and_later_ones_the_last_move() {
    let options = Options { sticky_action_prob: 1.0, ..Options::default() };
    let (mut moving, mut standing) = (asterix::make(&options), asterix::make(&options));
    moving.reset(9).unwrap();
    standing.reset(9).unwrap();
    for _ in 0..20 {
        moving.step(Action::new(&[1.0])).unwrap();
        standing.step(Action::new(&[0.0])).unwrap();
    }
    assert_eq!(moving.save(), standing.save());
}

#[test]
fn the_state_of_another_game_and_torn_states_are_refused() {
    let states: Vec<Vec<u8>> =
        GAMES.iter().map(|game| (game.make)(&Options::default()).save().unwrap()).collect();
    for (index, game) in GAMES.iter().enumerate() {
        let mut env = (game.make)(&Options::default());
        let own = &states[index];
        let torn = &own[..own.len() - 1];
        let longer = [&own[..], &[0]].concat();
        let foreign =
            states.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, state)| &state[..]);
        for wrong in foreign.chain([torn, &longer[..], &[]]) {
            assert!(matches!(env.restore(wrong), Err(EnvError::Restore { .. })), "{}", game.name);
        }
        assert_eq!(&env.save().unwrap(), own, "a refused state changes nothing");
    }
}

#[test]
fn options_default_to_the_reference_and_impossible_ones_are_refused() {
    let parse = |text: &str| toml::from_str::<Options>(text);
    let defaults = Options { sticky_action_prob: 0.1, difficulty_ramping: true, minimal_actions: false };
    assert_eq!(parse("").unwrap(), defaults);
    assert_eq!(parse("sticky_action_prob = 0.25").unwrap().sticky_action_prob, 0.25);
    let impossible = parse("sticky_action_prob = 1.5").unwrap_err().to_string();
    assert!(impossible.contains("a probability lies between 0 and 1, this is 1.5"), "{impossible}");
    assert!(parse("sticky_actions = 0.1").unwrap_err().to_string().contains("sticky_actions"));
}
