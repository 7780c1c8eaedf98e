//! The learner's mathematics at the size of a usual batch (T = 20, B = 64) and a small network (10 000 parameters).

use candle_core::{Device, Tensor, Var};
use divan::Bencher;
use forebay::learner::advantage::{Boundaries, VtraceConfig, VtraceInput, vtrace};
use forebay::learner::objective::{Evaluation, LossConfig, vtrace_loss};
use forebay::learner::optimizer::{AdamwConfig, Optimizer, OptimizerConfig};

const COLUMNS: usize = 64;
const ENTRIES: usize = 20 * COLUMNS;

fn sequence(seed: usize) -> Vec<f32> {
    (0..ENTRIES).map(|i| ((i * 7 + seed) as f32 * 0.37).sin()).collect()
}

struct Batch {
    log_rhos: Vec<f32>,
    rewards: Vec<f32>,
    values: Vec<f32>,
    discounts: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Batch {
    fn new() -> Self {
        Self {
            log_rhos: sequence(1),
            rewards: sequence(2),
            values: sequence(3),
            discounts: vec![0.99; ENTRIES],
            terminated: (0..ENTRIES).map(|i| i % 37 == 0).collect(),
            truncated: (0..ENTRIES).map(|i| i % 53 == 0).collect(),
        }
    }

    fn input(&self) -> VtraceInput<'_, f32> {
        VtraceInput {
            log_rhos: &self.log_rhos,
            rewards: &self.rewards,
            values: &self.values,
            discounts: &self.discounts,
        }
    }

    fn boundaries(&self) -> Boundaries<'_, f32> {
        Boundaries {
            terminated: &self.terminated,
            truncated: &self.truncated,
            final_values: &self.values,
            bootstrap: &self.values[..COLUMNS],
        }
    }
}

#[divan::bench]
fn vtrace_targets(bencher: Bencher) {
    let batch = Batch::new();
    let config = VtraceConfig::default();
    bencher.bench_local(|| vtrace(&config, &batch.input(), &batch.boundaries()));
}

#[divan::bench]
fn vtrace_loss_and_backward(bencher: Bencher) {
    let batch = Batch::new();
    let clips = VtraceConfig::default();
    let targets = vtrace(&clips, &batch.input(), &batch.boundaries()).expect("the batch fits together");
    let variable =
        |seed| Var::from_vec(sequence(seed), (20, COLUMNS), &Device::Cpu).expect("the CPU makes variables");
    let (log_prob, entropy, value) = (variable(4), variable(5), variable(6));
    bencher.bench_local(|| {
        let policy = Evaluation::<f32>::new(&log_prob, &entropy, &value)?;
        let loss = vtrace_loss(&LossConfig::default(), &clips, &policy, &targets, &batch.log_rhos, None)?;
        let gradients = loss.total.backward()?;
        Ok::<_, forebay::learner::objective::ObjectiveError>((gradients, loss.diagnostics))
    });
}

#[divan::bench(args = ["rmsprop", "adamw"])]
fn optimizer_step(bencher: Bencher, kind: &str) {
    let config = match kind {
        "adamw" => OptimizerConfig::Adamw(AdamwConfig::default()),
        _ => OptimizerConfig::default(),
    };
    let gradient = |entries: usize| {
        let values: Vec<f32> = (0..entries).map(|i| (i as f32 * 0.37).sin()).collect();
        Tensor::from_vec(values, entries, &Device::Cpu).expect("the CPU makes tensors")
    };
    let gradients = [gradient(64), gradient(256), gradient(4096), gradient(5584)];
    let parameters = gradients.iter().enumerate().map(|(index, tensor)| {
        let copy = tensor.copy().and_then(|copy| Var::from_tensor(&copy));
        (format!("parameter_{index}"), copy.expect("the CPU makes variables"))
    });
    let mut optimizer = Optimizer::new(&config, parameters.collect()).expect("the settings are valid");
    bencher.bench_local(|| optimizer.step_with(&gradients, 1e-4, 40.0));
}
