//! Operators against the same functions out of candle's operators, on one thread.
//!
//! `candle` arms are what a network would be without `forebay::ops`; their products use as many threads as
//! `RAYON_NUM_THREADS` says, so set it to 1 for a fair comparison.

use candle_core::{DType, Device, Tensor, Var};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use forebay::ops::{
    self, Activation, LstmParameters, PreparedWeight, WeightRef, conv2d, linear, lstm_unroll,
};
use forebay::random::CounterRng;

fn tensor(shape: &[usize]) -> Tensor {
    let mut rng = CounterRng::new(1);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| (rng.normal() * 0.1) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("a value for each place")
}

fn variable(shape: &[usize]) -> Var {
    Var::from_tensor(&tensor(shape)).expect("a float tensor")
}

type Layer<'a> = &'a dyn Fn(&Tensor, &Tensor, &Tensor) -> candle_core::Result<Tensor>;

fn own_linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    linear(x, weight, Some(bias), Activation::Relu)
}

fn candle_linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    x.matmul(&weight.t()?)?.broadcast_add(bias)?.relu()
}

fn own_convolution(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    conv2d(x, weight, bias, 1, 0, Activation::Relu)
}

fn candle_convolution(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    let x = x.permute((0, 3, 1, 2))?.contiguous()?;
    let weight = weight.permute((0, 3, 1, 2))?.contiguous()?;
    x.conv2d(&weight, 0, 1, 1, 1)?.permute((0, 2, 3, 1))?.contiguous()?.broadcast_add(bias)?.relu()
}

fn forward(bencher: Bencher, x: &[usize], weight: &[usize], layer: Layer) {
    let (inputs, weight, bias) = (tensor(x), tensor(weight), tensor(&weight[..1]));
    bencher
        .counter(ItemsCount::new(x[0]))
        .bench_local(|| layer(black_box(&inputs), &weight, &bias).expect("shapes fit"));
}

fn training(bencher: Bencher, x: &[usize], weight: &[usize], layer: Layer) {
    let (inputs, weight, bias) = (tensor(x), variable(weight), variable(&weight[..1]));
    bencher.counter(ItemsCount::new(x[0])).bench_local(|| {
        let y = layer(black_box(&inputs), &weight, &bias).expect("shapes fit");
        y.sum_all().expect("a sum").backward().expect("a gradient")
    });
}

const LINEAR_ROWS: [usize; 3] = [8, 64, 1280];

#[divan::bench(args = LINEAR_ROWS)]
fn linear_forward(bencher: Bencher, rows: usize) {
    forward(bencher, &[rows, 64], &[64, 64], &own_linear);
}

#[divan::bench(args = LINEAR_ROWS)]
fn linear_forward_candle(bencher: Bencher, rows: usize) {
    forward(bencher, &[rows, 64], &[64, 64], &candle_linear);
}

#[divan::bench(args = LINEAR_ROWS)]
fn linear_forward_prepared(bencher: Bencher, rows: usize) {
    let (x, weight, bias) = (tensor(&[rows, 64]), tensor(&[64, 64]), tensor(&[64]));
    let prepared = PreparedWeight::new(&weight).expect("a float tensor");
    let weight = WeightRef { tensor: &weight, prepared: prepared.as_ref(), gradients: None };
    bencher
        .counter(ItemsCount::new(rows))
        .bench_local(|| linear(black_box(&x), weight, Some(&bias), Activation::Relu).expect("shapes fit"));
}

#[divan::bench(args = LINEAR_ROWS)]
fn linear_training(bencher: Bencher, rows: usize) {
    training(bencher, &[rows, 64], &[64, 64], &own_linear);
}

#[divan::bench(args = LINEAR_ROWS)]
fn linear_training_candle(bencher: Bencher, rows: usize) {
    training(bencher, &[rows, 64], &[64, 64], &candle_linear);
}

/// The network of the design target: 4 inputs, two hidden layers of 64.
fn mlp(x: &Tensor, parameters: &[Tensor; 4], layer: Layer) -> candle_core::Result<Tensor> {
    let hidden = layer(x, &parameters[0], &parameters[1])?;
    layer(&hidden, &parameters[2], &parameters[3])
}

fn mlp_training(bencher: Bencher, rows: usize, layer: Layer) {
    let x = tensor(&[rows, 4]);
    let variables = [&[64, 4][..], &[64], &[64, 64], &[64]].map(variable);
    let parameters = variables.each_ref().map(|v| v.as_tensor().clone());
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        let y = mlp(black_box(&x), &parameters, layer).expect("shapes fit");
        y.sum_all().expect("a sum").backward().expect("a gradient")
    });
}

fn mlp_forward(bencher: Bencher, rows: usize, layer: Layer) {
    let x = tensor(&[rows, 4]);
    let parameters = [&[64, 4][..], &[64], &[64, 64], &[64]].map(tensor);
    bencher
        .counter(ItemsCount::new(rows))
        .bench_local(|| mlp(black_box(&x), &parameters, layer).expect("shapes fit"));
}

#[divan::bench(args = [64, 1280])]
fn mlp_4_64_64_forward(bencher: Bencher, rows: usize) {
    mlp_forward(bencher, rows, &own_linear);
}

#[divan::bench(args = [64, 1280])]
fn mlp_4_64_64_forward_candle(bencher: Bencher, rows: usize) {
    mlp_forward(bencher, rows, &candle_linear);
}

#[divan::bench(args = [64, 1280])]
fn mlp_4_64_64_training(bencher: Bencher, rows: usize) {
    mlp_training(bencher, rows, &own_linear);
}

