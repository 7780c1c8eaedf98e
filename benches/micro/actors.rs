//! The hot path of a run, piece by piece: a hop through the queue, a forward pass of an actor, an update.

use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;
use divan::Bencher;
use divan::counter::ItemsCount;
use forebay::actors::queue::queue;
use forebay::env::{ActionSpace, EnvSpec};
use forebay::learner::{Learner, LearnerConfig};
use forebay::policy::{Policy, PolicyConfig, StepInput, TorsoConfig};
use forebay::trajectory::{Unroll, UnrollId, Version};

const STEPS: usize = 20;
const COLUMNS: usize = 32;

/// A network as the presets use it, for CartPole or MinAtar Breakout.
fn policy(name: &str) -> Policy {
    let (shape, n, torso) = match name {
        "cartpole" => (vec![4], 2, TorsoConfig::Mlp { hidden: vec![64, 64] }),
        _ => (vec![10, 10, 4], 6, TorsoConfig::Conv { channels: 16, hidden: 128 }),
    };
    let spec = EnvSpec {
        name: name.into(),
        observation_shape: shape,
        action_space: ActionSpace::Discrete { n },
        masks_actions: false,
    };
    Policy::new(&PolicyConfig { torso, ..PolicyConfig::default() }, &spec)
}

fn unroll(policy: &Policy) -> Unroll {
    let entries = STEPS * COLUMNS;
    let values = |n: usize| (0..n).map(|i| (i % 7) as f32 / 7.0).collect::<Vec<f32>>();
    Unroll {
        id: UnrollId { actor: 0, lane: 0, incarnation: 0, sequence: 0 },
        steps: STEPS,
        columns: COLUMNS,
        versions: vec![Version(0); STEPS],
        observations: values((STEPS + 1) * COLUMNS * policy.observation_len()),
        action_masks: Vec::new(),
        actions: (0..entries).map(|i| (i % 2) as f32).collect(),
        log_probs: vec![-0.7; entries],
        rewards: values(entries),
        terminated: (0..entries).map(|i| i % 97 == 0).collect(),
        truncated: vec![false; entries],
        final_observations: Vec::new(),
        starts: vec![false; COLUMNS],
        previous_actions: vec![0.0; COLUMNS],
        previous_rewards: vec![0.0; COLUMNS],
        core_state: Vec::new(),
        episodes: Vec::new(),
    }
}

#[divan::bench]
fn queue_hop(bencher: Bencher) {
    let (sender, receiver) = queue::<u64>(4);
    bencher.bench_local(|| {
        assert!(sender.offer(1, Duration::ZERO).is_ok());
        receiver.take(Duration::ZERO)
    });
}

#[divan::bench(args = ["cartpole", "breakout"])]
fn forward(bencher: Bencher, name: &str) {
    let policy = policy(name);
    let parameters = policy.layout().initialize(1, &Device::Cpu).expect("parameters");
    let observations = vec![0.5; COLUMNS * policy.observation_len()];
    let input = StepInput {
        observations: &observations,
        previous_actions: &[0.0; COLUMNS],
        previous_rewards: &[0.0; COLUMNS],
        starts: &[false; COLUMNS],
        core_state: &[],
    };
    bencher
        .counter(ItemsCount::new(COLUMNS))
        .bench_local(|| policy.step(&parameters, None, input, &Device::Cpu).expect("forward"));
}

#[divan::bench(args = ["cartpole", "breakout"])]
fn update(bencher: Bencher, name: &str) {
    let policy = Arc::new(policy(name));
    let parameters = policy.layout().initialize(1, &Device::Cpu).expect("parameters");
    let config = LearnerConfig::default();
    let state = Learner::initial_state(&config, None);
    let unroll = unroll(&policy);
    let mut learner = Learner::new(config, 1, policy, Device::Cpu, &parameters, state).expect("learner");
    bencher
        .counter(ItemsCount::new(STEPS * COLUMNS))
        .bench_local(|| learner.update(&[&unroll], 1e-4, false).expect("update"));
}
