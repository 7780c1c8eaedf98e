//! Cases of the token sampler, against a reference that sorts.

use candle_core::{DType, Device, Result, Tensor};

use super::Size;
use super::case::{Case, Work, indices, normal};
use crate::ops::cuda::lock;
use crate::ops::cuda::sampling::{Draw, NO_TOKEN, sample};
use crate::random::{Stream, derive_seed, key};

const SEED: u64 = 11;

/// Temperature, top k, top p.
type Setting = (f32, Option<usize>, f32);

pub(super) fn cases(size: Size, dtype: DType) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    match size {
        Size::Small => {
            for setting in [
                (1.0, None, 1.0),
                (0.0, None, 1.0),
                (0.7, Some(5), 1.0),
                (1.3, None, 0.8),
                (0.9, Some(20), 0.6),
                (1.0, Some(1), 1.0),
                (1.0, Some(10_000), 0.999),
            ] {
                for (rows, vocabulary) in [(1, 1), (0, 3), (9, 300), (3, 1500)] {
                    let logits = (normal(&[rows, vocabulary], 1, dtype)? * 2.0)?;
                    cases.push(drawn(&format!("[{rows}, {vocabulary}]"), logits, setting)?);
                }
                // Few values, so that many tokens stand on the border; the lower half is forbidden.
                let ties: Vec<f32> = (0..600).map(|i| ((i * 7) % 5) as f32 / 4.0).collect();
                let ties: Vec<f32> = (0..4)
                    .flat_map(|_| {
                        ties.iter().enumerate().map(|(i, &v)| if i < 300 { f32::NEG_INFINITY } else { v })
                    })
                    .collect();
                let ties = Tensor::from_vec(ties, (4, 600), &Device::Cpu)?.to_dtype(dtype)?;
                cases.push(drawn("of equals", ties, setting)?);
                let impossible = [[f32::NEG_INFINITY; 2], [0.0, f32::NAN], [f32::INFINITY, 0.0]];
                let impossible = Tensor::new(&impossible, &Device::Cpu)?.to_dtype(dtype)?;
                cases.push(drawn("of nothing", impossible, setting)?);
            }
        }
        Size::Large => {
            for setting in [(1.0, None, 1.0), (0.8, Some(50), 1.0), (0.8, None, 0.95)] {
                let logits = normal(&[256, 49_152], 1, dtype)?;
                cases.push(drawn("[256, 49152]", logits, setting)?);
            }
        }
    }
    Ok(cases)
}

fn drawn(name: &str, logits: Tensor, setting: Setting) -> Result<Case> {
    let (rows, vocabulary) = logits.dims2()?;
    let bytes = rows * vocabulary * logits.dtype().size_in_bytes();
    let counters = indices(&[rows, 4], 1 << 30, 2)?;
    let (temperature, top_k, top_p) = setting;
    let draw = Draw { temperature, top_k, top_p, key: key(SEED, Stream::Action) };
    let given = (logits.to_dtype(DType::F64)?.to_vec2::<f64>()?, counters.to_vec2::<u32>()?);
    Ok(Case {
        name: format!("sample {name} at {setting:?} {:?}", logits.dtype()),
        inputs: vec![logits, counters],
        kernel: Box::new(move |inputs| {
            let [logits, counters] = [&inputs[0], &inputs[1]].map(lock);
            Ok(sample(&logits.view()?, &counters.view()?, draw)?
                .map(crate::ops::cuda::Array::into_tensor)
                .into())
        }),
        expected: Box::new(move || {
            let (mut tokens, mut log_probs, mut counts) = (Vec::new(), Vec::new(), Vec::new());
            for (logits, counters) in given.0.iter().zip(&given.1) {
                let (token, log_prob, count) = reference(logits, counters, setting);
                tokens.push(token);
                log_probs.push(log_prob);
                counts.push(count);
            }
            Ok(vec![
                Tensor::from_vec(tokens, rows, &Device::Cpu)?,
                Tensor::from_vec(log_probs, rows, &Device::Cpu)?,
                Tensor::from_vec(counts, rows, &Device::Cpu)?,
            ])
        }),
        bound: 3e-6,
        work: Work { bytes, operations: 0 },
    })
}

/// Token, log-probability and number of candidates of one row, by sorting.
fn reference(logits: &[f64], counters: &[u32], (temperature, top_k, top_p): Setting) -> (u32, f64, u32) {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logits.iter().any(|logit| logit.is_nan()) || !max.is_finite() {
        return (NO_TOKEN, f64::NAN, 0);
    }
    let mut order: Vec<usize> =
        (0..logits.len()).filter(|&token| logits[token] > f64::NEG_INFINITY).collect();
    // Stable: of equals the lower id comes first.
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let weight = |token: usize| ((logits[token] - max) / f64::from(temperature)).exp();
    if temperature == 0.0 {
        let whole: f64 = order.iter().map(|&token| (logits[token] - max).exp()).sum();
        return (order[0] as u32, -whole.ln(), 1);
    }
    order.truncate(top_k.unwrap_or(usize::MAX));
    if top_p < 1.0 {
        let target = f64::from(top_p) * order.iter().map(|&token| weight(token)).sum::<f64>();
        let mut reached = 0.0;
        let enough = order.iter().position(|&token| {
            reached += weight(token);
            reached >= target
        });
        order.truncate(enough.map_or(usize::MAX, |last| last + 1));
    }
    order.sort_unstable();
    let total: f64 = order.iter().map(|&token| weight(token)).sum();
    let counters = [counters[0], counters[1], counters[2], counters[3]];
    let random = derive_seed(SEED, Stream::Action, counters);
    let target = (random >> 11) as f64 / (1_u64 << 53) as f64 * total;
    let mut cumulative = 0.0;
    let found = order.iter().find(|&&token| {
        cumulative += weight(token);
        target < cumulative
    });
    let token = found.copied().unwrap_or(order[order.len() - 1]);
    let log_prob = (logits[token] - max) / f64::from(temperature) - total.ln();
    (token as u32, log_prob, order.len() as u32)
}
