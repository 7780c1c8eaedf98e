//! What is refused, and how.

use candle_core::{DType, Tensor};

use super::*;

fn refused(change: impl FnOnce(&mut Request)) -> String {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, EngineConfig { cache_tokens: 128, ..config() });
    let mut request = group(4, 10, 1, 9).remove(0);
    change(&mut request);
    let error = engine.submit(request).unwrap_err().to_string();
    engine.assert_empty();
    error
}

#[test]
fn a_request_that_cannot_be_served_is_refused_by_name() {
    let contains = |error: String, part: &str| assert!(error.contains(part), "{error}");
    contains(refused(|r| r.trajectory.prompt = Arc::from([])), "0/4/0/0: its prompt is empty");
    contains(refused(|r| r.trajectory.prompt = Arc::from([1, 61])), "token 61 is not below");
    contains(refused(|r| r.trajectory.tokens.push(1)), "1 tokens with [0, 0, 0]");
    contains(refused(|r| r.trajectory.candidates.push(vec![])), "1 sets of candidates");
    contains(refused(|r| r.trajectory.experts.push(1)), "1 recorded experts");
    contains(refused(|r| r.sampling.temperature = -1.0), "temperature -1");
    contains(
        refused(|r| r.stops = Arc::new(Stops { strings: vec!["x".into()], ..Stops::default() })),
        "detokenizer",
    );
    contains(
        refused(|r| r.max_new_tokens = 120),
        "grow to 130 tokens, which need 3 pages of the KV cache, and there are 2",
    );
}

#[test]
fn a_trajectory_cannot_be_in_the_engine_twice() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, config());
    let request = group(4, 10, 1, 9).remove(0);
    engine.submit(request.clone()).unwrap();
    assert!(engine.submit(request).unwrap_err().to_string().contains("in the engine already"));
    assert_eq!(drain(&mut engine).len(), 1);
    assert!(engine.observe(id(4, 0), &[1]).unwrap_err().to_string().contains("no held trajectory 0/4/0/0"));
    assert!(engine.release(id(4, 0)).is_err());
}

#[test]
fn keys_and_values_of_another_model_or_trajectory_are_refused() {
    let decoder = decoder(false);
    let mut first = engine(&decoder, config());
    first.submit(group(4, 10, 1, 9).remove(0)).unwrap();
    for _ in 0..4 {
        first.step().unwrap();
    }
    let paused = first.interrupt(Interrupt::All, true).remove(0);
    let short = Paused { request: group(4, 3, 1, 9).remove(0), ..paused.clone() };
    assert!(first.resume(short).unwrap_err().to_string().contains("for 3 tokens"));
    let shape = DecoderConfig { layers: 3, ..decoder.config().clone() };
    let other = Arc::new(Decoder::new(shape, &Device::Cpu).unwrap());
    let mut second = engine(&other, config());
    assert!(second.resume(paused).unwrap_err().to_string().contains("another model's"));
    second.assert_empty();
}

#[test]
fn weights_that_are_no_numbers_fail_the_step_by_name_and_lose_nothing() {
    let decoder = decoder(false);
    let mut engine = engine(&decoder, config());
    let requests = group(4, 10, 2, 9);
    submit_all(&mut engine, &requests);
    for _ in 0..4 {
        engine.step().unwrap();
    }
    let sound = weights(&decoder, 1).parameters;
    let bad = sound.iter().map(|(name, tensor)| {
        let tensor = if name == "model.norm.weight" {
            (Tensor::ones(24, DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
        } else {
            tensor.clone()
        };
        (name.to_owned(), tensor)
    });
    let bad = decoder.layout().adopt(bad.collect(), &Device::Cpu).unwrap();
    engine.swap(Weights::new(Arc::new(bad), Version(1)), ResumeMode::KeepKv);
    let error = engine.step().unwrap_err().to_string();
    assert!(error.contains("trajectory 0/4/0/0 under version 1"), "{error}");
    engine.check_pages();
    // With sound weights it goes on as if nothing had been.
    engine.swap(weights(&decoder, 0), ResumeMode::KeepKv);
    assert_eq!(drain(&mut engine), undisturbed(&decoder, config(), &requests));
    engine.assert_empty();
}

#[test]
fn settings_out_of_their_range_are_refused_by_name() {
    let decoder = decoder(false);
    let refused = |change: fn(&mut EngineConfig)| {
        let mut config = config();
        change(&mut config);
        Engine::new(decoder.clone(), weights(&decoder, 0), config, 0).unwrap_err().to_string()
    };
    assert!(refused(|c| c.cache_tokens = 0).contains("`cache_tokens` must be at least 1"));
    assert!(refused(|c| c.max_running = 0).contains("`max_running`"));
    assert!(refused(|c| c.prefill_tokens = 0).contains("`prefill_tokens`"));
    assert!(refused(|c| c.log_prob_noise = f32::NAN).contains("`log_prob_noise`"));
    assert!(refused(|c| c.force_experts = true).contains("`force_experts` needs `record_experts`"));
}

#[test]
fn weights_of_another_type_than_the_decoder_computes_in_are_refused() {
    let decoder = decoder(false);
    let rounded = parameters(&decoder, 1).to_dtype(DType::BF16).unwrap();
    let weights = Weights::new(Arc::new(rounded), Version(0));
    let error = Engine::new(decoder, weights, config(), SEED).unwrap_err().to_string();
    assert!(error.contains("`weights`") && error.contains("F32"), "{error}");
}
