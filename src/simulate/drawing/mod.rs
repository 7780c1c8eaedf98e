//! Simulations as drawings: engines, learner and lags over time ([`render_timelines`]), and what changes with a field
//! ([`render_sweep`]).
//!
//! A drawing is one SVG without script or style from outside, so that it can stand in a page or on its own.

mod axis;
mod shapes;
mod sweep;
mod timeline;

pub use sweep::{Sweep, render as render_sweep};
pub use timeline::render as render_timelines;
