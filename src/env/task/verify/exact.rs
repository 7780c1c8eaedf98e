//! The whole reply is the answer.

use super::{GradeError, Verifier, score};

/// Right when reply and reference are the same text, without the white space around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exact;

impl Verifier for Exact {
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError> {
        Ok(score(reference.trim() == reply.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_around_the_answer_is_forgiven() {
        let cases = [
            ("a b", " a b\n", 1.0),
            ("a b", "a  b", 0.0),
            ("a", "A", 0.0),
            ("a", "a.", 0.0),
            ("a", "", 0.0),
            (" ", "", 1.0),
        ];
        for (reference, reply, expected) in cases {
            assert_eq!(Exact.verify(reference, reply), Ok(expected), "{reference:?} {reply:?}");
        }
    }
}
