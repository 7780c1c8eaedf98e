//! Test support: traces that `scripts/record_gymnasium.py` recorded from gymnasium, and how to compare with them.
//!
//! Every step is checked twice: from the reference's own state, where only rounding may differ, and as part of its
//! whole episode, run freely from the first state, where the library functions' last bits add up.

use serde::Deserialize;

use crate::env::environment::Environment;
use crate::env::space::Action;
use crate::env::wrappers::TimeLimit;

/// An environment whose physical state can be set and read.
pub(super) trait Injectable: Environment {
    fn inject(&mut self, state: &[f64]);
    fn state(&self) -> Vec<f64>;
}

/// The version whose rules the environments follow.
const VERSION: &str = "1.4.0";

/// The contents of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    /// The version of gymnasium that was recorded.
    gymnasium: String,
    time_limit: u32,
    episodes: Vec<Episode>,
}

/// One episode, or a start set by hand and the steps after it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Episode {
    /// What it shows.
    label: String,
    initial_state: Vec<f64>,
    initial_observation: Vec<f32>,
    steps: Vec<RecordedStep>,
}

/// What an action led to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedStep {
    action: f32,
    state: Vec<f64>,
    observation: Vec<f32>,
    reward: f64,
    terminated: bool,
    truncated: bool,
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64, place: &str) {
    assert_eq!(actual.len(), expected.len(), "{place}");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(
            error <= tolerance * expected.abs().max(1e-3),
            "{place}: value {index} is {actual}, the reference has {expected}"
        );
    }
}

fn assert_observation(environment: &dyn Environment, expected: &[f32], place: &str) {
    let mut shown = Vec::new();
    environment.observe(&mut shown);
    let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
    assert_close(&wide(&shown), &wide(expected), 1e-6, place);
}

impl Trace {
    /// Reads a file of `tests/data/gymnasium`.
    pub(super) fn read(file: &str) -> Self {
        let path = format!("{}/tests/data/gymnasium/{file}", env!("CARGO_MANIFEST_DIR"));
        let trace: Self = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(trace.gymnasium, VERSION, "{file} was recorded from rules that nobody compared yet");
        trace
    }

    /// Takes each step from the state that the reference was in.
    pub(super) fn check_single_steps(&self, environment: &mut impl Injectable) {
        for Episode { label, initial_state, initial_observation, steps } in &self.episodes {
            environment.inject(initial_state);
            assert_observation(environment, initial_observation, label);
            let mut before = initial_state;
            for (index, recorded) in steps.iter().enumerate() {
                let place = format!("{label}, step {index}");
                environment.inject(before);
                let step = environment.step(Action::new(&[recorded.action])).unwrap();
                assert_close(&environment.state(), &recorded.state, 1e-12, &place);
                assert_observation(environment, &recorded.observation, &place);
                assert_close(&[f64::from(step.reward)], &[recorded.reward], 1e-6, &place);
                assert_eq!(step.terminated, recorded.terminated, "{place}");
                assert!(!step.truncated, "{place}");
                before = &recorded.state;
            }
        }
    }

    /// Runs each episode freely, under the reference's time limit.
    pub(super) fn check_episodes<E: Injectable + 'static>(&self, make: impl Fn() -> E) {
        for Episode { label, initial_state, steps, .. } in &self.episodes {
            let mut environment = make();
            environment.inject(initial_state);
            let mut environment = TimeLimit::new(Box::new(environment), self.time_limit);
            for (index, recorded) in steps.iter().enumerate() {
                let place = format!("{label}, step {index}");
                let step = environment.step(Action::new(&[recorded.action])).unwrap();
                assert_observation(&environment, &recorded.observation, &place);
                assert_close(&[f64::from(step.reward)], &[recorded.reward], 1e-6, &place);
                assert_eq!(step.terminated, recorded.terminated, "{place}");
                assert_eq!(step.truncated, recorded.truncated && !recorded.terminated, "{place}");
            }
        }
    }
}
