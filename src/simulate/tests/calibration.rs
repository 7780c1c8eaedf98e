//! Models fitted to traces of simulations are those that were simulated.

use super::*;

/// Two cores that generation and learning share.
fn machine(system: &str) -> SimulateConfig {
    SimulateConfig {
        batch: Some(8),
        group_size: Some(4),
        updates: 120,
        warmup: 0,
        devices: DeviceConfig { total: 1, shared: true, ..DeviceConfig::default() },
        engine: EngineModel {
            step_seconds: 0.004,
            sequence_seconds: 0.0007,
            prefill_seconds: 0.0001,
            ..EngineModel::default()
        },
        lengths: LengthConfig {
            median: 60.0,
            prompt_sigma: 0.5,
            within_sigma: 0.4,
            cap: 600,
            prompt_tokens: 20,
            sources: vec![SourceModel { acceptance: 0.8, ..SourceModel::default() }],
            ..LengthConfig::default()
        },
        costs: CostConfig {
            train_seconds_per_token: 0.0005,
            update_seconds: 0.2,
            sync_seconds: 0.05,
            grading_seconds: 0.01,
        },
        contention: ContentionConfig { generation: 1.8, learning: 1.6 },
        ..standard(system)
    }
}

fn trace(system: &str, folder: &std::path::Path) -> PathBuf {
    let run = folder.join(system);
    std::fs::create_dir_all(&run).unwrap();
    let config = machine(system);
    let path = run.join(crate::schedule::trace::TRACE_FILE);
    simulate_schedule(&config, config.settings().unwrap(), Some(&path)).unwrap();
    run
}

fn within(name: &str, found: f64, expected: f64, tolerance: f64) {
    println!("{name}: {found:.6}, simulated with {expected}");
    assert!((found / expected - 1.0).abs() <= tolerance, "{name} is {found}, not {expected}");
}

#[test]
fn what_was_simulated_is_fitted_again_and_other_schedules_are_predicted() {
    let folder = folder("calibrate");
    let runs = ["sync", "areal"].map(|system| trace(system, &folder));
    let (base, true_model) = (SimulateConfig::default(), machine("sync"));
    let calibration = calibrate(&base, &runs).unwrap();
    let (found, expected) = (&calibration.config, &true_model);
    assert_eq!((found.devices.total, found.devices.shared), (1, true));
    for (name, found, expected) in [
        ("t0", found.engine.step_seconds, expected.engine.step_seconds),
        ("t1", found.engine.sequence_seconds, expected.engine.sequence_seconds),
        ("prefill", found.engine.prefill_seconds, expected.engine.prefill_seconds),
        ("train", found.costs.train_seconds_per_token, expected.costs.train_seconds_per_token),
        ("update", found.costs.update_seconds, expected.costs.update_seconds),
        ("sync", found.costs.sync_seconds, expected.costs.sync_seconds),
        ("grading", found.costs.grading_seconds, expected.costs.grading_seconds),
        ("generation", found.contention.generation, expected.contention.generation),
        ("learning", found.contention.learning, expected.contention.learning),
    ] {
        within(name, found, expected, 0.02);
    }
    within("median", found.lengths.median, 60.0, 0.05);
    within("prompt sigma", found.lengths.prompt_sigma, 0.5, 0.1);
    within("within sigma", found.lengths.within_sigma, 0.4, 0.05);
    within("acceptance", found.lengths.sources[0].acceptance, 0.8, 0.05);
    assert_eq!(found.lengths.prompt_tokens, 20);
    for run in &runs {
        let agreement = calibration.predict(run, true).unwrap();
        within("a run that was fitted", agreement.predicted, agreement.measured, 0.08);
        assert_eq!(agreement.updates, 120);
    }
    for system in ["one_step", "april", "kimi_k3", "kimi_k1_5"] {
        let agreement = calibration.predict(&trace(system, &folder), false).unwrap();
        within(system, agreement.predicted, agreement.measured, 0.08);
        assert!((agreement.error - (agreement.predicted / agreement.measured - 1.0)).abs() < 1e-12);
        assert_eq!(agreement.report.system, system, "named by its directory");
    }
    let lines = calibration.lengths_file();
    assert!(lines.lines().all(|line| line.split(' ').count() == 4), "whole groups");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn runs_in_turns_alone_say_nothing_of_contention_and_decoupled_ones_alone_take_it_as_given() {
    let folder = folder("calibrate-one");
    let base = SimulateConfig::default();
    let turns = calibrate(&base, &[trace("sync", &folder)]).unwrap();
    assert_eq!(turns.config.contention, ContentionConfig::default());
    let both = calibrate(&base, &[trace("one_step", &folder)]).unwrap();
    within("steps while the learner is free", both.config.engine.step_seconds, 0.004, 0.01);
    within("beside the learner", both.config.contention.generation, 1.8, 0.01);
    assert_eq!(both.config.contention.learning, 1.0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn lengths_that_were_cut_are_fitted_by_their_lower_half() {
    let folder = folder("calibrate-cut");
    let path = folder.join("cut.jsonl");
    let mut config = machine("sync");
    config.lengths.cap = 90;
    simulate_schedule(&config, config.settings().unwrap(), Some(&path)).unwrap();
    let fitted = calibrate(&SimulateConfig::default(), &[path]).unwrap().config.lengths;
    assert_eq!(fitted.cap, 90);
    within("median", fitted.median, 60.0, 0.05);
    let spread = fitted.prompt_sigma.hypot(fitted.within_sigma);
    within("spread", spread, 0.5_f64.hypot(0.4), 0.1);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn runs_that_nothing_can_be_fitted_to_are_named() {
    let folder = folder("calibrate-wrong");
    let run = trace("sync", &folder);
    let text = std::fs::read_to_string(run.join("trace.jsonl")).unwrap();
    let with = |text: &str| {
        let path = folder.join("other.jsonl");
        std::fs::write(&path, text).unwrap();
        calibrate(&SimulateConfig::default(), &[run.clone(), path]).unwrap_err().to_string()
    };
    let header = text.lines().next().unwrap().to_owned() + "\n";
    for (text, why) in [
        (header.clone(), "has no updates"),
        (header.replacen("\"version\":0", "\"version\":3", 1), "begins at a checkpoint"),
        (text.replacen("\"engines\":1", "\"engines\":2", 1), "has 2 engines and"),
        (String::new(), "no whole line"),
    ] {
        let error = with(&text);
        assert!(error.contains("other.jsonl") && error.contains(why), "{error}");
    }
    let error = calibrate(&SimulateConfig::default(), &[folder.join("none")]).unwrap_err().to_string();
    assert!(error.starts_with("cannot open "), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
