//! What the survey's systems are known for, in simulation.

use super::*;
use crate::schedule::flow::FlowSettings;

fn run(config: &SimulateConfig) -> SimulationReport {
    simulate(config).unwrap()
}

fn schedule(text: &str) -> toml::Table {
    toml::from_str(text).unwrap()
}

/// The engine and the pool that most figures are for: 8 engines, 256 answers in flight.
fn standard(system: &str) -> SimulateConfig {
    SimulateConfig {
        system: system.into(),
        batch: Some(32),
        group_size: Some(8),
        updates: 40,
        warmup: 10,
        ..SimulateConfig::default()
    }
}

#[test]
fn the_same_configuration_gives_the_same_report() {
    for system in crate::schedule::systems::SYSTEMS {
        let group_size = Some(system.settings().group_size.min(4));
        let config =
            SimulateConfig { group_size, batch: Some(4), updates: 6, warmup: 2, ..standard(system.name) };
        let report = run(&config);
        assert_eq!(report, run(&config), "{}", system.name);
        assert!(report.tokens_per_second > 0.0 && report.updates == 4, "{}: {report:?}", system.name);
    }
}

#[test]
fn a_synchronous_run_takes_the_sum_of_both_and_one_step_the_longer() {
    let mut sync = standard("sync");
    sync.lengths.prompt_sigma = 0.0;
    sync.lengths.within_sigma = 0.0;
    sync.costs.train_seconds_per_token = 1e-3;
    // 3000 steps of 20 ms + 32 * 0.2 ms, then 768,000 tokens over 8 devices.
    let generate = 3000.0 * (0.02 + 32.0 * 0.0002);
    let learn = 768_000.0 * 1e-3 / 8.0;
    let report = run(&sync);
    assert!((report.seconds_per_update - generate - learn).abs() < 0.01, "{report:?}");
    assert_eq!(report.old_fraction, 0.0);
    let mut one_step = SimulateConfig { system: "one_step".into(), ..sync };
    one_step.devices.total = 16;
    one_step.devices.trainers = 8;
    let report = run(&one_step);
    assert!((report.seconds_per_update - generate.max(learn)).abs() < 0.01, "{report:?}");
    assert_eq!((report.lag_max, report.old_fraction), (1, 1.0));
    assert!(report.overlap_efficiency > 0.999);
}

fn april(sigma: f64, submit: u64) -> (SimulationReport, SimulationReport) {
    let mut sync = standard("sync");
    sync.lengths.prompt_sigma = sigma;
    sync.lengths.within_sigma = sigma / 3.0;
    sync.lengths.cap = 8192;
    sync.engine.slots = Some(16);
    sync.engine.step_seconds = 0.01;
    sync.engine.sequence_seconds = 0.001;
    let april = SimulateConfig {
        system: "april".into(),
        schedule: schedule(&format!("round_end = {{ rule = \"groups\", submit = {submit} }}")),
        ..sync.clone()
    };
    (run(&sync), run(&april))
}

#[test]
fn april_gains_about_a_quarter_with_long_tails_and_nothing_without() {
    let (sync, april_2n) = april(0.6, 64);
    let gain = april_2n.tokens_per_second / sync.tokens_per_second;
    println!("april, 2N: {gain:.3}, old {:.3}, lag {:.2}", april_2n.old_fraction, april_2n.lag_mean);
    let (_, april_15n) = april(0.6, 48);
    let gain_15 = april_15n.tokens_per_second / sync.tokens_per_second;
    println!("april, 1.5N: {gain_15:.3}, old {:.3}, lag {:.2}", april_15n.old_fraction, april_15n.lag_mean);
    let (sync, april_flat) = april(0.0, 32);
    let flat = april_flat.tokens_per_second / sync.tokens_per_second;
    println!("april, flat, N: {flat:.3}");
    let (sync, april_flat) = april(0.0, 64);
    println!("april, flat, 2N: {:.3}", april_flat.tokens_per_second / sync.tokens_per_second);
}

