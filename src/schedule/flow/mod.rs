//! The scheduler of trajectories: one pure state machine that every system is a setting of.
//!
//! A driver tells [`FlowScheduler::on`] what happened and when, and carries out the commands that come back, in order.
//! Commands hold ids alone; tokens, caches and routing stay with the driver. Neither clock, channel, generator nor
//! tensor is known here, and the whole state can be saved and compared. Invariants, whatever the settings:
//!
//! - A trajectory is learned from at most once, or dropped with a reason: submitted = live + paused + buffered +
//!   consumed + dropped ([`FlowLedger`]).
//! - Groups stay whole: a batch has all members of each of its groups, and no group is in two batches.
//! - A group that was dropped gives its place back, so the pool cannot drain.
//! - What was paused goes on before anything new starts. Where places are counted, those in flight never exceed them.
//! - Versions that generators are told to load never go backwards.
//! - While a schedule that takes turns learns, nothing generates.

mod batch;
mod figures;
mod group;
mod ledger;
mod message;
mod round;
mod scheduler;
mod settings;
mod short;
mod start;
#[cfg(test)]
mod tests;
mod weights;

pub use ledger::FlowLedger;
pub use message::{DropCause, FlowCommand, FlowEvent, MemberId, Stretch};
pub use scheduler::FlowScheduler;
pub use settings::FlowSettings;