#[divan::bench(args = [64, 1280])]
fn mlp_4_64_64_training_candle(bencher: Bencher, rows: usize) {
    mlp_training(bencher, rows, &candle_linear);
}

/// The first layer of a MinAtar network: 10 × 10 × 4 images, 16 kernels of 3 × 3.
#[divan::bench(args = [1, 64, 640])]
fn minatar_convolution_forward(bencher: Bencher, images: usize) {
    forward(bencher, &[images, 10, 10, 4], &[16, 3, 3, 4], &own_convolution);
}

#[divan::bench(args = [1, 64, 640])]
fn minatar_convolution_forward_candle(bencher: Bencher, images: usize) {
    forward(bencher, &[images, 10, 10, 4], &[16, 3, 3, 4], &candle_convolution);
}

#[divan::bench(args = [640])]
fn minatar_convolution_training(bencher: Bencher, images: usize) {
    training(bencher, &[images, 10, 10, 4], &[16, 3, 3, 4], &own_convolution);
}

#[divan::bench(args = [640])]
fn minatar_convolution_training_candle(bencher: Bencher, images: usize) {
    training(bencher, &[images, 10, 10, 4], &[16, 3, 3, 4], &candle_convolution);
}

/// The second layer of a deep Atari network, where the gradient of the images is needed too.
#[divan::bench(args = [64])]
fn atari_convolution_training(bencher: Bencher, images: usize) {
    let (x, weight, bias) = (variable(&[images, 20, 20, 32]), variable(&[64, 4, 4, 32]), variable(&[64]));
    bencher.counter(ItemsCount::new(images)).bench_local(|| {
        let y = conv2d(&x, &weight, &bias, 2, 0, Activation::Relu).expect("shapes fit");
        y.sum_all().expect("a sum").backward().expect("a gradient")
    });
}

const STEPS: usize = 20;
const SEQUENCES: usize = 64;
const HIDDEN: usize = 64;

fn lstm_inputs() -> ([Var; 5], Tensor) {
    let inputs = [
        &[STEPS, SEQUENCES, HIDDEN][..],
        &[SEQUENCES, 2 * HIDDEN],
        &[4 * HIDDEN, HIDDEN],
        &[4 * HIDDEN, HIDDEN],
        &[4 * HIDDEN],
    ]
    .map(variable);
    let starts = Tensor::zeros((STEPS, SEQUENCES), DType::U8, &Device::Cpu).expect("zeros");
    (inputs, starts)
}

fn own_lstm([x, state, input, hidden, bias]: &[Tensor; 5], starts: &Tensor) -> candle_core::Result<Tensor> {
    let parameters = LstmParameters { input_weight: input.into(), hidden_weight: hidden.into(), bias };
    Ok(lstm_unroll(x, state, starts, parameters)?.0)
}

fn candle_lstm([x, state, input, hidden, bias]: &[Tensor; 5]) -> candle_core::Result<Tensor> {
    let projected = x.flatten(0, 1)?.matmul(&input.t()?)?.broadcast_add(bias)?;
    let projected = projected.reshape((STEPS, SEQUENCES, 4 * HIDDEN))?;
    let sigmoid = |gate: &Tensor| (gate.neg()?.exp()? + 1.0)?.recip();
    let (mut h, mut c) = (state.narrow(1, 0, HIDDEN)?.contiguous()?, state.narrow(1, HIDDEN, HIDDEN)?);
    let mut outputs = Vec::new();
    for step in 0..STEPS {
        let gates = (projected.get(step)? + h.matmul(&hidden.t()?)?)?.chunk(4, 1)?;
        c = ((sigmoid(&gates[1])? * c)? + (sigmoid(&gates[0])? * gates[2].tanh()?)?)?;
        h = (sigmoid(&gates[3])? * c.tanh()?)?;
        outputs.push(h.clone());
    }
    Tensor::stack(&outputs, 0)
}

/// Items are steps of one sequence.
fn lstm(
    bencher: Bencher,
    train: bool,
    unroll: impl Fn(&[Tensor; 5], &Tensor) -> candle_core::Result<Tensor>,
) {
    let (variables, starts) = lstm_inputs();
    let tracked = variables.each_ref().map(|v| v.as_tensor().clone());
    let inputs = if train { tracked } else { tracked.map(|t| t.detach()) };
    bencher.counter(ItemsCount::new(STEPS * SEQUENCES)).bench_local(|| {
        let outputs = unroll(&inputs, &starts).expect("shapes fit");
        if train {
            outputs.sum_all().expect("a sum").backward().map(|_| ()).expect("a gradient");
        }
    });
}

#[divan::bench]
fn lstm_forward(bencher: Bencher) {
    lstm(bencher, false, own_lstm);
}

#[divan::bench]
fn lstm_forward_candle(bencher: Bencher) {
    lstm(bencher, false, |inputs, _| candle_lstm(inputs));
}

#[divan::bench]
fn lstm_training(bencher: Bencher) {
    lstm(bencher, true, own_lstm);
}

#[divan::bench]
fn lstm_training_candle(bencher: Bencher) {
    lstm(bencher, true, |inputs, _| candle_lstm(inputs));
}

#[divan::bench(args = [64, 1280])]
fn categorical_of_six(bencher: Bencher, rows: usize) {
    let logits = tensor(&[rows, 6]);
    let actions = Tensor::zeros(rows, DType::U32, &Device::Cpu).expect("zeros");
    bencher
        .counter(ItemsCount::new(rows))
        .bench_local(|| ops::categorical(black_box(&logits), &actions).expect("shapes fit"));
}
