//! Properties that hold for every objective, on random batches with holes; what is refused; what never runs; critics.

mod counted;
mod critic;
mod fixture;
mod properties;
mod reductions;
mod refusals;
mod told;
