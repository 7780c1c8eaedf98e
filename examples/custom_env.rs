//! An environment of your own, trained by the same code as the built-in ones.
//!
//! `cargo run --release --example custom_env -- train examples/custom_env.toml` trains it; every other subcommand
//! works too, since the program hands its registry to the library's command line.

use std::process::ExitCode;

use forebay::env::{Action, ActionSpace, EnvEntry, EnvError, EnvSpec, Environment, Registry, Step};
use forebay::random::CounterRng;

/// A thermostat: heat, idle or cool, to keep a drifting room near 20 degrees for 50 steps.
struct Thermostat {
    spec: EnvSpec,
    rng: CounterRng,
    temperature: f64,
    steps: u32,
}

impl Thermostat {
    fn new() -> Self {
        let spec = EnvSpec {
            name: "Thermostat".into(),
            observation_shape: vec![2],
            action_space: ActionSpace::Discrete { n: 3 },
            masks_actions: false,
        };
        Self { spec, rng: CounterRng::new(0), temperature: 0.0, steps: 0 }
    }
}

impl Environment for Thermostat {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.rng = CounterRng::new(seed);
        self.temperature = self.rng.uniform_in(10.0, 30.0);
        self.steps = 0;
        Ok(())
    }

    fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        let heating = action.index() as f64 - 1.0;
        self.temperature += heating + 0.3 * self.rng.normal();
        self.steps += 1;
        let comfort = (1.0 - (self.temperature - 20.0).abs() / 10.0).max(-1.0);
        Ok(Step { reward: comfort as f32, terminated: self.steps == 50, truncated: false })
    }

    fn observe(&self, out: &mut Vec<f32>) {
        out.extend([(self.temperature as f32 - 20.0) / 10.0, self.steps as f32 / 50.0]);
    }
}

fn main() -> ExitCode {
    let mut registry = Registry::builtin();
    let summary = "keep a room near 20 degrees";
    registry.register(EnvEntry::new("Thermostat", summary, |_| Ok(Box::new(Thermostat::new()))));
    forebay::cli::run(registry)
}
