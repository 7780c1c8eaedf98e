//! The answer stands in `\boxed{…}`, as mathematical models are taught, or after a mark such as `####`.

use serde::{Deserialize, Deserializer};

use super::compare::Compare;
use super::latex::braced;
use super::{GradeError, Verifier, score};

/// Compares what stands in the last `\boxed{…}` of the reply. A reference may be boxed too.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Boxed {
    /// How answers are compared.
    pub compare: Compare,
}

impl Verifier for Boxed {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        verify(self.compare, reference, reply, last_boxed)
    }
}

/// Compares what stands after the last mark of the reply, up to the end of its line. A reference may hold the mark
/// too, as a worked solution does.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Marked {
    /// What the answer stands after.
    #[serde(deserialize_with = "mark")]
    pub mark: String,
    /// How answers are compared.
    pub compare: Compare,
}

fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mark = String::deserialize(deserializer)?;
    if mark.trim().is_empty() {
        return Err(serde::de::Error::custom(
            "mark is empty; give what stands before the answer, such as ####",
        ));
    }
    Ok(mark)
}

impl Default for Marked {
    fn default() -> Self {
        Self { mark: "####".into(), compare: Compare::Auto }
    }
}

impl Verifier for Marked {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        verify(self.compare, reference, reply, |text| after_mark(text, &self.mark))
    }
}

fn verify<'a>(
    compare: Compare,
    reference: &'a str,
    reply: &'a str,
    find: impl Fn(&'a str) -> Option<&'a str>,
) -> Result<f64, GradeError> {
    let reference = find(reference).unwrap_or(reference).trim();
    if reference.is_empty() {
        return Err(GradeError::Reference("it is empty".into()));
    }
    // Compared also without an answer, so that a bad reference is noticed.
    let found = find(reply);
    Ok(score(compare.same(reference, found.unwrap_or(""))? && found.is_some()))
}

/// What stands in the last `\boxed{…}` (or `\fbox{…}`) whose braces close.
pub(super) fn last_boxed(text: &str) -> Option<&str> {
    let mut end = text.len();
    while let Some(at) = text[..end].rfind("box") {
        let command = text[..at].ends_with("\\f") || text[..at].ends_with('\\');
        let after = &text[at + "box".len()..];
        let after = after.strip_prefix("ed").unwrap_or(after);
        if let (true, Some((inner, _))) = (command, braced(after.trim_start())) {
            return Some(inner);
        }
        end = at;
    }
    None
}

fn after_mark<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let (_, after) = text.rsplit_once(mark)?;
    after.trim_start().lines().next().or(Some(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_is_found_with_its_nested_braces() {
        for (text, expected) in [
            ("so \\boxed{42}.", Some("42")),
            ("\\boxed{\\frac{1}{2}}", Some("\\frac{1}{2}")),
            ("\\boxed{1} no, \\boxed{2}", Some("2")),
            ("\\boxed{a_{b_{c}}} and {more}", Some("a_{b_{c}}")),
            ("\\boxed {7}", Some("7")),
            ("\\fbox{7}", Some("7")),
            ("\\boxed{1} then \\boxed{2", Some("1")),
            ("\\boxed{}", Some("")),
            ("boxed{7}", None),
            ("\\boxed 7", None),
            ("in a box", None),
            ("", None),
        ] {
            assert_eq!(last_boxed(text), expected, "{text}");
        }
    }

    #[test]
    fn boxed_answers_are_compared_by_value_or_as_formulas() {
        for (reference, reply, expected) in [
            ("0.5", "It is $\\boxed{\\frac{1}{2}}$", 1.0),
            ("\\boxed{\\frac{1}{2}}", "\\boxed{0.5}", 1.0),
            ("1000", "\\boxed{1{,}000}", 1.0),
            ("50", "\\boxed{50\\%}", 1.0),
            ("\\text{east}", "\\boxed{east}", 1.0),
            ("42", "42", 0.0),
            ("42", "\\boxed{}", 0.0),
            ("42", "\\boxed{42} or \\boxed{43}", 0.0),
            ("42", "", 0.0),
        ] {
            assert_eq!(Boxed::default().verify(reference, reply), Ok(expected), "{reference} {reply}");
        }
    }

    #[test]
    fn a_marked_answer_ends_with_its_line() {
        let solution = "48 / 2 = 24\n48 + 24 = 72\n#### 72";
        for (reply, expected) in [
            ("#### 72", 1.0),
            ("reason\n####72\n", 1.0),
            ("#### 72.0\nDone.", 1.0),
            ("#### 71\n#### 72", 1.0),
            ("#### 72 apples", 0.0),
            ("72", 0.0),
            ("####", 0.0),
            ("#### ", 0.0),
        ] {
            assert_eq!(Marked::default().verify(solution, reply), Ok(expected), "{reply:?}");
        }
        let other = Marked { mark: "Answer:".into(), compare: Compare::Text };
        assert_eq!(other.verify("yes", "Answer: yes"), Ok(1.0));
    }

    #[test]
    fn an_empty_reference_is_an_error_and_never_matched_by_an_empty_answer() {
        assert!(Boxed::default().verify("", "\\boxed{}").is_err());
        assert!(Marked::default().check("text ####").is_err());
        assert!(Boxed { compare: Compare::Number }.check("x").is_err());
    }
}
