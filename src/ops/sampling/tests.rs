//! Draws against the distributions they are to follow, and the sets against plain sorting.

use super::super::testing::pseudo_random;
use super::super::vocabulary::vocabulary_log_prob;
use super::*;
use crate::random::CounterRng;
use candle_core::{DType, Device, Tensor};

/// The highest random number there is.
const LAST: u64 = u64::MAX;

fn sampling(temperature: f32, top_k: Option<usize>, top_p: Option<f32>) -> Sampling {
    Sampling { temperature, top_k, top_p }
}

fn sample(logits: &[f32], sampling: Sampling, random: u64) -> Sampled {
    sample_token(logits, &sampling, random, &mut SamplingScratch::default()).unwrap()
}

fn random_logits(count: usize, scale: f64) -> Vec<f32> {
    (pseudo_random(&[count], 17, DType::F32) * scale).unwrap().to_vec1().unwrap()
}

/// The candidates, by sorting every token.
fn expected_set(logits: &[f32], sampling: Sampling) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).filter(|&i| logits[i] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap());
    order.truncate(sampling.top_k.unwrap_or(usize::MAX));
    let weight = |i: usize| (f64::from(logits[i]) / f64::from(sampling.temperature)).exp();
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut cumulative = 0.0;
    let needed = order.iter().position(|&i| {
        cumulative += weight(i);
        cumulative >= f64::from(sampling.top_p.unwrap_or(1.0)) * total
    });
    if sampling.top_p.is_some() {
        order.truncate(needed.map_or(usize::MAX, |last| last + 1));
    }
    order.sort_unstable();
    order
}

/// Random bits that stand for `uniform`.
fn bits(uniform: f64) -> u64 {
    ((uniform * (1_u64 << 53) as f64) as u64) << 11
}

#[test]
fn a_small_distribution_is_inverted_exactly_in_the_order_of_ids() {
    let logits = [1.0_f32.ln(), f32::NEG_INFINITY, 2.0_f32.ln(), 5.0_f32.ln(), f32::NEG_INFINITY];
    let mut counts = [0; 5];
    let mut last = 0;
    for i in 0..8000 {
        let drawn = sample(&logits, Sampling::default(), bits(f64::from(i) / 8000.0 + 1e-9));
        assert!(drawn.token >= last && drawn.candidates == 3);
        last = drawn.token;
        counts[drawn.token as usize] += 1;
        let expected = (logits[drawn.token as usize].exp() / 8.0).ln();
        assert!((drawn.log_prob - expected).abs() < 1e-6);
    }
    for (count, expected) in counts.into_iter().zip([1000_i32, 0, 2000, 5000, 0]) {
        assert!((count - expected).abs() <= 1, "{counts:?}");
    }
}

#[test]
fn draws_pass_a_chi_squared_test() {
    let logits = random_logits(40, 1.5);
    for settings in
        [sampling(1.0, None, None), sampling(0.7, None, None), sampling(1.3, Some(20), Some(0.95))]
    {
        let set = expected_set(&logits, settings);
        let weight = |i: usize| (f64::from(logits[i]) / f64::from(settings.temperature)).exp();
        let total: f64 = set.iter().map(|&i| weight(i)).sum();
        let mut counts = vec![0.0; 40];
        let (mut rng, mut scratch) = (CounterRng::new(5), SamplingScratch::default());
        let draws = 20_000;
        for _ in 0..draws {
            let random = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
            let drawn = sample_token(&logits, &settings, random, &mut scratch).unwrap();
            counts[drawn.token as usize] += 1.0;
        }
        assert_eq!(set.iter().map(|&i| counts[i]).sum::<f64>(), f64::from(draws));
        let statistic: f64 = set
            .iter()
            .map(|&i| {
                let expected = weight(i) / total * f64::from(draws);
                (counts[i] - expected).powi(2) / expected
            })
            .sum();
        let freedom = (set.len() - 1) as f64;
        // Normal approximation of the upper tail, at four standard deviations.
        assert!(statistic < freedom + 4.0 * (2.0 * freedom).sqrt(), "{statistic} of {freedom}");
    }
}

