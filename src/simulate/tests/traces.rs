//! Traces of simulations, replayed.

use std::io::BufReader;
use std::path::Path;

use super::*;
use crate::schedule::flow::{FlowCommand, FlowScheduler};
use crate::schedule::trace::{TraceEntry, TraceLine, TraceReader, TraceWriter, UpdateStatistics, replay};

fn traced(config: &SimulateConfig, path: &Path) -> SimulationReport {
    simulate_schedule(config, config.settings().unwrap(), Some(path)).unwrap()
}

#[test]
fn every_system_says_the_same_when_it_is_told_the_same() {
    let folder = folder("replay");
    for system in SYSTEMS {
        let path = folder.join(system.name);
        // Memory that throttles, so that loads are among the events.
        let mut config = small(system.name);
        config.engine.kv_tokens = Some(40_000);
        let report = traced(&config, &path);
        assert_eq!(report, run(&config), "a trace changes nothing");
        let replayed = replay(TraceReader::open(&path).unwrap()).unwrap();
        assert_eq!(replayed.difference, None, "{}", system.name);
        assert_eq!((replayed.version, replayed.parts, replayed.cut), (config.updates, 1, false));
        assert!(replayed.ledger.balances());
        assert_eq!(replayed.ledger.consumed, report.consumed);
        assert_eq!(replayed.events["published"], config.updates);
        assert_eq!(replayed.update_lines, config.updates);
        let throttled = config.settings().unwrap().admission.throttle.is_some();
        assert_eq!(replayed.events.contains_key("load"), throttled, "{}", system.name);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn one_changed_command_is_found_at_its_line() {
    const RESUME: &str = "\"command\":\"resume\"";
    let folder = folder("flipped");
    let path = folder.join("trace.jsonl");
    traced(&small("april"), &path);
    let text = std::fs::read_to_string(&path).unwrap();
    let (index, line) = text.lines().enumerate().find(|(_, line)| line.contains(RESUME)).unwrap();
    let changed = text.replacen(line, &line.replacen(RESUME, "\"command\":\"restart\"", 1), 1);
    let replayed = replay(TraceReader::new(changed.as_bytes(), &path)).unwrap();
    let difference = replayed.difference.unwrap();
    assert_eq!(difference.line, index as u64 + 1);
    assert!(difference.expected.iter().any(|command| matches!(command, FlowCommand::Restart { .. })));
    assert!(!difference.found.iter().any(|command| matches!(command, FlowCommand::Restart { .. })));
    assert_eq!(difference.expected.len(), difference.found.len());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_run_that_went_on_from_a_checkpoint_replays_from_the_scheduler_in_its_header() {
    let folder = folder("resumed");
    let path = folder.join("trace.jsonl");
    traced(&small("kimi_k3"), &path);
    let lines: Vec<TraceLine> = TraceReader::open(&path).unwrap().map(|line| line.unwrap().1).collect();
    let TraceLine::Header(header) = &lines[0] else { panic!("{:?}", lines[0]) };
    let mut scheduler: FlowScheduler = header.scheduler.clone();
    let mut written = TraceWriter::new(Vec::new(), &path, &scheduler, 1).unwrap();
    for (index, line) in lines.iter().enumerate() {
        if index == lines.len() / 2 {
            // A second part, as a run that goes on writes it.
            let first = written.into_inner();
            written = TraceWriter::new(first, &path, &scheduler, 1).unwrap();
        }
        if let TraceLine::Entry(TraceEntry::Decision { at, event, commands }) = line {
            written.decision(*at, event, commands).unwrap();
            scheduler.on(event.clone(), *at);
        }
    }
    let bytes = written.into_inner();
    let replayed = replay(TraceReader::new(BufReader::new(bytes.as_slice()), &path)).unwrap();
    assert_eq!((replayed.parts, replayed.difference), (2, None));
    assert_eq!(replayed.ledger, scheduler.ledger());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_tells_of_every_update_and_of_every_second_of_every_engine() {
    let folder = folder("sums");
    let path = folder.join("trace.jsonl");
    let mut config = SimulateConfig { warmup: 0, ..small("areal") };
    (config.devices.total, config.devices.trainers) = (3, 1);
    config.devices.placement = Placement::LeastLoaded;
    config.costs = CostConfig { train_seconds_per_token: 0.01, sync_seconds: 2.0, ..CostConfig::default() };
    let report = traced(&config, &path);
    let mut updates: Vec<UpdateStatistics> = Vec::new();
    let mut seconds = [0.0; 2];
    for line in TraceReader::open(&path).unwrap() {
        match line.unwrap().1 {
            TraceLine::Entry(TraceEntry::Update { update, .. }) => updates.push(update),
            TraceLine::Entry(TraceEntry::Engine { engine, statistics, .. }) => {
                let of = &*statistics;
                seconds[engine] += of.alone.seconds + of.beside.seconds;
                seconds[engine] += of.prefill_seconds + of.load_seconds + of.idle_seconds;
                assert_eq!(of.sampled, of.alone.sequences + of.beside.sequences);
            }
            TraceLine::Header(header) => assert_eq!(header.engines, 2),
            TraceLine::Entry(TraceEntry::Decision { .. }) => {}
        }
    }
    let tokens: u64 = updates.iter().map(|update| update.tokens).sum();
    assert_eq!((updates.len() as u64, tokens), (config.updates, report.trained_tokens));
    assert!(updates.iter().zip(1..).all(|(update, version)| update.version == version));
    let learned: f64 = updates.iter().map(|update| update.learning_seconds).sum();
    assert!((learned - report.learning_busy * report.seconds).abs() < 1e-6);
    for of in seconds {
        // Steps are counted when they are whole.
        assert!((of - report.seconds).abs() < 3.0, "{of} of {} seconds", report.seconds);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
