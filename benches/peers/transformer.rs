//! The parts of a language model: width 576, nine heads of 64 with three of keys and values, feed-forward 1,536,
//! vocabulary 49,152.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, Var};
use forebay::ops::{Activation, Sequence, attention, linear, rms_norm, rotary, swiglu, vocabulary_log_prob};

use super::Pass;
use super::networks::variable;

const WIDTH: usize = 576;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD: usize = 64;
const INNER: usize = 1536;
const VOCABULARY: usize = 49_152;

/// One block over `sequences` sequences of `length` tokens.
pub(super) fn block(sequences: usize, length: usize) -> Result<Pass> {
    let rows = sequences * length;
    // As inside a network, the inputs need a gradient too.
    let x = variable(&[rows, WIDTH])?;
    let norms = [Var::ones(WIDTH, candle_core::DType::F32, &Device::Cpu)?, variable(&[WIDTH])?];
    let [query, output] = [variable(&[WIDTH, WIDTH])?, variable(&[WIDTH, WIDTH])?];
    let [key, value] = [variable(&[KV_HEADS * HEAD, WIDTH])?, variable(&[KV_HEADS * HEAD, WIDTH])?];
    let [gate, up] = [variable(&[INNER, WIDTH])?, variable(&[INNER, WIDTH])?];
    let down = variable(&[WIDTH, INNER])?;
    let angle = |t: usize, i: usize| t as f64 * 10_000_f64.powf(-(i as f64) / (HEAD / 2) as f64);
    let table = |function: fn(f64) -> f64| {
        let values: Vec<f32> =
            (0..length * HEAD / 2).map(|i| function(angle(i / (HEAD / 2), i % (HEAD / 2))) as f32).collect();
        Tensor::from_vec(values, (length, HEAD / 2), &Device::Cpu)
    };
    let (cosine, sine) = (table(f64::cos)?, table(f64::sin)?);
    let positions: Vec<u32> = (0..rows).map(|row| (row % length) as u32).collect();
    let positions = Tensor::from_vec(positions, rows, &Device::Cpu)?;
    let packed: Arc<[Sequence]> =
        (0..sequences).map(|s| Sequence::alone(s * length..(s + 1) * length)).collect();
    Ok(Box::new(move || {
        let project = |x: &Tensor, weight: &Var| linear(x, weight, None, Activation::Identity);
        let h = rms_norm(&x, &norms[0], 1e-5)?;
        let q = rotary(&project(&h, &query)?.reshape((rows, HEADS, HEAD))?, &cosine, &sine, &positions)?;
        let k = rotary(&project(&h, &key)?.reshape((rows, KV_HEADS, HEAD))?, &cosine, &sine, &positions)?;
        let v = project(&h, &value)?.reshape((rows, KV_HEADS, HEAD))?;
        let scale = 1.0 / (HEAD as f64).sqrt();
        let mixed = attention(&q, &k, &v, &packed, scale)?.reshape((rows, WIDTH))?;
        let x = (x.as_tensor() + project(&mixed, &output)?)?;
        let h = rms_norm(&x, &norms[1], 1e-5)?;
        let inner = swiglu(&project(&h, &gate)?, &project(&h, &up)?)?;
        let y = (x + project(&inner, &down)?)?;
        y.backward()?;
        Ok(())
    }))
}

/// Log-probabilities of given tokens and entropies over the vocabulary.
pub(super) fn head(tokens: usize) -> Result<Pass> {
    let (x, weight) = (variable(&[tokens, WIDTH])?, variable(&[VOCABULARY, WIDTH])?);
    let targets: Vec<u32> = (0..tokens).map(|t| (t * 7919 % VOCABULARY) as u32).collect();
    let targets = Tensor::from_vec(targets, tokens, &Device::Cpu)?;
    Ok(Box::new(move || {
        vocabulary_log_prob(&x, &weight, &targets, 1.0)?.backward()?;
        Ok(())
    }))
}
