//! The closed forms against the same formulas composed of tensor operations, with automatic gradients.

use candle_core::{Device, Tensor, Var};

use super::*;
use crate::learner::advantage::{VtraceConfig, VtraceTargets};

const ENTRIES: usize = 12;

fn sequence(seed: usize) -> Vec<f64> {
    (0..ENTRIES).map(|i| ((i * 5 + seed * 11) as f64 * 0.73).sin()).collect()
}

fn variable(seed: usize) -> Var {
    Var::from_vec(sequence(seed), (3, 4), &Device::Cpu).unwrap()
}

fn constant(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, (3, 4), &Device::Cpu).unwrap()
}

/// What a policy of three variables says; log-probabilities and entropies stand free of each other.
struct Policy {
    log_prob: Var,
    entropy: Var,
    value: Var,
}

impl Policy {
    fn new() -> Self {
        Self { log_prob: variable(1), entropy: variable(2), value: variable(3) }
    }

    fn evaluation(&self) -> Evaluation<f64> {
        Evaluation::new(&self.log_prob, &self.entropy, &self.value).unwrap()
    }

    /// The loss and its gradients.
    fn differentiate(&self, total: &Tensor) -> Vec<f64> {
        let gradients = total.backward().unwrap();
        let mut figures = vec![total.to_scalar::<f64>().unwrap()];
        for variable in [&self.log_prob, &self.entropy, &self.value] {
            let gradient = gradients.get(variable).unwrap();
            figures.extend(gradient.flatten_all().unwrap().to_vec1::<f64>().unwrap());
        }
        figures
    }

    /// policy term + value_coef · baseline − entropy_coef · entropy, by tensor operations.
    fn composed(&self, config: &LossConfig, policy: &Tensor, baseline: &Tensor) -> Tensor {
        let value = (baseline.sum_all().unwrap() * config.value_coef).unwrap();
        let entropy = (self.entropy.sum_all().unwrap() * config.entropy_coef).unwrap();
        let total = ((policy.sum_all().unwrap() + value).unwrap() - entropy).unwrap();
        match config.reduction {
            Reduction::Sum => total,
            Reduction::Mean => (total / ENTRIES as f64).unwrap(),
        }
    }
}

fn half_square(values: &Tensor, targets: &[f64]) -> Tensor {
    ((values - constant(targets)).unwrap().sqr().unwrap() * 0.5).unwrap()
}

fn assert_close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (index, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "figure {index}: {a} is not {b}");
    }
}

fn weights(reduction: Reduction) -> LossConfig {
    LossConfig { value_coef: 0.7, entropy_coef: 0.1, reduction }
}

fn vtrace_targets() -> VtraceTargets<f64> {
    VtraceTargets { vs: sequence(4), pg_advantages: sequence(5) }
}

#[test]
fn the_vtrace_loss_equals_its_composed_form() {
    for reduction in [Reduction::Sum, Reduction::Mean] {
        let (config, policy, targets) = (weights(reduction), Policy::new(), vtrace_targets());
        let clips = VtraceConfig::default();
        let loss = vtrace_loss(&config, &clips, &policy.evaluation(), &targets, &sequence(6), None).unwrap();
        let gradient_term =
            (policy.log_prob.as_tensor() * constant(&targets.pg_advantages)).unwrap().neg().unwrap();
        let composed = policy.composed(&config, &gradient_term, &half_square(&policy.value, &targets.vs));
        assert_close(&policy.differentiate(&loss.total), &policy.differentiate(&composed));
        assert_close(&[loss.diagnostics.total_loss], &[composed.to_scalar().unwrap()]);
    }
}

#[test]
fn the_actor_critic_loss_takes_the_value_as_a_constant_in_the_policys_part() {
    let (config, policy, returns) = (weights(Reduction::Mean), Policy::new(), sequence(4));
    let batch = ActorCriticBatch { returns: &returns, behaviour_log_probs: &sequence(7) };
    let loss = actor_critic_loss(&config, &policy.evaluation(), &batch, None).unwrap();
    let advantages = (constant(&returns) - policy.value.detach()).unwrap();
    let gradient_term = (policy.log_prob.as_tensor() * advantages).unwrap().neg().unwrap();
    let composed = policy.composed(&config, &gradient_term, &half_square(&policy.value, &returns));
    assert_close(&policy.differentiate(&loss.total), &policy.differentiate(&composed));
}

