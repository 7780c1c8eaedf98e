//! Properties that hold for every objective, on random batches with holes, and what is refused.

mod fixture;
mod properties;
mod refusals;