#[test]
fn the_log_probability_has_the_bits_of_the_learner() {
    let (d, v) = (1, 2500);
    let weight = pseudo_random(&[v, d], 3, DType::F32);
    let x = Tensor::new(&[[1.0_f32]], &Device::Cpu).unwrap();
    // One input of 1: the logits are the weights.
    let logits: Vec<f32> = weight.flatten_all().unwrap().to_vec1().unwrap();
    for (written, temperature) in [(1.0, 1.0), (0.7, 0.7_f32), (1.3, 1.3)] {
        for i in 0..50 {
            let drawn = sample(&logits, sampling(temperature, None, None), bits(f64::from(i) / 50.0));
            let target = Tensor::new(&[drawn.token], &Device::Cpu).unwrap();
            let learner = vocabulary_log_prob(&x, &weight, &target, written).unwrap();
            let learner = learner.to_vec2::<f32>().unwrap()[0][0];
            assert_eq!(drawn.log_prob.to_bits(), learner.to_bits());
        }
    }
}

#[test]
fn candidate_sets_are_those_of_plain_sorting() {
    for (count, scale) in [(1, 1.0), (5, 1.0), (63, 2.0), (1500, 3.0), (9000, 0.1)] {
        let mut logits = random_logits(count, scale);
        // Ties in every place, and masked tokens.
        for (i, logit) in logits.iter_mut().enumerate() {
            match i % 11 {
                3 => *logit = (*logit * 4.0).round() / 4.0,
                7 if count > 5 => *logit = f32::NEG_INFINITY,
                _ => {}
            }
        }
        for (top_k, top_p) in [
            (Some(1), None),
            (Some(7), None),
            (Some(1000), None),
            (None, Some(1e-6)),
            (None, Some(0.5)),
            (None, Some(0.99)),
            (Some(50), Some(0.8)),
        ] {
            let settings = sampling(0.8, top_k, top_p);
            let mut scratch = SamplingScratch::default();
            let drawn = sample_token(&logits, &settings, bits(0.4), &mut scratch).unwrap();
            let set = expected_set(&logits, settings);
            assert_eq!(drawn.candidates as usize, set.len(), "{count} {settings:?}");
            if !scratch.ids.is_empty() {
                let ids: Vec<usize> = scratch.ids.iter().map(|&id| id as usize).collect();
                assert_eq!(ids, set, "{count} {settings:?}");
            }
            assert!(set.contains(&(drawn.token as usize)));
            let weight = |i: usize| (f64::from(logits[i]) / 0.8).exp();
            let total: f64 = set.iter().map(|&i| weight(i)).sum();
            let expected = (weight(drawn.token as usize) / total).ln();
            assert!((f64::from(drawn.log_prob) - expected).abs() < 1e-5);
        }
    }
}

#[test]
fn equal_tokens_at_the_border_stay_by_lowest_id() {
    let logits = [0.0, 2.0, -0.0, 0.0, 2.0, 0.0];
    let set = |settings| {
        let mut scratch = SamplingScratch::default();
        sample_token(&logits, &settings, 0, &mut scratch).unwrap();
        scratch.ids
    };
    assert_eq!(set(sampling(1.0, Some(1), None)), [1]);
    assert_eq!(set(sampling(1.0, Some(4), None)), [0, 1, 2, 4]);
    // Exact masses: of four equal tokens two hold a half.
    let equal = [0.5; 4];
    let mut scratch = SamplingScratch::default();
    sample_token(&equal, &sampling(1.0, None, Some(0.5)), LAST, &mut scratch).unwrap();
    assert_eq!(scratch.ids, [0, 1]);
    sample_token(&equal, &sampling(1.0, Some(2), Some(0.5)), LAST, &mut scratch).unwrap();
    assert_eq!(scratch.ids, [0]);
}