#[test]
fn the_ppo_loss_equals_its_composed_form() {
    let config = weights(Reduction::Mean);
    let (policy, old_values) = (Policy::new(), sequence(7));
    let (behaviour, advantages, returns) = (sequence(5), sequence(4), sequence(6));
    let ppo = PpoConfig { clip_low: 0.3, clip_high: 0.4, value_clip: Some(0.5), normalize_advantages: false };
    let batch = PpoBatch {
        behaviour_log_probs: &behaviour,
        advantages: &advantages,
        returns: &returns,
        old_values: &old_values,
    };
    let loss = ppo_loss(&config, &ppo, &policy.evaluation(), &batch, None).unwrap();
    let Clipped::Surrogate { high, low, value } = loss.diagnostics.clipped else { panic!("not PPO's") };
    assert!(high > 0.0 && low > 0.0 && value > Some(0.0), "every branch is meant to be taken");

    let ratio = (policy.log_prob.as_tensor() - constant(&behaviour)).unwrap().exp().unwrap();
    let free = (&ratio * constant(&advantages)).unwrap();
    let clipped = (ratio.clamp(0.7, 1.4).unwrap() * constant(&advantages)).unwrap();
    let surrogate = free.minimum(&clipped).unwrap().neg().unwrap();
    let moved = (policy.value.as_tensor() - constant(&old_values)).unwrap().clamp(-0.5, 0.5).unwrap();
    let bounded = half_square(&(moved + constant(&old_values)).unwrap(), &returns);
    let baseline = half_square(&policy.value, &returns).maximum(&bounded).unwrap();
    let composed = policy.composed(&config, &surrogate, &baseline);
    assert_close(&policy.differentiate(&loss.total), &policy.differentiate(&composed));
}

#[test]
fn whatever_stands_at_masked_entries_changes_nothing() {
    let mask: Vec<bool> = (0..ENTRIES).map(|i| i % 3 != 0).collect();
    let spoil = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().zip(&mask).map(|(value, &counts)| if counts { value } else { f64::NAN }).collect()
    };
    let differentiate = |spoilt: bool| {
        let change = |values: Vec<f64>| if spoilt { spoil(values) } else { values };
        let make = |seed| Var::from_vec(change(sequence(seed)), (3, 4), &Device::Cpu).unwrap();
        let policy = Policy { log_prob: make(1), entropy: make(2), value: make(3) };
        let targets = VtraceTargets { vs: change(sequence(4)), pg_advantages: change(sequence(5)) };
        let (behaviour, advantages, returns) =
            (change(sequence(7)), change(sequence(5)), change(sequence(4)));
        let old_values = change(sequence(8));
        let (config, clips) = (weights(Reduction::Mean), VtraceConfig::default());
        let evaluation = policy.evaluation();
        let log_rhos = change(sequence(6));
        let vtrace = vtrace_loss(&config, &clips, &evaluation, &targets, &log_rhos, Some(&mask)).unwrap();
        let plain = ActorCriticBatch { returns: &returns, behaviour_log_probs: &behaviour };
        let plain = actor_critic_loss(&config, &evaluation, &plain, Some(&mask)).unwrap();
        let ppo = PpoConfig { value_clip: Some(0.2), ..Default::default() };
        let batch = PpoBatch {
            behaviour_log_probs: &behaviour,
            advantages: &advantages,
            returns: &returns,
            old_values: &old_values,
        };
        let ppo = ppo_loss(&config, &ppo, &evaluation, &batch, Some(&mask)).unwrap();
        [vtrace, plain, ppo].map(|loss| (policy.differentiate(&loss.total), loss.diagnostics))
    };
    assert_eq!(differentiate(true), differentiate(false));
    let (figures, diagnostics) = &differentiate(true)[0];
    assert_eq!(diagnostics.entries, 8);
    assert_eq!(figures[1], 0.0, "the first entry is masked and gets no gradient");
}

