//! The engine with pages of a device, whose kernels are emulated on the CPU: they are driven with the page tables that
//! the engine makes.

use super::super::drawing::Drawing;
use super::super::pages::{KvShape, PagePool};
use super::*;
use candle_core::Tensor;

/// An engine whose keys and values are in a device's pages.
fn on_device(decoder: &Arc<Decoder>, config: EngineConfig) -> Engine {
    let pool = PagePool::emulated(config.pages(), KvShape::of(decoder.config())).unwrap();
    let mut engine = engine(decoder, config);
    engine.pool = pool;
    engine
}

/// Groups of prompts around a page's size, few enough for emulation.
fn small_workload() -> Vec<Request> {
    let groups = [(1, 1), (30, 2), (65, 2), (129, 1)];
    let groups = groups.iter().enumerate();
    groups.flat_map(|(index, &(length, members))| group(index as u32, length, members, 5)).collect()
}

/// Greatest difference of recorded log-probabilities from those of a packed pass.
fn difference(decoder: &Decoder, trajectories: &[Trajectory]) -> f32 {
    let packed = packed(decoder, &parameters(decoder, 100), trajectories, 1.0, false);
    let pairs = trajectories.iter().zip(&packed).flat_map(|(own, packed)| own.log_probs.iter().zip(packed));
    pairs.map(|(own, packed)| (own - packed).abs()).fold(0.0, f32::max)
}

#[test]
fn log_probs_are_those_of_packed_training_whatever_the_batch_chunk_and_cache() {
    for experts in [false, true] {
        let decoder = decoder(experts);
        let requests = small_workload();
        let mut first: Option<Vec<Trajectory>> = None;
        let roomy_and_tight = [(24, 8, 500), (3, 9, 30)];
        for (cache_pages, max_running, prefill_tokens) in roomy_and_tight {
            let config =
                EngineConfig { cache_tokens: 64 * cache_pages, max_running, prefill_tokens, ..config() };
            let mut engine = on_device(&decoder, config);
            submit_all(&mut engine, &requests);
            let trajectories = drain(&mut engine);
            engine.assert_empty();
            assert_eq!(trajectories.len(), requests.len());
            let difference = difference(&decoder, &trajectories);
            assert!(difference < 1e-5, "{cache_pages} pages: {difference}");
            // To the last bit the same, however pages are dealt out.
            assert_eq!(first.get_or_insert_with(|| trajectories.clone()), &trajectories);
        }
    }
}

#[test]
fn an_interruption_with_saved_keys_and_values_changes_no_bit_and_may_move_to_another_kind_of_pages() {
    let decoder = decoder(false);
    let requests = small_workload();
    let config = EngineConfig { prefill_tokens: 100, ..config() };
    let mut undisturbed = on_device(&decoder, config.clone());
    submit_all(&mut undisturbed, &requests);
    let expected = drain(&mut undisturbed);
    let interrupted = |mut next: Engine| {
        let mut engine = on_device(&decoder, config.clone());
        submit_all(&mut engine, &requests);
        let mut finished = Vec::new();
        for _ in 0..7 {
            finished.extend(engine.step().unwrap().into_iter().map(|finished| finished.trajectory));
        }
        let paused = engine.interrupt(Interrupt::All, true);
        engine.assert_empty();
        assert!(paused.iter().any(|paused| paused.kv.is_some()));
        paused.into_iter().for_each(|paused| next.resume(paused).unwrap());
        finished.extend(drain(&mut next));
        by_id(finished)
    };
    assert_eq!(interrupted(on_device(&decoder, config.clone())), expected);
    let moved = interrupted(engine(&decoder, config.clone()));
    assert!(difference(&decoder, &moved) < 1e-5);
}

#[test]
fn other_weights_in_the_middle_are_taken_up_as_with_pages_in_host_memory() {
    let decoder = decoder(false);
    for mode in [ResumeMode::Reprefill, ResumeMode::KeepKv] {
        let run = |mut engine: Engine| {
            submit_all(&mut engine, &small_workload());
            (0..5).for_each(|_| drop(engine.step().unwrap()));
            engine.swap(weights(&decoder, 1), mode);
            drain(&mut engine)
        };
        let (device, host) = (run(on_device(&decoder, config())), run(engine(&decoder, config())));
        for (device, host) in device.iter().zip(&host) {
            assert_eq!((&device.versions, device.id), (&host.versions, host.id));
            assert_eq!(device.tokens, host.tokens, "{mode:?}");
            let pairs = device.log_probs.iter().zip(&host.log_probs);
            let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-5, "{mode:?}: {difference}");
        }
    }
}

/// Logits, and requests of which each draws from its row.
fn draws(temperature: f32, rows: usize) -> (Tensor, Vec<Request>) {
    let mut rng = CounterRng::new(5);
    let logits: Vec<f32> = (0..rows * VOCABULARY).map(|_| 3.0 * rng.normal() as f32).collect();
    let logits = Tensor::from_vec(logits, (rows, VOCABULARY), &Device::Cpu).unwrap();
    let sampling = Sampling { temperature, ..Sampling::default() };
    let request = |row: usize| Request::new(Trajectory::new(id(row as u32, 1), prompt(1, 7)), sampling, 9);
    (logits, (0..rows).map(request).collect())
}

#[test]
fn the_kernel_draws_the_tokens_that_the_host_draws() {
    let drawing = Drawing { seed: SEED, noise: 0.0 };
    for temperature in [1.0, 0.7, 0.0] {
        let (logits, requests) = draws(temperature, 200);
        let requests: Vec<&Request> = requests.iter().collect();
        let [host, kernel] = [false, true].map(|kernels| drawing.all(&logits, &requests, kernels).unwrap());
        for (host, kernel) in host.into_iter().zip(kernel) {
            let (host, kernel) = (host.unwrap(), kernel.unwrap());
            assert_eq!((host.token, &host.candidates), (kernel.token, &kernel.candidates));
            assert!((host.log_prob - kernel.log_prob).abs() < 1e-5);
        }
    }
}

#[test]
fn candidates_are_recorded_on_a_device_too_and_an_impossible_draw_is_an_error_of_its_row() {
    let drawing = Drawing { seed: SEED, noise: 0.0 };
    let (logits, mut requests) = draws(1.0, 3);
    requests[1].sampling.top_k = Some(4);
    let drawn = drawing.all(&logits, &requests.iter().collect::<Vec<_>>(), true).unwrap();
    let counts: Vec<usize> = drawn.iter().map(|drawn| drawn.as_ref().unwrap().candidates.len()).collect();
    assert_eq!(counts, [0, 4, 0]);

    let (logits, requests) = draws(1.0, 3);
    let spoilt = Tensor::new(&[[0.0_f32], [f32::NAN], [0.0]], &Device::Cpu).unwrap();
    let logits = logits.broadcast_add(&spoilt).unwrap();
    let drawn = drawing.all(&logits, &requests.iter().collect::<Vec<_>>(), true).unwrap();
    assert_eq!(drawn.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert!(drawn[1].as_ref().unwrap_err().to_string().contains("NaN"));
}
