//! Verifiers: whether a reply gives the reference answer of a dataset's problem.
//!
//! Each first finds the answer in the reply by one rule, then compares it with the reference. A reply in which nothing
//! is found is wrong; a reference that cannot be read is an error, noticed when the dataset is loaded.

mod boxed;
mod choice;
mod compare;
mod exact;
mod latex;
mod number;
mod numeric;
mod pattern;

pub use boxed::{Boxed, Marked};
pub use choice::Choice;
pub use compare::Compare;
pub use exact::Exact;
pub use number::{Number, last_number, whole_number};
pub use numeric::{Numeric, Reading};
pub use pattern::{Pattern, Pick};

use serde::{Deserialize, Deserializer};

use super::error::GradeError;

/// Compares replies with reference answers.
pub trait Verifier: Send + Sync {
    /// How right `reply` is: 1 right, 0 wrong.
    ///
    /// # Errors
    /// When the reference cannot be used.
    fn verify(&self, reference: &str, reply: &str) -> Result<f64, GradeError>;

    /// Whether `reference` can be used at all.
    ///
    /// # Errors
    /// Says why it cannot.
    fn check(&self, reference: &str) -> Result<(), GradeError> {
        self.verify(reference, "").map(|_| ())
    }
}

/// A verifier as a configuration names it: `"numeric"`, or with options `{ kind = "numeric", tolerance = 0.01 }`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum VerifierConfig {
    /// The whole reply is the answer.
    #[default]
    Exact,
    /// The answer is a number.
    Numeric(Numeric),
    /// The answer stands in `\boxed{…}`.
    Boxed(Boxed),
    /// The answer stands after a mark.
    Marked(Marked),
    /// The answer is what a regular expression finds.
    Regex(Pattern),
    /// The answer is the letter of a choice.
    Choice(Choice),
}

impl VerifierConfig {
    /// The verifier.
    #[must_use]
    pub fn build(self) -> Box<dyn Verifier> {
        match self {
            Self::Exact => Box::new(Exact),
            Self::Numeric(verifier) => Box::new(verifier),
            Self::Boxed(verifier) => Box::new(verifier),
            Self::Marked(verifier) => Box::new(verifier),
            Self::Regex(verifier) => Box::new(verifier),
            Self::Choice(verifier) => Box::new(verifier),
        }
    }
}

impl<'de> Deserialize<'de> for VerifierConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The same with names, for serde to choose by.
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
        enum Named {
            Exact {},
            Numeric(Numeric),
            Boxed(Boxed),
            Marked(Marked),
            Regex(Pattern),
            Choice(Choice),
        }
        let table = match toml::Value::deserialize(deserializer)? {
            toml::Value::String(kind) => {
                toml::Value::Table(toml::Table::from_iter([("kind".to_owned(), toml::Value::String(kind))]))
            }
            table @ toml::Value::Table(_) => table,
            other => {
                let why = format!("`{other}` is neither a verifier's name nor a table with its `kind`");
                return Err(serde::de::Error::custom(why));
            }
        };
        let named = Named::deserialize(table)
            .map_err(|error: toml::de::Error| serde::de::Error::custom(error.message()))?;
        Ok(match named {
            Named::Exact {} => Self::Exact,
            Named::Numeric(verifier) => Self::Numeric(verifier),
            Named::Boxed(verifier) => Self::Boxed(verifier),
            Named::Marked(verifier) => Self::Marked(verifier),
            Named::Regex(verifier) => Self::Regex(verifier),
            Named::Choice(verifier) => Self::Choice(verifier),
        })
    }
}

/// The score of a yes or no.
fn score(right: bool) -> f64 {
    f64::from(u8::from(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Options {
        verifier: VerifierConfig,
    }

    fn read(text: &str) -> Result<VerifierConfig, String> {
        toml::from_str(text)
            .map(|options: Options| options.verifier)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_verifier_is_named_or_described() {
        assert_eq!(read("verifier = 'exact'"), Ok(VerifierConfig::Exact));
        assert_eq!(read("verifier = 'numeric'"), Ok(VerifierConfig::Numeric(Numeric::default())));
        assert_eq!(read("verifier = 'boxed'"), Ok(VerifierConfig::Boxed(Boxed::default())));
        assert_eq!(read("verifier = 'marked'"), Ok(VerifierConfig::Marked(Marked::default())));
        assert_eq!(read("verifier = 'choice'"), Ok(VerifierConfig::Choice(Choice::default())));
        let whole = Numeric { read: Reading::Whole, tolerance: 0.5 };
        let described = read("verifier = { kind = 'numeric', read = 'whole', tolerance = 0.5 }");
        assert_eq!(described, Ok(VerifierConfig::Numeric(whole)));
        assert!(matches!(
            read("verifier = { kind = 'regex', pattern = 'x(.)' }"),
            Ok(VerifierConfig::Regex(_))
        ));
    }

    #[test]
    fn a_wrong_description_is_refused_with_what_would_be_right() {
        for (text, part) in [
            ("verifier = 'numbers'", "`numeric`"),
            ("verifier = { kind = 'numeric', tolerence = 1.0 }", "`tolerence`"),
            ("verifier = { kind = 'exact', tolerance = 1.0 }", "`tolerance`"),
            ("verifier = { kind = 'numeric', tolerance = -1.0 }", "tolerance"),
            ("verifier = { kind = 'numeric', tolerance = nan }", "tolerance"),
            ("verifier = 'regex'", "`pattern`"),
            ("verifier = { kind = 'regex', pattern = '(' }", "unclosed"),
            ("verifier = { kind = 'regex', pattern = 'a', group = 1 }", "group"),
            ("verifier = { kind = 'choice', letters = '' }", "letters"),
            ("verifier = { kind = 'marked', mark = '' }", "mark"),
            ("verifier = 3", "table"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