#[test]
fn areal_against_synchronous() {
    for (name, prompt, cap, expected) in [("mild", 0.6, 8192, 1.43), ("heavy", 0.9, 32_768, 3.5)] {
        let mut sync = standard("sync");
        sync.lengths.prompt_sigma = prompt;
        sync.lengths.cap = cap;
        sync.devices.total = 16;
        sync.devices.trainers = 4;
        sync.costs.train_seconds_per_token = 16.0 * 40e-6;
        let base = run(&sync);
        for lead in [0, 1, 2, 4, 8] {
            let areal = SimulateConfig {
                system: "areal".into(),
                schedule: schedule(&format!("admission.lead = {lead}\nconsume.max_head_lag = 99")),
                ..sync.clone()
            };
            let report = run(&areal);
            println!(
                "areal {name} eta {lead}: {:.2} (expected {expected}) lag {:.2} max {} busy {:.2} {:.2}",
                report.tokens_per_second / base.tokens_per_second,
                report.lag_mean,
                report.lag_max,
                report.generation_busy,
                report.learning_busy
            );
        }
    }
}

#[test]
fn k1_5_and_k3() {
    let base = run(&standard("sync"));
    for tokens in [8192, 2048] {
        let config = SimulateConfig {
            schedule: schedule(&format!("round_end = {{ rule = \"budget\", tokens = {tokens} }}")),
            updates: 80,
            ..standard("kimi_k1_5")
        };
        let report = run(&config);
        println!(
            "k1.5 C {tokens}: iteration {:.2}, throughput {:.2}, old {:.2}, lag max {}",
            report.seconds_per_update / base.seconds_per_update,
            report.tokens_per_second / base.tokens_per_second,
            report.old_fraction,
            report.lag_max
        );
    }
    for (lambda, mode) in [(0.9, "reprefill"), (0.7, "reprefill"), (0.9, "keep_kv"), (0.7, "keep_kv")] {
        let config = SimulateConfig {
            schedule: schedule(&format!(
                "round_end = {{ rule = \"fraction\", lambda = {lambda} }}\nresume = {{ mode = \"{mode}\" }}"
            )),
            updates: 80,
            ..standard("kimi_k3")
        };
        let report = run(&config);
        println!(
            "k3 {lambda} {mode}: iteration {:.2}, throughput {:.2}, old {:.2}, lag max {}",
            report.seconds_per_update / base.seconds_per_update,
            report.tokens_per_second / base.tokens_per_second,
            report.old_fraction,
            report.lag_max
        );
    }
}

#[test]
fn dispatch_by_sample_prompt_and_batch() {
    for unit in ["{ unit = \"sample\" }", "{ unit = \"prompt\" }", "{ unit = \"batch\", groups = 16 }"] {
        let config = SimulateConfig {
            batch: Some(16),
            schedule: schedule(&format!("dispatch = {unit}\nconsume = {{ mask = {{ rule = \"none\" }} }}")),
            updates: 60,
            ..standard("deepseek_v4_1")
        };
        let report = run(&config);
        println!(
            "{unit}: live/C {:.3}, first {:.0}, steady {:.0}",
            report.live_mean / 512.0,
            report.first_batch_mean_length,
            report.mean_length
        );
    }
}

#[test]
fn mixer() {
    let source = |quota: u64, weight: f64| {
        format!("[[sources]]\nname = \"s{quota}{weight}\"\nquota = {quota}\nweight = {weight}\n")
    };
    let mixed = format!("{}{}{}{}", source(16, 0.4), source(8, 0.2), source(8, 0.2), source(8, 0.2));
    for (label, text) in [
        ("mixer", mixed.clone()),
        (
            "naive",
            format!(
                "dispatch = {{ unit = \"sample\" }}\n{}",
                mixed.lines().filter(|l| !l.starts_with("quota")).collect::<Vec<_>>().join("\n")
            ),
        ),
    ] {
        let mut config = SimulateConfig {
            batch: Some(40),
            schedule: schedule(&text),
            updates: 60,
            ..standard("mimo_v2_6")
        };
        config.lengths = LengthConfig {
            median: 500.0,
            sources: [(1.0, 0.9), (5.0, 0.5), (20.0, 0.3), (2.0, 0.8)]
                .map(|(length, acceptance)| SourceModel { length, acceptance })
                .to_vec(),
            ..LengthConfig::default()
        };
        let report = run(&config);
        let all: u64 = report.consumed_by_source.iter().sum();
        let shares: Vec<f64> = report.consumed_by_source.iter().map(|&n| n as f64 / all as f64).collect();
        println!(
            "{label}: {shares:.3?}, {:.0} tokens/s, {:.1} s/update",
            report.tokens_per_second, report.seconds_per_update
        );
    }
    let _ = FlowSettings::default();
}
