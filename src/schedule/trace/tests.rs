//! What is written is read again as it was; what is wrong is named.

use std::path::Path;

use super::*;
use crate::schedule::axes::EngineLoad;
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, MemberId, Stretch};
use crate::schedule::systems::System;

fn scheduler() -> FlowScheduler {
    FlowScheduler::new(System::named("areal").unwrap().sized(2, 2))
}

/// A trace of a few events, and what it should be read as.
fn written() -> (Vec<u8>, Vec<TraceLine>) {
    let mut scheduler = scheduler();
    let before = scheduler.clone();
    let mut writer = TraceWriter::new(Vec::new(), Path::new("a trace"), &scheduler, 3).unwrap();
    let header = TraceHeader { trace: TRACE_VERSION, engines: 3, scheduler: before };
    let mut lines = vec![TraceLine::Header(Box::new(header))];
    let id = MemberId { group: 0, member: 1 };
    let load = EngineLoad { active: 4, kv_use: 0.1 + 0.2, preemptions: 1, queued: 2 };
    for (at, event) in [
        (0.0, FlowEvent::Started),
        (1.0 / 3.0, FlowEvent::Load { load }),
        (0.7, FlowEvent::Finished { id, stretches: vec![Stretch { version: 0, tokens: 5 }] }),
        (1e-9 + 0.7, FlowEvent::Measured { spread: 1e300 / 3.0 }),
    ] {
        let commands: Vec<FlowCommand> = scheduler.on(event.clone(), at);
        writer.decision(at, &event, &commands).unwrap();
        lines.push(TraceLine::Entry(TraceEntry::Decision { at, event, commands }));
    }
    let mut statistics = EngineStatistics { idle_seconds: 0.1, ..EngineStatistics::default() };
    statistics.step(4, 0.3, false);
    statistics.step(2, 0.2, true);
    writer.engine(0.9, 2, &statistics).unwrap();
    lines.push(TraceLine::Entry(TraceEntry::Engine { at: 0.9, engine: 2, statistics: Box::new(statistics) }));
    let update = UpdateStatistics { version: 1, tokens: 5, lag_mean: 0.1, ..UpdateStatistics::default() };
    writer.update(1.0, &update).unwrap();
    lines.push(TraceLine::Entry(TraceEntry::Update { at: 1.0, update }));
    (writer.into_inner(), lines)
}

fn reader(bytes: &[u8]) -> TraceReader<&[u8]> {
    TraceReader::new(bytes, Path::new("a trace"))
}

fn failure(bytes: &[u8]) -> String {
    let mut error = None;
    for line in reader(bytes) {
        assert!(error.is_none(), "nothing comes after an error");
        error = line.err();
    }
    error.expect("an error").to_string()
}

#[test]
fn what_is_written_is_read_again_to_the_bit() {
    let (bytes, lines) = written();
    let mut reader = reader(&bytes);
    let read: Vec<(u64, TraceLine)> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(read, (1..).zip(lines).collect::<Vec<_>>());
    assert!(!reader.is_cut());
}

#[test]
fn a_run_that_was_killed_leaves_at_most_its_last_line_cut() {
    let (bytes, lines) = written();
    for lost in [1, 2, 20] {
        let mut reader = reader(&bytes[..bytes.len() - lost]);
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), lines.len() - 1);
        assert!(reader.is_cut(), "without its last {lost} bytes");
    }
}

#[test]
fn a_line_that_is_cut_elsewhere_is_an_error_that_names_it() {
    let (bytes, _) = written();
    let text = String::from_utf8(bytes).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = &lines[2][..30];
    let error = failure((lines.join("\n") + "\n").as_bytes());
    assert!(error.starts_with("a trace, line 3: EOF while parsing"), "{error}");
    let header = text.lines().next().unwrap();
    for (second, why) in [
        ("{\"at\":1.0}", "line 2: has neither `event`"),
        ("{\"at\":1.0,\"event\":{\"event\":\"tick\"}}", "line 2: has neither `event`"),
        ("{\"at\":1.0,\"evnt\":3}", "line 2: unknown field `evnt`"),
        ("{\"trace\":9,\"anything\":[]}", "line 2: a trace of version 9, and this program reads version 1"),
    ] {
        let error = failure(format!("{header}\n{second}\n").as_bytes());
        assert!(error.contains(why), "{error}");
    }
    for (bytes, why) in [
        ("", "no whole line"),
        ("{\"trace\":1", "no whole line"),
        ("{\"updates\":3}\n", "line 1: not a trace"),
        ("{\"trace\":2,\"engines\":1}\n", "line 1: a trace of version 2"),
        ("{\"trace\":1,\"engines\":1}\n", "line 1: missing field `scheduler`"),
    ] {
        let error = failure(bytes.as_bytes());
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_run_that_goes_on_appends_a_part_after_its_last_whole_line() {
    let folder = std::env::temp_dir().join(format!("forebay-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(TRACE_FILE);
    let (bytes, lines) = written();
    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let mut writer = TraceWriter::append(&path, &scheduler(), 1).unwrap();
    writer.update(2.0, &UpdateStatistics::default()).unwrap();
    drop(writer);
    let read: Vec<TraceLine> =
        TraceReader::open(&folder).unwrap().map(|line| line.map(|(_, line)| line).unwrap()).collect();
    assert_eq!(read.len(), lines.len() - 1 + 2);
    let is_header = |line: &TraceLine| matches!(line, TraceLine::Header(_));
    assert!(is_header(&read[0]) && is_header(&read[lines.len() - 1]));
    // A new trace takes its place.
    TraceWriter::create(&path, &scheduler(), 1).unwrap();
    assert_eq!(TraceReader::open(&path).unwrap().count(), 1);
    TraceWriter::append(&folder.join("other"), &scheduler(), 1).unwrap();
    assert_eq!(TraceReader::open(&folder.join("other")).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
    let error = TraceReader::open(&path).unwrap_err().to_string();
    assert!(error.starts_with("cannot open ") && error.contains(TRACE_FILE), "{error}");
}
