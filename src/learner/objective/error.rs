//! Why an objective cannot be computed.

/// What can go wrong in an objective.
#[derive(Debug, thiserror::Error)]
pub enum ObjectiveError {
    /// An array has the wrong number of entries.
    #[error("array {name} of an objective has {got} entries; the policy was evaluated on {expected}")]
    Length {
        /// Name of the array.
        name: &'static str,
        /// Number of entries given.
        got: usize,
        /// Number of entries needed.
        expected: usize,
    },
    /// A setting is outside its range.
    #[error("objective setting {name} is {value}; it must be {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A tensor operation failed.
    #[error("tensor operation of an objective failed: {0}")]
    Tensor(#[from] candle_core::Error),
}

impl ObjectiveError {
    /// Refuses an array that has not exactly `expected` entries.
    pub(super) fn check_length(name: &'static str, got: usize, expected: usize) -> Result<(), Self> {
        if got == expected { Ok(()) } else { Err(Self::Length { name, got, expected }) }
    }
}
