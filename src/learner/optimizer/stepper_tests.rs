use candle_core::Device;

use super::*;
use crate::learner::optimizer::{AdamwConfig, RmspropTfConfig, RmspropTorchConfig};
use crate::ops::with_threads;

const OPEN: f64 = f64::INFINITY;

fn every_kind() -> [OptimizerConfig; 3] {
    [
        OptimizerConfig::RmspropTf(RmspropTfConfig::default()),
        OptimizerConfig::RmspropTorch(RmspropTorchConfig::default()),
        OptimizerConfig::Adamw(AdamwConfig::default()),
    ]
}

/// A weight of three rows of seven (no multiple of a vector) and a bias, with values from a fixed sequence.
fn parameters() -> Vec<(String, Var)> {
    vec![("weight".into(), variable(&[3, 7], 0)), ("bias".into(), variable(&[7], 1))]
}

fn variable(shape: &[usize], seed: usize) -> Var {
    Var::from_tensor(&sequence(shape, seed)).unwrap()
}

fn sequence(shape: &[usize], seed: usize) -> Tensor {
    let entries: usize = shape.iter().product();
    let values: Vec<f32> = (0..entries).map(|i| ((i * 7 + seed * 13) as f32 * 0.37).sin()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn gradients(update: usize) -> Vec<Tensor> {
    vec![sequence(&[3, 7], 10 + update), sequence(&[7], 20 + update)]
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn contents(parameters: &[(String, Var)]) -> Vec<f32> {
    parameters.iter().flat_map(|(_, parameter)| flat(parameter)).collect()
}

#[test]
fn the_in_place_update_equals_the_composed_one() {
    for config in every_kind() {
        let (own, composed) = (parameters(), parameters());
        let mut optimizer = Optimizer::new(&config, own.clone()).unwrap();
        let mut reference = Optimizer::new(&config, composed.clone()).unwrap();
        for update in 1..=4 {
            let gradients = gradients(update);
            let report = optimizer.step_with(&gradients, 0.01, 1.0).unwrap();
            assert!(report.gradient_scale < 1.0, "the clip is meant to act");
            let step =
                Step { learning_rate: 0.01, gradient_scale: report.gradient_scale, update: update as u64 };
            let rule = config.rule();
            for (slot, gradient) in reference.slots.iter_mut().zip(&gradients) {
                rule.update_composed(&step, &slot.parameter, &mut slot.moments, gradient).unwrap();
            }
        }
        for (a, b) in contents(&own).iter().zip(contents(&composed)) {
            assert!((a - b).abs() <= 1e-6, "{config:?}: {a} is not {b}");
        }
    }
}

#[test]
fn a_saved_optimizer_continues_bit_for_bit() {
    for config in every_kind() {
        let own = parameters();
        let mut optimizer = Optimizer::new(&config, own.clone()).unwrap();
        optimizer.step_with(&gradients(1), 0.01, OPEN).unwrap();
        let saved = optimizer.state().unwrap();
        let copies: Vec<(String, Var)> = own
            .iter()
            .map(|(name, var)| (name.clone(), Var::from_tensor(&var.as_tensor().copy().unwrap()).unwrap()))
            .collect();
        optimizer.step_with(&gradients(2), 0.01, OPEN).unwrap();

        let mut resumed = Optimizer::new(&config, copies.clone()).unwrap();
        resumed.load_state(&saved).unwrap();
        resumed.step_with(&gradients(2), 0.01, OPEN).unwrap();
        assert_eq!(contents(&own), contents(&copies), "{config:?}");
        assert_eq!(resumed.updates(), 2);
    }
}

#[test]
fn a_state_for_other_parameters_is_refused_and_changes_nothing() {
    let config = OptimizerConfig::Adamw(AdamwConfig::default());
    let mut optimizer = Optimizer::new(&config, parameters()).unwrap();
    let names = |optimizer: &Optimizer| -> Vec<String> {
        optimizer.state().unwrap().into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        names(&optimizer),
        ["updates", "weight.first_moment", "weight.second_moment", "bias.first_moment", "bias.second_moment"]
    );
    let refused = |optimizer: &mut Optimizer, state: &[(String, Tensor)]| match optimizer.load_state(state) {
        Err(OptimizerError::State { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let mut other = Optimizer::new(&config, parameters()).unwrap();
    other.step_with(&gradients(1), 0.01, OPEN).unwrap();
    let state = other.state().unwrap();
    assert_eq!(refused(&mut optimizer, &state[..4]), "bias.second_moment");
    let mut misshapen = state.clone();
    misshapen[4].1 = sequence(&[8], 0);
    assert_eq!(refused(&mut optimizer, &misshapen), "bias.second_moment");
    let mut extra = state.clone();
    extra.push(("head.first_moment".into(), sequence(&[1], 0)));
    assert_eq!(refused(&mut optimizer, &extra), "head.first_moment");
    assert_eq!(optimizer.updates(), 0);
    let moment = &optimizer.state().unwrap()[1].1;
    assert!(flat(moment).iter().all(|&value| value == 0.0));
}

#[test]
fn a_gradient_that_is_not_finite_is_named_and_changes_nothing() {
    for config in every_kind() {
        let own = parameters();
        let before = contents(&own);
        let mut optimizer = Optimizer::new(&config, own.clone()).unwrap();
        let spoilt = Tensor::new(&[0.0, 0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0_f32], &Device::Cpu).unwrap();
        let error = optimizer.step_with(&[sequence(&[3, 7], 3), spoilt], 0.01, 1.0).unwrap_err();
        assert!(matches!(error, OptimizerError::NonFiniteGradient { name } if name == "bias"));
        assert_eq!((contents(&own), optimizer.updates()), (before, 0));
    }
}

#[test]
fn a_parameter_that_the_loss_does_not_reach_is_named() {
    let own = parameters();
    let mut optimizer = Optimizer::new(&OptimizerConfig::default(), own.clone()).unwrap();
    let gradients = own[0].1.sum_all().unwrap().backward().unwrap();
    let error = optimizer.step(&gradients, 0.01, 1.0).unwrap_err();
    assert!(matches!(error, OptimizerError::MissingGradient { name } if name == "bias"));
}

#[test]
fn a_transposed_gradient_updates_the_right_entries() {
    let (weight, copy) = (variable(&[3, 7], 0), variable(&[3, 7], 0));
    let view = sequence(&[7, 3], 4).t().unwrap();
    let config = OptimizerConfig::default();
    let mut optimizer = Optimizer::new(&config, vec![("weight".into(), weight.clone())]).unwrap();
    optimizer.step_with(std::slice::from_ref(&view), 0.01, OPEN).unwrap();
    let mut reference = Optimizer::new(&config, vec![("weight".into(), copy.clone())]).unwrap();
    reference.step_with(&[view.force_contiguous().unwrap()], 0.01, OPEN).unwrap();
    assert_eq!(flat(&weight), flat(&copy));
}

#[test]
fn two_parameters_of_one_name_are_refused() {
    let twice = vec![("weight".into(), variable(&[2], 0)), ("weight".into(), variable(&[2], 1))];
    let error = Optimizer::new(&OptimizerConfig::default(), twice).unwrap_err();
    assert!(matches!(error, OptimizerError::DuplicateName { name } if name == "weight"));
}

#[test]
fn a_published_copy_of_a_parameter_is_not_written_into() {
    let own = parameters();
    let published = own[0].1.as_tensor().copy().unwrap();
    let before = flat(&published);
    let mut optimizer = Optimizer::new(&OptimizerConfig::default(), own.clone()).unwrap();
    optimizer.step_with(&gradients(1), 0.01, OPEN).unwrap();
    assert_eq!(flat(&published), before);
    assert_ne!(flat(&own[0].1), before);
}

#[test]
fn threads_change_no_bit_of_an_update() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for config in every_kind() {
        let updated = |shares: bool| {
            let parameters = vec![("weight".to_owned(), variable(&[77, 31], 0))];
            let mut optimizer = Optimizer::new(&config, parameters.clone()).unwrap();
            for update in 1..=3 {
                let gradients = [sequence(&[77, 31], 10 + update)];
                let mut step = || optimizer.step_with(&gradients, 0.01, 1.0).unwrap();
                if shares {
                    with_threads(&pool, step)
                } else {
                    step()
                };
            }
            contents(&parameters)
        };
        assert_eq!(updated(false), updated(true));
    }
}
