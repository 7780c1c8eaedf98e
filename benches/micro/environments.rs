//! The cost of one step of each built-in environment, alone and as a rollout sees it.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use forebay::env::{Action, ActionSpace, Checked, Environment, Registry, WrapperConfig};
use forebay::random::CounterRng;

/// Environments that accept every action at any time, so that the steps can be prepared.
const UNMASKED: [&str; 7] =
    ["CartPole-v1", "StatelessCartPole", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1", "Catch", "TMaze"];
const STEPS: usize = 1000;

fn make(name: &str, time_limit: Option<u32>) -> Box<dyn Environment> {
    let wrappers = WrapperConfig { time_limit, ..WrapperConfig::default() };
    Registry::builtin().make(name, &toml::Table::new(), &wrappers).expect("a built-in environment")
}

fn actions(space: &ActionSpace) -> Vec<f32> {
    let mut random = CounterRng::new(1);
    let mut draw = || match space {
        ActionSpace::Discrete { n } => random.below(*n) as f32,
        _ => random.uniform_in(-1.0, 1.0) as f32,
    };
    (0..STEPS).map(|_| draw()).collect()
}

/// One step through the trait object, with resets between episodes.
#[divan::bench(args = UNMASKED)]
fn step(bencher: Bencher<'_, '_>, name: &str) {
    let mut environment = make(name, Some(0));
    let actions = actions(&environment.spec().action_space);
    environment.reset(0).expect("a first state");
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        for action in actions.chunks_exact(1) {
            let step = environment.step(Action::new(action)).expect("a legal action");
            if black_box(step).done() {
                environment.reset(1).expect("a first state");
            }
        }
    });
}

/// One step with its observation, under the default time limit and with every check.
#[divan::bench(args = UNMASKED)]
fn checked_step_and_observe(bencher: Bencher<'_, '_>, name: &str) {
    let mut environment = Checked::new(make(name, None)).expect("a sound specification");
    let actions = actions(&environment.spec().action_space);
    environment.reset(0).expect("a first state");
    let mut observation = Vec::with_capacity(environment.spec().observation_len());
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        for action in actions.chunks_exact(1) {
            let step = environment.step(Action::new(action)).expect("a legal action");
            observation.clear();
            environment.observe(&mut observation).expect("a sound observation");
            black_box(&observation);
            if step.done() {
                environment.reset(1).expect("a first state");
            }
        }
    });
}