#[test]
fn a_batch_that_is_masked_whole_has_no_loss_and_no_gradient() {
    let (policy, mask) = (Policy::new(), [false; ENTRIES]);
    let (config, clips) = (weights(Reduction::Mean), VtraceConfig::default());
    let loss =
        vtrace_loss(&config, &clips, &policy.evaluation(), &vtrace_targets(), &sequence(6), Some(&mask))
            .unwrap();
    assert_eq!(
        loss.diagnostics,
        Diagnostics { clipped: Clipped::Ratios { rho_bar: 0.0, c_bar: 0.0 }, ..Diagnostics::default() }
    );
    assert!(policy.differentiate(&loss.total).iter().all(|&figure| figure == 0.0));
}

#[test]
fn a_weight_of_zero_still_lets_a_gradient_of_zero_through() {
    let policy = Policy::new();
    let config = LossConfig { value_coef: 0.0, entropy_coef: 0.0, reduction: Reduction::Sum };
    let clips = VtraceConfig::default();
    let loss =
        vtrace_loss(&config, &clips, &policy.evaluation(), &vtrace_targets(), &sequence(6), None).unwrap();
    assert!(policy.differentiate(&loss.total)[1 + ENTRIES..].iter().all(|&figure| figure == 0.0));
}

#[test]
fn diagnostics_describe_the_batch() {
    let two = |values: [f64; 2]| Var::new(&values, &Device::Cpu).unwrap();
    let evaluation = Evaluation::new(&two([-1.0, -2.0]), &two([0.5, 1.5]), &two([1.0, 2.0])).unwrap();
    let targets = VtraceTargets { vs: vec![1.0, 4.0], pg_advantages: vec![1.0, 3.0] };
    let log_rhos = [2.0_f64.ln(), 0.5_f64.ln()];
    let clips = VtraceConfig { rho_bar: 3.0, c_bar: 1.0, ..Default::default() };
    let diagnostics = vtrace_loss(&LossConfig::default(), &clips, &evaluation, &targets, &log_rhos, None)
        .unwrap()
        .diagnostics;
    assert_eq!(diagnostics.clipped, Clipped::Ratios { rho_bar: 0.0, c_bar: 0.5 });
    assert_eq!((diagnostics.advantage_mean, diagnostics.advantage_std), (2.0, 1.0));
    assert_eq!((diagnostics.entropy_mean, diagnostics.entropy), (1.0, 2.0));
    assert_eq!((diagnostics.policy_loss, diagnostics.baseline_loss), (7.0, 2.0));
    // Errors 0 and 2 have variance 1, targets 1 and 4 have variance 2.25.
    assert_close(&[diagnostics.explained_variance.unwrap()], &[1.0 - 1.0 / 2.25]);
    assert_close(&[diagnostics.ratio_mean, diagnostics.kl_k1, diagnostics.kl_k3], &[1.25, 0.0, 0.25]);
}

#[test]
fn arrays_of_another_length_are_refused_by_name() {
    let policy = Policy::new();
    let short = VtraceTargets { vs: vec![0.0; 3], pg_advantages: sequence(5) };
    let refused = vtrace_loss(
        &LossConfig::default(),
        &VtraceConfig::default(),
        &policy.evaluation(),
        &short,
        &sequence(6),
        None,
    );
    assert!(matches!(refused, Err(ObjectiveError::Length { name: "vs", got: 3, expected: ENTRIES })));
    let returns = sequence(4);
    let batch = ActorCriticBatch { returns: &returns, behaviour_log_probs: &returns };
    let refused = actor_critic_loss(&LossConfig::default(), &policy.evaluation(), &batch, Some(&[true; 5]));
    assert!(matches!(refused, Err(ObjectiveError::Length { name: "mask", .. })));
}

#[test]
fn normalised_advantages_have_mean_zero_and_deviation_one() {
    let mut advantages = [1.0_f32, 2.0, 777.0, 6.0];
    normalize_advantages(&mut advantages, Some(&[true, true, false, true])).unwrap();
    let counted = [advantages[0], advantages[1], advantages[3]].map(f64::from);
    let mean = counted.iter().sum::<f64>() / 3.0;
    let variance = counted.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / 3.0;
    assert!(mean.abs() < 1e-7 && (variance - 1.0).abs() < 1e-6, "{advantages:?}");
    assert_eq!(advantages[2], 777.0);
}

#[test]
fn equal_advantages_become_zero_instead_of_noise() {
    let mut advantages = [0.1_f32 + 0.2, 0.3, 0.3, 0.3];
    normalize_advantages(&mut advantages, None).unwrap();
    assert_eq!(advantages, [0.0; 4]);
}
