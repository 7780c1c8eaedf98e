//! When groups are dispatched, under which version they are generated, and when their budget comes back: rollout
//! scheduling as a pure state machine; and how much work a step holds ([`Balance`]).
//!
//! No clock, channel, generator or tensor is known here. A driver tells [`Scheduler::on`] what happened and carries
//! out the commands that come back; commands name groups and versions only. Invariants:
//!
//! - with `lead` η and B groups a batch, the n-th group (from 1, counting what was not given back) is dispatched only
//!   when ⌊(n − 1) / B⌋ ≤ version + η;
//! - a group that was rejected or discarded gives its place back, so the pool cannot drain;
//! - versions that generators are told to load never go backwards.
//!
//! That is the scheduler of groups, which drives token runs. Beside it stands the scheduler of trajectories that is to
//! take its place: [`flow`] follows any point of the space that [`axes`] span, and [`systems`] are points of it. It
//! takes the same decisions at the points that [`ScheduleConfig`] can name, and drives the simulator.

mod admission;
pub mod axes;
mod balance;
mod check;
mod config;
pub mod flow;
mod lags;
mod scheduler;
pub mod systems;
pub mod trace;

pub use admission::Admission;
pub use balance::{Automatic, Balance, Bounds, MARGIN, Work};
pub use check::{ScheduleContext, ScheduleContradiction};
pub use config::{KvResume, ScheduleConfig};
pub use lags::Lags;
pub use scheduler::{Command, Event, Scheduler, SchedulerSettings};
