//! What can be wrong with a configuration.

/// One fault, with the place where it was written and what to do about it.
///
/// `place` is `file:line:column` (both from 1, columns in characters), or the `--set` that brought the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not a TOML document.
    #[error("{place}: not valid TOML: {why}")]
    Syntax {
        /// Where it was written.
        place: String,
        /// What the parser met and what it expected.
        why: String,
    },
    /// An override cannot be understood or applied.
    #[error("`--set {text}`: {why}")]
    Override {
        /// The override as it was given.
        text: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A name that means nothing at its place.
    #[error("{place}: unknown field `{path}`; {advice}")]
    UnknownField {
        /// Where it was written.
        place: String,
        /// Full path of the field.
        path: String,
        /// The nearest allowed name, or all of them.
        advice: String,
    },
    /// A choice that does not exist.
    #[error("{place}: unknown value `{value}` of `{path}`; {advice}")]
    UnknownVariant {
        /// Where it was written.
        place: String,
        /// Full path of the field.
        path: String,
        /// What was asked for.
        value: String,
        /// The nearest allowed value, or all of them.
        advice: String,
    },
    /// A value of the wrong type or outside its bounds.
    #[error("{place}: wrong value of `{path}`: expected {expected}, found {found}")]
    WrongValue {
        /// Where it was written.
        place: String,
        /// Full path of the field.
        path: String,
        /// The type and the bounds.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A field without a default was not given.
    #[error("{place}: missing field `{path}`; set it to: {expected}")]
    MissingField {
        /// The table it belongs to.
        place: String,
        /// Full path of the field.
        path: String,
        /// The type and the bounds.
        expected: String,
    },
    /// Anything else, among it values that contradict each other.
    #[error("{place}: {why}")]
    Invalid {
        /// The field or fields, each with the place where it was written.
        place: String,
        /// What is wrong and what would be right.
        why: String,
    },
}
