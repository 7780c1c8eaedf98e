//! Lines of a trace.

use serde::{Deserialize, Serialize};

use super::{EngineStatistics, UpdateStatistics};
use crate::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler};

/// What a part of a trace begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHeader {
    /// Version of the format, [`super::TRACE_VERSION`].
    pub trace: u32,
    /// Engines that generate.
    pub engines: usize,
    /// The scheduler before the first event, with what it follows.
    pub scheduler: FlowScheduler,
}

/// What happened, and when (seconds since the run began).
#[derive(Debug, Clone, PartialEq)]
pub enum TraceEntry {
    /// The scheduler was told something, and said what to do.
    Decision {
        /// When, as the scheduler was told.
        at: f64,
        /// What it was told.
        event: FlowEvent,
        /// What it said, in order.
        commands: Vec<FlowCommand>,
    },
    /// What an engine did since its last line.
    Engine {
        /// When.
        at: f64,
        /// Which engine, from 0.
        engine: usize,
        /// What it did.
        statistics: Box<EngineStatistics>,
    },
    /// An update was published.
    Update {
        /// When.
        at: f64,
        /// Of what it was.
        update: UpdateStatistics,
    },
}

/// A line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceLine {
    /// A part begins.
    Header(Box<TraceHeader>),
    /// Something happened.
    Entry(TraceEntry),
}

/// A line after a header, as it is written: one of three kinds, told apart by what it has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEntry {
    at: f64,
    event: Option<FlowEvent>,
    commands: Option<Vec<FlowCommand>>,
    engine: Option<usize>,
    statistics: Option<Box<EngineStatistics>>,
    update: Option<UpdateStatistics>,
}

impl RawEntry {
    /// The entry that this is; nothing when it is none of the three kinds.
    pub fn entry(self) -> Option<TraceEntry> {
        let at = self.at;
        match (self.event, self.commands, self.engine, self.statistics, self.update) {
            (Some(event), Some(commands), None, None, None) => {
                Some(TraceEntry::Decision { at, event, commands })
            }
            (None, None, Some(engine), Some(statistics), None) => {
                Some(TraceEntry::Engine { at, engine, statistics })
            }
            (None, None, None, None, Some(update)) => Some(TraceEntry::Update { at, update }),
            _ => None,
        }
    }
}
