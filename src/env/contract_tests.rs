//! Every registered built-in environment keeps the whole contract, whatever it is.

use super::{Action, ActionSpace, Checked, EnvEntry, EnvSpec, Registry, Step, WrapperConfig};
use crate::random::CounterRng;

/// Short enough that every environment ends some episodes.
const TIME_LIMIT: u32 = 60;
/// Steps of one run, over several episodes.
const STEPS: u64 = 250;

/// Everything one step shows.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    step: Step,
    observation: Vec<u32>,
    mask: Vec<bool>,
}

fn make(name: &str) -> Checked {
    let wrappers = WrapperConfig { time_limit: Some(TIME_LIMIT), frame_stack: 2 };
    let environment = Registry::builtin().make(name, &toml::Table::new(), &wrappers).unwrap();
    Checked::new(environment).unwrap()
}

/// A random action that `mask` allows. The `index`-th action of a run is always the same.
fn random_action(spec: &EnvSpec, mask: &[bool], index: u64) -> Vec<f32> {
    let mut random = CounterRng::new(1000 + index);
    let mut choose = |allowed: &[bool]| {
        let choices: Vec<usize> = (0..allowed.len()).filter(|&choice| allowed[choice]).collect();
        choices[random.below(choices.len())] as f32
    };
    let all = vec![true; spec.action_space.choices()];
    let mut rest = if spec.masks_actions { mask } else { &all };
    match &spec.action_space {
        ActionSpace::Discrete { .. } => vec![choose(rest)],
        ActionSpace::MultiDiscrete { sizes } => sizes
            .iter()
            .map(|&size| {
                let (component, tail) = rest.split_at(size);
                rest = tail;
                choose(component)
            })
            .collect(),
        ActionSpace::Box { low, high } => low
            .iter()
            .zip(high)
            .map(|(&low, &high)| random.uniform_in(f64::from(low), f64::from(high)) as f32)
            .collect(),
    }
}

fn look(environment: &Checked, step: Step) -> Seen {
    let (mut observation, mut mask) = (Vec::new(), Vec::new());
    environment.observe(&mut observation).unwrap();
    environment.action_mask(&mut mask).unwrap();
    Seen { step, observation: observation.into_iter().map(f32::to_bits).collect(), mask }
}

/// One run: takes the random actions `from..STEPS`, and resets after each end. The seed of an episode is the index
/// of the step before it.
fn run(environment: &mut Checked, from: u64, mut each: impl FnMut(u64, &Checked)) -> Vec<Seen> {
    let mut seen = Vec::new();
    for index in from..STEPS {
        let mut mask = Vec::new();
        environment.action_mask(&mut mask).unwrap();
        let action = random_action(environment.spec(), &mask, index);
        let step = environment.step(Action::new(&action)).unwrap();
        seen.push(look(environment, step));
        if step.done() {
            environment.reset(index).unwrap();
        }
        each(index, environment);
    }
    seen
}

fn for_each_builtin(check: impl Fn(&str)) {
    for entry in Registry::builtin().entries() {
        check(entry.name());
    }
}

#[test]
fn random_legal_actions_keep_the_contract_and_episodes_end() {
    for_each_builtin(|name| {
        let mut environment = make(name);
        assert_eq!(environment.spec().name, name);
        environment.reset(1).unwrap();
        let seen = run(&mut environment, 0, |_, _| ());
        let ends = seen.iter().filter(|seen| seen.step.done()).count();
        assert!(ends >= 2, "{name}: {ends} episodes ended");
        assert!(seen.iter().all(|seen| !(seen.step.terminated && seen.step.truncated)), "{name}");
    });
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    for_each_builtin(|name| {
        let runs = [7, 7, 8].map(|seed| {
            // A used environment must behave as a new one does.
            let mut environment = make(name);
            environment.reset(seed + 100).unwrap();
            run(&mut environment, STEPS - 10, |_, _| ());
            environment.reset(seed).unwrap();
            (look(&environment, Step::default()), run(&mut environment, 0, |_, _| ()))
        });
        assert_eq!(runs[0], runs[1], "{name}");
        assert_ne!(runs[0], runs[2], "{name}");
    });
}

#[test]
fn a_restored_episode_continues_to_the_last_bit() {
    for_each_builtin(|name| {
        let mut environment = make(name);
        environment.reset(3).unwrap();
        let mut saved = Vec::new();
        let seen = run(&mut environment, 0, |index, environment| {
            if index % 23 == 5 {
                saved.push((index, environment.save().unwrap(), look(environment, Step::default())));
            }
        });
        assert!(saved.len() >= 10, "{name}");
        let mut restored = make(name);
        for (index, bytes, shown) in saved {
            // From the second on, it has lived through other episodes before.
            restored.restore(&bytes).unwrap();
            assert_eq!(look(&restored, Step::default()), shown, "{name}, restored after step {index}");
            assert_eq!(restored.save().unwrap(), bytes, "{name}, saved again after step {index}");
            let continued = run(&mut restored, index + 1, |_, _| ());
            assert_eq!(continued, seen[index as usize + 1..], "{name}, continued after step {index}");
        }
    });
}

#[test]
fn a_reset_after_the_end_starts_as_a_new_environment_does() {
    for_each_builtin(|name| {
        let mut fresh = make(name);
        fresh.reset(42).unwrap();
        let expected = look(&fresh, Step::default());
        let mut used = make(name);
        used.reset(41).unwrap();
        let seen = run(&mut used, 0, |_, _| ());
        assert!(seen.iter().any(|seen| seen.step.done()), "{name}");
        used.reset(42).unwrap();
        assert_eq!(look(&used, Step::default()), expected, "{name}");
        assert_eq!(used.save(), fresh.save(), "{name}");
    });
}

#[test]
fn foreign_and_damaged_bytes_are_refused() {
    let foreign = make("CartPole-v1").save().unwrap();
    for_each_builtin(|name| {
        let mut environment = make(name);
        assert_eq!(environment.restore(&foreign).is_ok(), name == "CartPole-v1", "{name}");
        let own = environment.save().unwrap();
        assert!(environment.restore(&own[..own.len() - 1]).is_err(), "{name}");
        assert!(environment.restore(&[]).is_err(), "{name}");
    });
}

/// The guide's row about an environment.
fn row(registry: &Registry, entry: &EnvEntry) -> String {
    let unwrapped = WrapperConfig::default();
    let environment = registry.make(entry.name(), &toml::Table::new(), &unwrapped).unwrap();
    let EnvSpec { observation_shape, action_space, masks_actions, .. } = environment.spec();
    let actions = match action_space {
        ActionSpace::Discrete { n } => format!("one of {n}"),
        ActionSpace::MultiDiscrete { sizes } => format!("{sizes:?} at once"),
        ActionSpace::Box { low, high } => format!("{low:?} to {high:?}"),
    };
    let masked = if *masks_actions { ", masked" } else { "" };
    let limit = entry.time_limit().map_or_else(|| "none".into(), |limit| limit.to_string());
    format!(
        "| `{}` | {observation_shape:?} | {actions}{masked} | {limit} | {} |",
        entry.name(),
        entry.summary()
    )
}

#[test]
fn the_guides_table_lists_exactly_the_built_in_environments() {
    let guide = include_str!("../../docs/environments.md");
    let listed: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `")).collect();
    let registry = Registry::builtin();
    let expected: Vec<String> = registry.entries().map(|entry| row(&registry, entry)).collect();
    assert_eq!(listed, expected, "the table should read:\n{}\n", expected.join("\n"));
}
