//! What a case came to.

use candle_core::{Result, Tensor};
use serde::Serialize;

use super::case::values;

/// What one case came to.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// What was checked.
    pub name: String,
    /// Whether it was as it must be.
    pub passed: bool,
    /// Largest difference from the reference, relative to the largest value, and what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<(f64, f64)>,
    /// Milliseconds of one run, and the least that memory or arithmetic allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<(f64, f64)>,
    /// Tokens a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CaseReport {
    fn new(name: String) -> Self {
        Self {
            name,
            passed: false,
            difference: None,
            milliseconds: None,
            tokens_per_second: None,
            error: None,
        }
    }

    /// From tokens a second.
    #[cfg(feature = "cuda")]
    pub(super) fn rate(name: String, outcome: Result<f64>) -> Self {
        let report = Self::new(name);
        match outcome {
            Ok(rate) => Self { passed: true, tokens_per_second: Some(rate), ..report },
            Err(error) => Self { error: Some(first_line(&error)), ..report },
        }
    }

    /// From the largest difference and what is allowed.
    pub(super) fn compared(name: String, bound: f64, outcome: Result<f64>) -> Self {
        let report = Self::new(name);
        match outcome {
            Ok(difference) => {
                Self { passed: difference <= bound, difference: Some((difference, bound)), ..report }
            }
            Err(error) => Self { error: Some(first_line(&error)), ..report },
        }
    }

    /// From the time of a run and the least that it could be, in milliseconds.
    #[cfg(feature = "cuda")]
    pub(super) fn timed(name: String, outcome: Result<(f64, f64)>) -> Self {
        let report = Self::new(name);
        match outcome {
            Ok(milliseconds) => Self { passed: true, milliseconds: Some(milliseconds), ..report },
            Err(error) => Self { error: Some(first_line(&error)), ..report },
        }
    }
}

/// Without the backtrace that candle may put behind it.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Refuses two runs that differ in a bit.
pub(super) fn check_same_bits(results: &[Tensor], again: &[Tensor]) -> Result<()> {
    let bits = |results: &[Tensor]| -> Result<Vec<u64>> {
        let all: Vec<Vec<f64>> = results.iter().map(values).collect::<Result<_>>()?;
        Ok(all.concat().into_iter().map(f64::to_bits).collect())
    };
    if bits(results)? == bits(again)? {
        Ok(())
    } else {
        Err(candle_core::Error::Msg("a second run gave other bits".into()))
    }
}
