//! Every parameter of every kind of network must get a gradient: an operator that cuts it would pass unnoticed, as
//! the loss still falls.

use candle_core::{Device, Tensor};

use super::*;
use crate::env::{ActionSpace, EnvSpec};
use crate::random::CounterRng;

const ROWS: usize = 5;
const COLUMNS: usize = 3;

fn spaces() -> Vec<(ActionSpace, bool)> {
    vec![
        (ActionSpace::Discrete { n: 4 }, false),
        (ActionSpace::Discrete { n: 4 }, true),
        (ActionSpace::MultiDiscrete { sizes: vec![3, 2] }, false),
        (ActionSpace::Box { low: vec![-1.0; 2], high: vec![1.0; 2] }, false),
    ]
}

fn torsos() -> Vec<(TorsoConfig, Vec<usize>)> {
    vec![
        (TorsoConfig::Mlp { hidden: vec![12, 9] }, vec![7]),
        (TorsoConfig::Conv { channels: 5, hidden: 11 }, vec![6, 7, 3]),
        (TorsoConfig::Resnet { channels: vec![4, 6], hidden: 8 }, vec![9, 8, 2]),
    ]
}

/// The names of the parameters without a gradient, or with nothing but zeros.
fn without_gradient(config: &PolicyConfig, spec: &EnvSpec) -> Vec<String> {
    let policy = Policy::new(config, spec);
    let (variables, parameters) =
        policy.layout().initialize(3, &Device::Cpu).unwrap().to_variables().unwrap();
    let mut rng = CounterRng::new(9);
    // Initial biases of zero and a nearly uniform policy would make some gradients vanish.
    for (_, variable) in &variables {
        let noise: Vec<f32> = (0..variable.elem_count()).map(|_| 0.1 * rng.normal() as f32).collect();
        let noise = Tensor::from_vec(noise, variable.shape(), &Device::Cpu).unwrap();
        variable.set(&(variable.as_tensor() + noise).unwrap()).unwrap();
    }
    let places = ROWS * COLUMNS;
    let mut normal = |count: usize| (0..count).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
    let observations = normal(places * policy.observation_len());
    let rewards = normal(places);
    let distribution = policy.distribution();
    let actions = match &spec.action_space {
        ActionSpace::Box { .. } => normal(places * distribution.action_width()),
        _ => vec![1.0; places * distribution.action_width()],
    };
    let core_state = normal(COLUMNS * policy.core_len());
    let starts = vec![false; places];
    let none = StepInput {
        observations: &[],
        previous_actions: &[],
        previous_rewards: &[],
        starts: &[],
        core_state: &[],
    };
    let steps = StepInput {
        observations: &observations,
        previous_actions: &actions,
        previous_rewards: &rewards,
        starts: &starts,
        core_state: &core_state,
    };
    let input = SequenceInput { rows: ROWS, columns: COLUMNS, steps, final_places: &[], finals: none };
    let output = policy.evaluate(&parameters, None, input, &Device::Cpu).unwrap();
    let taken = (ROWS - 1) * COLUMNS;
    let masks = if spec.masks_actions { [true, true, true, false].repeat(taken) } else { Vec::new() };
    let actions = &actions[..taken * distribution.action_width()];
    let (log_probs, entropy) = distribution.evaluate(&output.distribution, &masks, actions).unwrap();
    let loss = log_probs.sum_all().unwrap() + entropy.sum_all().unwrap() * 0.3;
    let loss = (loss + output.values.sqr().unwrap().sum_all().unwrap()).unwrap();
    let gradients = loss.backward().unwrap();
    let has_gradient = |variable: &candle_core::Var| {
        gradients.get(variable).is_some_and(|gradient| {
            let values: Vec<f32> = gradient.flatten_all().unwrap().to_vec1().unwrap();
            values.iter().all(|value| value.is_finite()) && values.iter().any(|&value| value != 0.0)
        })
    };
    variables.iter().filter(|(_, variable)| !has_gradient(variable)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn every_parameter_of_every_network_gets_a_gradient() {
    for (torso, shape) in torsos() {
        for (action_space, masks_actions) in spaces() {
            for activation in [ActivationKind::Relu, ActivationKind::Tanh] {
                for (core, separate_value) in
                    [(None, false), (None, true), (Some(CoreConfig::Lstm { size: 6 }), false)]
                {
                    let config = PolicyConfig {
                        torso: torso.clone(),
                        activation,
                        core,
                        last_action: separate_value,
                        last_reward: true,
                        separate_value,
                        ..PolicyConfig::default()
                    };
                    let spec = EnvSpec {
                        name: "canary".into(),
                        observation_shape: shape.clone(),
                        action_space: action_space.clone(),
                        masks_actions,
                    };
                    assert_eq!(without_gradient(&config, &spec), [""; 0], "{config:?} {action_space:?}");
                }
            }
        }
    }
}
