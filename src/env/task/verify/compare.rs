//! When an answer that was found in a reply is the same as the reference.

use serde::Deserialize;

use super::number::whole_number;
use super::{GradeError, latex};
use crate::env::task::Rational;

/// How two answers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// As numbers when both are, else as formulas: without the LaTeX that only changes the looks, white space, and a
    /// full stop.
    #[default]
    Auto,
    /// As text, without the white space around it.
    Text,
    /// As numbers; the reference has to be one.
    Number,
}

impl Compare {
    /// Whether `found` is the same answer as `reference`.
    ///
    /// # Errors
    /// When the reference is no number but should be.
    pub fn same(self, reference: &str, found: &str) -> Result<bool, GradeError> {
        if self == Self::Text {
            return Ok(reference.trim() == found.trim());
        }
        let number = whole_number(reference).filter(super::Number::is_exact);
        match (number, self) {
            (Some(number), _) => {
                Ok(whole_number(found).is_some_and(|found| found.equals(&number, Rational::ZERO)))
            }
            (None, Self::Number) => Err(GradeError::Reference(format!("`{reference}` is no number"))),
            (None, _) => Ok(formula(reference) == formula(found)),
        }
    }
}

fn formula(text: &str) -> String {
    let plain: String = latex::plain(text).chars().filter(|character| !character.is_whitespace()).collect();
    plain.strip_suffix('.').map_or(plain.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_same_as_numbers_or_as_formulas() {
        for (reference, found, expected) in [
            ("0.5", "\\frac{1}{2}", true),
            ("1{,}000", "1000", true),
            ("\\frac{\\sqrt{2}}{2}", "\\dfrac{\\sqrt{2}}{2}", true),
            ("(1, 2)", "\\left(1,2\\right)", true),
            ("\\text{east}", "east.", true),
            ("x+1", "x + 1", true),
            ("x+1", "1+x", false),
            ("x", "X", false),
            ("5", "5 cm", false),
            ("5", "", false),
        ] {
            assert_eq!(Compare::Auto.same(reference, found), Ok(expected), "{reference} {found}");
        }
    }

    #[test]
    fn other_comparisons_are_as_asked() {
        assert_eq!(Compare::Text.same("5", "5.0"), Ok(false));
        assert_eq!(Compare::Text.same("5", " 5\n"), Ok(true));
        assert_eq!(Compare::Number.same("5", "5.0"), Ok(true));
        assert!(Compare::Number.same("five", "5").is_err());
    }
}