#[test]
fn a_set_of_everything_changes_nothing() {
    let logits = random_logits(3000, 2.0);
    for i in 0..20 {
        let random = bits(f64::from(i) / 20.0);
        let plain = sample(&logits, Sampling::default(), random);
        assert_eq!(plain, sample(&logits, sampling(1.0, Some(3000), Some(1.0)), random));
    }
}

#[test]
fn the_highest_draw_takes_the_last_token_that_can_be_drawn() {
    for count in [1, 2, 64, 1024, 1025, 5000] {
        let mut logits = random_logits(count, 1.0);
        assert_eq!(sample(&logits, Sampling::default(), LAST).token as usize, count - 1);
        logits.extend([f32::NEG_INFINITY; 2000]);
        assert_eq!(sample(&logits, Sampling::default(), LAST).token as usize, count - 1);
        logits.extend([-1e9; 2000]);
        assert_eq!(sample(&logits, Sampling::default(), LAST).token as usize, count - 1);
        let mut behind = vec![f32::NEG_INFINITY; 3000];
        behind.extend(&logits);
        assert_eq!(sample(&behind, Sampling::default(), 0).token as usize, 3000);
    }
}

#[test]
fn greedy_takes_the_first_maximum_and_tells_the_models_own_log_probability() {
    let logits = [0.5, 3.0, 3.0, f32::NEG_INFINITY];
    let drawn = sample(&logits, sampling(0.0, Some(2), Some(0.1)), LAST);
    let total: f32 = logits.iter().map(|l| l.exp()).sum();
    assert_eq!((drawn.token, drawn.candidates), (1, 1));
    assert!((drawn.log_prob - (3.0 - total.ln())).abs() < 1e-6);
}

#[test]
fn scratch_from_another_row_makes_no_difference() {
    let (long, short) = (random_logits(4000, 1.0), random_logits(30, 1.0));
    let mut scratch = SamplingScratch::default();
    for settings in [sampling(0.9, Some(5), Some(0.9)), sampling(1.0, None, Some(0.9)), Sampling::default()] {
        for logits in [&long, &short, &long] {
            let used = sample_token(logits, &settings, bits(0.3), &mut scratch).unwrap();
            assert_eq!(used, sample(logits, settings, bits(0.3)));
        }
    }
}

#[test]
fn what_cannot_be_drawn_from_is_an_error() {
    let refused = |logits: &[f32], settings: Sampling| {
        sample_token(logits, &settings, 0, &mut SamplingScratch::default()).unwrap_err().to_string()
    };
    for settings in [
        Sampling::default(),
        sampling(0.0, None, None),
        sampling(1.0, Some(1), None),
        sampling(1.0, None, Some(0.5)),
    ] {
        assert!(refused(&[0.0, f32::NAN, 1.0], settings).contains("NaN"));
        assert!(refused(&[0.0, f32::INFINITY], settings).contains("infinite"));
        assert!(refused(&[f32::NEG_INFINITY; 3], settings).contains("none of 3 tokens"));
        assert!(refused(&[], settings).contains("none of 0 tokens"));
    }
    for temperature in [-1.0, 1e-4, f32::NAN, f32::INFINITY] {
        assert!(refused(&[0.0], sampling(temperature, None, None)).contains("temperature"));
    }
    assert!(refused(&[0.0], sampling(1.0, Some(0), None)).contains("top_k"));
    for p in [0.0, -0.1, 1.1, f32::NAN] {
        assert!(refused(&[0.0], sampling(1.0, None, Some(p))).contains("top_p"));
    }
}

#[test]
fn settings_are_read_with_their_defaults_and_no_others() {
    let read: Sampling = serde_json::from_str(r#"{"top_k": 40}"#).unwrap();
    assert_eq!(read, sampling(1.0, Some(40), None));
    assert!(serde_json::from_str::<Sampling>(r#"{"topk": 40}"#).is_err());
}
