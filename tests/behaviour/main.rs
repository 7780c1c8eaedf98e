//! Behaviour tests: one binary, so that its dependencies are linked once.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests do; clippy knows only the tests themselves"
)]

mod back_pressure;
mod command_line;
mod exactness;
mod faults;
mod golden;
mod lanes;
mod off_policy;
mod presets;
mod refusals;
mod resuming;
mod serial;
mod shutdown;
mod support;
mod tokens;
