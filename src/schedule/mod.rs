//! What is generated, when, under which version, and what is learned from: rollout scheduling as a pure state machine;
//! and how much work a step holds ([`Balance`]).
//!
//! [`axes`] span the space of schedules, [`systems`] are points of it with names, and [`flow`] follows any point: a
//! driver tells [`flow::FlowScheduler::on`] what happened and carries out the commands that come back. Token runs and
//! the simulator are its drivers. No clock, channel, generator or tensor is known here, and commands hold ids alone.

mod admission;
pub mod axes;
mod balance;
mod check;
mod config;
pub mod flow;
mod lags;
pub mod systems;
pub mod trace;

pub use admission::Admission;
pub use balance::{Automatic, Balance, Bounds, MARGIN, Work};
pub use check::{ScheduleContext, ScheduleContradiction};
pub use config::{AxesTable, KvResume, ScheduleConfig};
pub use lags::Lags;
