//! What is recorded while generating is what a packed forward pass computes, bit for bit.

use super::*;
use crate::ops::with_threads;

#[test]
fn log_probs_are_those_of_packed_training_whatever_the_batch_chunk_cache_and_threads() {
    let pools = [1, 2].map(|count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap());
    for experts in [false, true] {
        let decoder = decoder(experts);
        let requests = workload();
        let mut first: Option<Vec<Trajectory>> = None;
        for (cache_pages, max_running, prefill_tokens) in [(40, 16, 500), (40, 1, 17), (5, 4, 64), (3, 9, 1)]
        {
            let config = EngineConfig {
                cache_tokens: 64 * cache_pages,
                max_running,
                prefill_tokens,
                record_experts: experts,
                ..config()
            };
            let pool = &pools[max_running % 2];
            let trajectories = with_threads(pool, || undisturbed(&decoder, config, &requests));
            assert_eq!(trajectories.len(), requests.len());
            for (trajectory, request) in trajectories.iter().zip(&requests) {
                assert_eq!(trajectory.tokens.len(), request.max_new_tokens);
                assert_eq!(trajectory.experts.len(), (trajectory.len() - 1) * decoder.experts_per_row());
            }
            if let Some(first) = &first {
                assert_eq!(first, &trajectories);
            } else {
                assert_exact(&decoder, &parameters(&decoder, 100), &trajectories, 1.0);
                first = Some(trajectories);
            }
        }
    }
}

#[test]
fn log_probs_are_under_the_sampling_temperature() {
    let decoder = decoder(false);
    let mut requests = group(1, 20, 4, 30);
    requests.iter_mut().for_each(|request| request.sampling.temperature = 0.7);
    let trajectories = undisturbed(&decoder, config(), &requests);
    assert_exact(&decoder, &parameters(&decoder, 100), &trajectories, f64::from(0.7_f32));
}

#[test]
fn members_of_a_group_differ_and_greedy_ones_do_not() {
    let decoder = decoder(false);
    let mut requests = group(1, 20, 2, 30);
    requests[1].max_new_tokens = 30;
    let sampled = undisturbed(&decoder, config(), &requests);
    assert_ne!(sampled[0].tokens, sampled[1].tokens);
    requests.iter_mut().for_each(|request| request.sampling.temperature = 0.0);
    let greedy = undisturbed(&decoder, config(), &requests);
    assert_eq!(greedy[0].tokens, greedy[1].tokens);
    // A greedy token's log-probability is the model's.
    assert_exact(&decoder, &parameters(&decoder, 100), &greedy, 1.0);
}

#[test]
fn candidates_are_recorded_when_the_sampling_is_restricted() {
    let decoder = decoder(false);
    let mut requests = group(1, 5, 1, 12);
    requests[0].sampling.top_k = Some(3);
    let restricted = undisturbed(&decoder, config(), &requests).remove(0);
    assert_eq!(restricted.candidates.len(), 12);
    for (token, candidates) in restricted.tokens.iter().zip(&restricted.candidates) {
        assert!(candidates.len() == 3 && candidates.contains(token) && candidates.is_sorted());
    }
    let free = undisturbed(&decoder, config(), &group(1, 5, 1, 12)).remove(0);
    assert!(free.candidates.is_empty());
    // Going on without a restriction keeps one entry a token.
    requests[0].trajectory = restricted;
    requests[0].sampling.top_k = None;
    requests[0].max_new_tokens = 15;
    let longer = undisturbed(&decoder, config(), &requests).remove(0);
    assert_eq!((longer.candidates.len(), longer.candidates[13].len()), (15, 0));
}

#[test]
fn noise_changes_the_recorded_log_probs_and_nothing_else() {
    let decoder = decoder(false);
    let requests = group(1, 20, 3, 40);
    let plain = undisturbed(&decoder, config(), &requests);
    let noisy_config = EngineConfig { log_prob_noise: 0.01, ..config() };
    let noisy = undisturbed(&decoder, noisy_config.clone(), &requests);
    assert_eq!(noisy, undisturbed(&decoder, EngineConfig { max_running: 1, ..noisy_config }, &requests));
    let (mut count, mut square) = (0, 0.0);
    for (plain, noisy) in plain.iter().zip(&noisy) {
        assert_eq!(plain.tokens, noisy.tokens);
        for (plain, noisy) in plain.log_probs.iter().zip(&noisy.log_probs) {
            count += 1;
            square += (plain - noisy).powi(2);
        }
    }
    let deviation = (square / count as f32).sqrt();
    assert!((0.007..0.013).contains(&deviation), "{deviation}");
}

#[test]
fn rounded_weights_are_close_but_not_the_same() {
    let decoder = decoder(false);
    let exact = weights(&decoder, 0);
    let rounded = exact.rounded_to_bf16(&decoder).unwrap();
    let mut engine = Engine::new(decoder.clone(), rounded.clone(), config(), SEED).unwrap();
    submit_all(&mut engine, &group(1, 20, 2, 30));
    let trajectories = drain(&mut engine);
    assert_exact(&decoder, &rounded.parameters, &trajectories, 1.0);
    let full = packed(&decoder, &exact.parameters, &trajectories, 1.0, false);
    let difference = |(a, b): (&f32, &f32)| (a - b).abs();
    let largest = trajectories[0].log_probs.iter().zip(&full[0]).map(difference).fold(0.0, f32::max);
    assert!(largest > 0.0 && largest < 0.5, "{largest}");
}
