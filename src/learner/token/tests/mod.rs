//! Properties that hold for every objective, on random batches with holes; what is refused; what never runs.

mod counted;
mod fixture;
mod properties;
mod refusals;
