//! The trace of a run: every event that its scheduler was told and every command that it gave, as JSON lines.
//!
//! A trace is written while a run goes on ([`TraceWriter`]) and read again afterwards ([`TraceReader`]): to replay it
//! through the scheduler ([`replay()`]), which must give the same commands, and to fit the simulator's models to it. The
//! first line is a header with the format's version, the number of engines and the scheduler as it was, so that a run
//! that goes on from a checkpoint can be replayed as well; each further line is one [`TraceEntry`]:
//!
//! ```text
//! {"trace":1,"engines":2,"scheduler":{...}}
//! {"at":0.0,"event":{"event":"started"},"commands":[{"command":"load","version":0}, ...]}
//! {"at":9.5,"engine":0,"statistics":{"alone":{"steps":120, ...}, ...}}
//! {"at":9.6,"update":{"version":1,"tokens":4096, ...}}
//! ```
//!
//! A run that goes on appends a header of its own, which begins another part. Invariants:
//!
//! - Memory is bounded by one line, whatever the length of the run; each line is written whole, in one piece.
//! - Numbers come back as they were, so that a replay is exact.
//! - A run that is killed leaves at most its last line cut. A reader leaves that one out and says so; a line that is cut
//!   or unreadable anywhere else is an error that names it.

mod entry;
mod error;
mod reader;
mod replay;
mod statistics;
mod writer;

pub use entry::{TraceEntry, TraceHeader, TraceLine};
pub use error::TraceError;
pub use reader::TraceReader;
pub use replay::{Difference, Replay, replay};
pub use statistics::{EngineStatistics, StepSums, UpdateStatistics};
pub use writer::TraceWriter;

/// Version of the format.
pub const TRACE_VERSION: u32 = 1;

/// Name of a trace in a run directory.
pub const TRACE_FILE: &str = "trace.jsonl";

#[cfg(test)]
mod tests;
