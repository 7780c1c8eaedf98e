//! A schedule in virtual time: the same scheduler as in real runs, over models of engines, lengths and costs.
//!
//! What is simulated is when things happen, never what is generated: an answer is a length drawn from a model. Engines
//! decode all their sequences in step, a step of n sequences taking t₀ + t₁ n seconds; everything else costs seconds a
//! token or seconds each. Invariants:
//!
//! - The same configuration gives the same report, bit for bit: lengths and grades are functions of (seed, group,
//!   member).
//! - The time that a run takes depends on the number of events, not of tokens: thousands of engines take seconds.
//! - Every token that is generated is of an answer that the scheduler's ledger has.

mod calibrate;
mod config;
mod drawing;
mod driver;
mod engine;
mod lengths;
mod queue;
mod report;
#[cfg(test)]
mod tests;

pub use calibrate::{Agreement, Calibration, calibrate};
pub use config::{
    ContentionConfig, CostConfig, DeviceConfig, EngineModel, Placement, SimulateConfig, SimulateError,
};
pub use drawing::{Sweep, render_sweep, render_timelines};
pub use driver::{simulate, simulate_schedule};
pub use lengths::{LengthConfig, SourceModel};
pub use report::SimulationReport;
