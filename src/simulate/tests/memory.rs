//! Memory of engines, and the throttle that follows it.

use super::*;

/// 256 answers in a memory that has room for about two thirds of them, and a state that is dear to compute.
fn crowded(throttled: bool) -> SimulateConfig {
    let mut config = standard("kimi_k3");
    (config.engine.kv_tokens, config.engine.prefill_seconds) = (Some(100_000), 0.0006);
    if !throttled {
        config.schedule = schedule("admission.throttle = { start = 256, least = 256, most = 256 }");
    }
    config
}

#[test]
fn a_throttle_keeps_memory_under_its_bound_and_beats_preempting() {
    let (throttled, fixed) = (run(&crowded(true)), run(&crowded(false)));
    println!(
        "throttled: {:.0} tokens/s, memory up to {:.3}; fixed: {:.0} tokens/s, {:?} preemptions, prefill {:.3}",
        throttled.tokens_per_second,
        throttled.kv_use_max.unwrap(),
        fixed.tokens_per_second,
        fixed.preemptions,
        fixed.prefill_share
    );
    // Between two looks memory grows on.
    assert!(throttled.kv_use_max.unwrap() < 0.92 + 0.03, "{throttled:?}");
    assert!(throttled.kv_use.unwrap() > 0.7, "and memory is not left empty");
    assert_eq!(throttled.preemptions, Some(0));
    assert!(fixed.preemptions.unwrap() > 1000 && fixed.prefill_share > 0.1, "{fixed:?}");
    assert!(throttled.tokens_per_second > 1.05 * fixed.tokens_per_second);
}

#[test]
fn the_newest_answer_gives_up_its_memory_and_every_token_is_written_once_all_the_same() {
    let mut config = standard("sync");
    (config.lengths.prompt_sigma, config.lengths.within_sigma, config.lengths.median) = (0.0, 0.0, 100.0);
    (config.batch, config.group_size, config.updates, config.warmup) = (Some(1), Some(3), 1, 0);
    (config.devices.total, config.lengths.cap) = (1, 100);
    (config.engine.step_seconds, config.engine.sequence_seconds) = (1.0, 0.0);
    config.engine.prefill_seconds = 0.5;
    // Three answers fill 150 tokens after 50 steps, and the third gives up its 50; after 25 more the second its 75. With
    // the end of the first both go on, until the third gives up 62 again.
    config.engine.kv_tokens = Some(150);
    let report = run(&config);
    assert_eq!((report.trained_tokens, report.preemptions), (300, Some(3)));
    assert!(report.kv_use_max.unwrap() <= 1.0 + 1e-9, "{report:?}");
    let roomy = run(&SimulateConfig {
        engine: EngineModel { kv_tokens: Some(1000), ..config.engine },
        ..config.clone()
    });
    assert_eq!((roomy.seconds, roomy.preemptions), (100.0, Some(0)));
    assert!(
        report.seconds > roomy.seconds + 0.5 * (50.0 + 75.0),
        "what was lost is computed again: {report:?}"
    );
    let endless = run(&SimulateConfig { engine: EngineModel { kv_tokens: None, ..config.engine }, ..config });
    assert_eq!((endless.seconds, endless.preemptions, endless.kv_use), (100.0, None, None));
}
