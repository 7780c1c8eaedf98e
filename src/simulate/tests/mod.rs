//! The simulator as a whole: what systems are known for, memory, traces and calibration, and what is refused.

mod calibration;
mod faults;
mod memory;
mod systems;
mod traces;

use std::path::PathBuf;

use super::*;
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::SYSTEMS;

fn run(config: &SimulateConfig) -> SimulationReport {
    simulate(config).unwrap_or_else(|error| panic!("{}: {error}", config.system))
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
        updates: 60,
        warmup: 20,
        ..SimulateConfig::default()
    }
}

fn near(what: &str, found: f64, expected: f64) {
    println!("{what}: {found:.3}, expected {expected}");
    assert!((found / expected - 1.0).abs() <= 0.15, "{what} is {found:.3}, not {expected} within 15 %");
}

fn share(what: &str, found: f64, expected: f64) {
    println!("{what}: {:.1} %, expected {:.0} %", 100.0 * found, 100.0 * expected);
    assert!((found - expected).abs() <= 0.05, "{what} is {found:.3}, not {expected} within 5 points");
}

/// A folder of one test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("forebay-simulate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A small simulation of a system, quick enough to be traced whole.
fn small(system: &str) -> SimulateConfig {
    let own: FlowSettings = crate::schedule::systems::System::named(system).unwrap().settings();
    SimulateConfig {
        batch: Some(4),
        group_size: Some(own.group_size.min(4)),
        updates: 6,
        warmup: 2,
        ..standard(system)
    }
}

#[test]
fn the_same_configuration_gives_the_same_report() {
    for system in SYSTEMS {
        let config = small(system.name);
        let report = run(&config);
        assert_eq!(report, run(&config), "{}", system.name);
        assert!(report.tokens_per_second > 0.0 && report.updates == 4, "{}: {report:?}", system.name);
    }
}

#[test]
fn a_wrong_configuration_says_what_to_change() {
    let error = |change: fn(&mut SimulateConfig)| {
        let mut config = standard("areal");
        change(&mut config);
        simulate(&config).err().map(|error| error.to_string()).unwrap()
    };
    for (found, expected) in [
        (error(|c| c.system = "arael".into()), "unknown system `arael`; there are: sync"),
        (error(|c| c.schedule = schedule("leed = 3")), "unknown field `leed`"),
        (
            error(|c| c.schedule = schedule("admission = { lead = -1 }")),
            "`schedule.admission.lead`: invalid value: integer `-1`",
        ),
        (error(|c| c.schedule = schedule("layout = \"colocated\"")), "`layout`, `round_end.rule`"),
        (error(|c| c.devices.trainers = 8), "`devices.trainers`: must leave at least one"),
        (error(|c| c.warmup = 60), "`warmup`: must be fewer"),
        (error(|c| c.engine.step_seconds = 0.0), "`engine.step_seconds`: must be a positive number"),
        (error(|c| c.costs.sync_seconds = -1.0), "`costs.sync_seconds`"),
        (error(|c| c.engine.kv_tokens = Some(32_768)), "`engine.kv_tokens`: must be more than"),
        (error(|c| c.engine.observe_seconds = 0.0), "`engine.observe_seconds`: must be a positive number"),
        (error(|c| c.contention.learning = f64::NAN), "`contention.learning`: must be a positive number"),
        (error(|c| c.lengths.median = 0.0), "`lengths.median`"),
        (error(|c| c.lengths.recorded = Some("/nowhere".into())), "`lengths.recorded`: cannot read /nowhere"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
}
