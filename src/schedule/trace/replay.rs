//! Tells a scheduler again what it was told in a run, and compares what it says.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Serialize;

use super::{TraceEntry, TraceError, TraceLine, TraceReader};
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowLedger, FlowScheduler};

/// Where a replay says something else than the run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Line of the trace, from 1.
    pub line: u64,
    /// What the scheduler was told.
    pub event: FlowEvent,
    /// What it said in the run.
    pub expected: Vec<FlowCommand>,
    /// What it says now.
    pub found: Vec<FlowCommand>,
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Replay {
    /// Parts of the trace: one, and one more for each time that the run went on.
    pub parts: u64,
    /// Events by kind.
    pub events: BTreeMap<&'static str, u64>,
    /// Commands by kind.
    pub commands: BTreeMap<&'static str, u64>,
    /// Lines about engines.
    pub engine_lines: u64,
    /// Lines about updates.
    pub update_lines: u64,
    /// Completed updates at the end.
    pub version: u64,
    /// Every trajectory, at the end.
    pub ledger: FlowLedger,
    /// Whether the last line was cut, and left out.
    pub cut: bool,
    /// The first difference, where the replay ended.
    pub difference: Option<Difference>,
}

/// Replays a trace up to its end or to the first difference.
///
/// # Errors
/// When a line cannot be read.
pub fn replay<R: BufRead>(mut reader: TraceReader<R>) -> Result<Replay, TraceError> {
    let mut replay = Replay::default();
    let mut scheduler: Option<FlowScheduler> = None;
    for line in reader.by_ref() {
        let (line, content) = line?;
        match content {
            TraceLine::Header(header) => {
                replay.parts += 1;
                scheduler = Some(header.scheduler);
            }
            TraceLine::Entry(TraceEntry::Engine { .. }) => replay.engine_lines += 1,
            TraceLine::Entry(TraceEntry::Update { .. }) => replay.update_lines += 1,
            TraceLine::Entry(TraceEntry::Decision { at, event, commands }) => {
                let Some(scheduler) = &mut scheduler else { continue };
                *replay.events.entry(event_kind(&event)).or_default() += 1;
                for command in &commands {
                    *replay.commands.entry(command_kind(command)).or_default() += 1;
                }
                let found = scheduler.on(event.clone(), at);
                if found != commands {
                    replay.difference = Some(Difference { line, event, expected: commands, found });
                    break;
                }
            }
        }
    }
    replay.cut = reader.is_cut();
    if let Some(scheduler) = scheduler {
        (replay.version, replay.ledger) = (scheduler.version(), scheduler.ledger());
    }
    Ok(replay)
}

/// The name of an event, as a trace has it.
fn event_kind(event: &FlowEvent) -> &'static str {
    match event {
        FlowEvent::Started => "started",
        FlowEvent::Offered { .. } => "offered",
        FlowEvent::Finished { .. } => "finished",
        FlowEvent::Exhausted { .. } => "exhausted",
        FlowEvent::Lost { .. } => "lost",
        FlowEvent::Graded { .. } => "graded",
        FlowEvent::Unusable { .. } => "unusable",
        FlowEvent::Members { .. } => "members",
        FlowEvent::Published => "published",
        FlowEvent::Skipped => "skipped",
        FlowEvent::Load { .. } => "load",
        FlowEvent::Measured { .. } => "measured",
        FlowEvent::Tick => "tick",
    }
}

/// The name of a command, as a trace has it.
fn command_kind(command: &FlowCommand) -> &'static str {
    match command {
        FlowCommand::Load { .. } => "load",
        FlowCommand::Launch { .. } => "launch",
        FlowCommand::Pause { .. } => "pause",
        FlowCommand::Resume { .. } => "resume",
        FlowCommand::Restart { .. } => "restart",
        FlowCommand::Free { .. } => "free",
        FlowCommand::Grade { .. } => "grade",
        FlowCommand::Train { .. } => "train",
        FlowCommand::Drop { .. } => "drop",
    }
}
