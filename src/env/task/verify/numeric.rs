//! The answer is a number.

use serde::{Deserialize, Deserializer};

use super::number::{Number, last_number, whole_number};
use super::{GradeError, Verifier, score};
use crate::env::task::Rational;

/// Which number of a reply counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// The last one.
    #[default]
    Last,
    /// The reply as a whole has to be a number.
    Whole,
}

/// Right when the reply's number differs from the reference by at most the tolerance, compared as exact fractions. The
/// reference is a number, or text whose last number counts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Numeric {
    /// Which number of the reply counts.
    pub read: Reading,
    /// Allowed difference, not negative. It is taken as the decimal number written: 0.1 is exactly a tenth.
    #[serde(deserialize_with = "tolerance")]
    pub tolerance: f64,
}

fn tolerance<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if value >= 0.0 && exact(value).is_some() {
        return Ok(value);
    }
    Err(serde::de::Error::custom(format!("tolerance is {value}; give a finite number of at least 0")))
}

/// The decimal number that is written as `value`.
fn exact(value: f64) -> Option<Rational> {
    whole_number(&format!("{value:e}"))?.exact()
}

impl Verifier for Numeric {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        let expected = whole_number(reference).or_else(|| last_number(reference)).filter(Number::is_exact);
        let expected = expected.ok_or_else(|| {
            GradeError::Reference(format!("`{reference}` has no number that can be compared"))
        })?;
        let tolerance = exact(self.tolerance)
            .ok_or_else(|| GradeError::Verifier(format!("tolerance is {}", self.tolerance)))?;
        let found = match self.read {
            Reading::Last => last_number(reply),
            Reading::Whole => whole_number(reply),
        };
        Ok(score(found.is_some_and(|found| found.equals(&expected, tolerance))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_asked_for_is_compared_exactly() {
        let last = Numeric::default();
        let whole = Numeric { read: Reading::Whole, ..last };
        for (reference, reply, by_last, by_whole) in [
            ("42", "42", 1.0, 1.0),
            ("42", "The answer is 42.", 1.0, 0.0),
            ("42", "42, not 43", 0.0, 0.0),
            ("1,000", "1000.0", 1.0, 1.0),
            ("0.75", "3/4", 1.0, 1.0),
            ("75%", "0.75", 1.0, 1.0),
            ("-5", "5", 0.0, 0.0),
            ("12 + 30 = #### 42", "42", 1.0, 1.0),
            ("42", "", 0.0, 0.0),
            ("42", "forty-two", 0.0, 0.0),
        ] {
            assert_eq!(last.verify(reference, reply), Ok(by_last), "last {reference} {reply}");
            assert_eq!(whole.verify(reference, reply), Ok(by_whole), "whole {reference} {reply}");
        }
    }

    #[test]
    fn a_tolerance_is_the_decimal_that_was_written() {
        let near = Numeric { tolerance: 0.1, ..Numeric::default() };
        assert_eq!(near.verify("0.2", "0.3"), Ok(1.0));
        assert_eq!(near.verify("0.2", "0.30001"), Ok(0.0));
        assert_eq!(Numeric { tolerance: 1e-7, ..near }.verify("1", "1.0000001"), Ok(1.0));
    }

    #[test]
    fn a_reference_without_a_number_is_an_error() {
        for reference in ["", "none", &"9".repeat(80)] {
            assert_eq!(Numeric::default().check(reference).unwrap_err().kind(), "reference");
        }
    }
}
