//! The number types that the learner's mathematics is written for.

#![expect(
    clippy::inline_always,
    reason = "vector widths reach only what is inlined into the dispatched loop"
)]

use num_traits::Float;

/// `f32` in runs, `f64` in the tests that compare with independent figures.
pub trait Real: Float + Default + Send + Sync + 'static {
    /// The nearest value of this type.
    fn narrow(value: f64) -> Self;

    /// The same value in double precision.
    fn widen(self) -> f64;
}

impl Real for f32 {
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}
