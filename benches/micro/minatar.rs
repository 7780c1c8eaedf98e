//! One frame of each MinAtar game: a step with a random action, and the observation written into a reused buffer.

use divan::{Bencher, counter::ItemsCount};
use forebay::env::minatar::{GAMES, Options};
use forebay::env::{Action, Environment};
use forebay::random::CounterRng;

/// Frames of one sample, so that the clock costs nothing and episodes of all lengths are met.
const FRAMES: usize = 1000;

#[divan::bench(args = GAMES.map(|game| game.name))]
fn step_and_observe(bencher: Bencher<'_, '_>, name: &str) {
    let mut env = make(name);
    let mut observation = Vec::with_capacity(env.spec().observation_len());
    measure(bencher, &mut *env, |env| {
        observation.clear();
        env.observe(&mut observation);
        divan::black_box(&observation);
    });
}

#[divan::bench(args = GAMES.map(|game| game.name))]
fn step(bencher: Bencher<'_, '_>, name: &str) {
    measure(bencher, &mut *make(name), |_| {});
}

fn make(name: &str) -> Box<dyn Environment> {
    let game = GAMES.iter().find(|game| game.name == name).expect("a name out of the list of games");
    (game.make)(&Options::default())
}

fn measure(
    bencher: Bencher<'_, '_>,
    env: &mut dyn Environment,
    mut after_step: impl FnMut(&mut dyn Environment),
) {
    let mut rng = CounterRng::new(1);
    let actions: Vec<f32> = (0..FRAMES).map(|_| rng.below(6) as f32).collect();
    let mut episode = 0;
    bencher.counter(ItemsCount::new(FRAMES)).bench_local(|| {
        for action in &actions {
            let step = env.step(Action::new(std::slice::from_ref(action))).expect("a legal action");
            after_step(env);
            if step.done() {
                episode += 1;
                env.reset(episode).expect("a game starts");
            }
        }
    });
}
