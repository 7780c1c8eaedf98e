//! `forebay replay`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::schedule::flow::FlowCommand;
use crate::schedule::trace::{Replay, TraceReader, replay};

/// Arguments of `forebay replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A trace, or a run directory that has one (`trace.jsonl`)
    trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let replay = replay(TraceReader::open(&args.trace)?)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&replay)?);
    } else {
        print!("{}", shown(&replay)?);
    }
    if replay.cut {
        eprintln!("warning: the last line is cut, as a killed run leaves it, and was left out");
    }
    Ok(if replay.difference.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn shown(replay: &Replay) -> anyhow::Result<String> {
    let counts = |counts: &BTreeMap<&str, u64>| {
        let all: u64 = counts.values().sum();
        let each: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!("{all}  ({})", each.join(", "))
    };
    let ledger = &replay.ledger;
    let dropped: Vec<String> = ledger
        .dropped
        .iter()
        .map(|(cause, count)| Ok(format!("{} {count}", serde_json::to_value(cause)?.as_str().unwrap_or("?"))))
        .collect::<Result<_, serde_json::Error>>()?;
    let dropped = if dropped.is_empty() { String::new() } else { format!(" ({})", dropped.join(", ")) };
    let parts = if replay.parts > 1 { format!("parts     {}\n", replay.parts) } else { String::new() };
    let mut text = format!(
        "{parts}events    {}\ncommands  {}\nupdates   {}\nledger    submitted {} = live {} + paused {} + buffered {} + \
         consumed {} + dropped {}{dropped}\n",
        counts(&replay.events),
        counts(&replay.commands),
        replay.version,
        ledger.submitted,
        ledger.live,
        ledger.paused,
        ledger.buffered,
        ledger.consumed,
        ledger.dropped_in_all(),
    );
    let Some(difference) = &replay.difference else { return Ok(text + "every command is the same\n") };
    let (expected, found) = (&difference.expected, &difference.found);
    let alike = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
    let _ = writeln!(
        text,
        "line {} differs: on {}, from command {} on\n  the run said  {}\n  now it says   {}",
        difference.line,
        serde_json::to_string(&difference.event)?,
        alike + 1,
        some_of(&expected[alike..])?,
        some_of(&found[alike..])?,
    );
    Ok(text)
}

/// The first commands of some.
fn some_of(commands: &[FlowCommand]) -> serde_json::Result<String> {
    const SHOWN: usize = 4;
    let mut text = serde_json::to_string(&commands[..commands.len().min(SHOWN)])?;
    if commands.len() > SHOWN {
        let _ = write!(text, " and {} more", commands.len() - SHOWN);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::flow::{FlowEvent, FlowScheduler};
    use crate::schedule::systems::System;
    use crate::schedule::trace::TraceWriter;

    /// A trace of a scheduler's first decision, in which the first command may be another.
    fn replayed(changed: bool) -> Replay {
        let mut scheduler = FlowScheduler::new(System::named("sync").unwrap().sized(2, 2));
        let path = PathBuf::from("a trace");
        let mut writer = TraceWriter::new(Vec::new(), &path, &scheduler, 1).unwrap();
        let mut commands = scheduler.on(FlowEvent::Started, 0.0);
        if changed {
            commands[0] = FlowCommand::Load { version: 7 };
        }
        writer.decision(0.0, &FlowEvent::Started, &commands).unwrap();
        replay(TraceReader::new(writer.into_inner().as_slice(), &path)).unwrap()
    }

    #[test]
    fn a_replay_is_told_with_its_counts_and_its_ledger() {
        let text = shown(&replayed(false)).unwrap();
        assert!(text.starts_with("events    1  (started 1)\ncommands  3  (launch 2, load 1)\n"), "{text}");
        assert!(text.contains("submitted 4 = live 4 + paused 0 +"), "{text}");
        assert!(text.ends_with("every command is the same\n"), "{text}");
    }

    #[test]
    fn a_difference_is_told_with_its_line_and_both_answers() {
        let text = shown(&replayed(true)).unwrap();
        assert!(text.contains("line 2 differs: on {\"event\":\"started\"}, from command 1 on"), "{text}");
        assert!(text.contains("the run said  [{\"command\":\"load\",\"version\":7}"), "{text}");
        assert!(text.contains("now it says   [{\"command\":\"load\",\"version\":0}"), "{text}");
    }
}
