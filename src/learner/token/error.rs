//! Why a token loss refuses its settings or its arrays.

use super::Aggregation;

/// What can be wrong with the settings or the arrays of a token loss.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TokenLossError {
    /// A setting is outside its range.
    #[error("token objective setting {name} is {value}; it must be {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// The aggregation does not fit the objective.
    #[error(
        "objective {objective} cannot be aggregated by {aggregation}; leave aggregation out, or use {allowed}"
    )]
    Aggregation {
        /// The objective's kind.
        objective: &'static str,
        /// What was asked for.
        aggregation: Aggregation,
        /// What the objective accepts.
        allowed: &'static str,
    },
    /// The aggregation divides by a length that is not set.
    #[error(
        "aggregation fixed_length needs max_length; set it to the most new tokens that a sequence may have"
    )]
    MaxLength,
    /// A reference KL term cannot be added to this objective.
    #[error(
        "objective {objective} takes no reference KL term of its own: the reference is part of it; set reference_kl.coefficient to 0"
    )]
    ReferenceKl {
        /// The objective's kind.
        objective: &'static str,
    },
    /// An array has the wrong number of entries.
    #[error("array {name} of a token batch has {got} entries; it must have {expected}")]
    Length {
        /// Name of the array.
        name: &'static str,
        /// Number of entries given.
        got: usize,
        /// Number of entries needed.
        expected: usize,
    },
    /// An array that is needed was not given.
    #[error("{what} needs {array} of the batch, which were not given; compute them before the loss")]
    Missing {
        /// The objective's kind, or the term.
        what: &'static str,
        /// The array.
        array: &'static str,
    },
    /// A row is no range of the batch's tokens, or overlaps the one before.
    #[error(
        "row {row} is tokens {start}..{end}; rows must follow one another within the {tokens} tokens of the batch"
    )]
    Row {
        /// Index of the row.
        row: usize,
        /// Where it starts.
        start: usize,
        /// Where it ends.
        end: usize,
        /// Number of tokens in the batch.
        tokens: usize,
    },
    /// A reward is not a number.
    #[error("the reward of row {row} is {value}; give a finite reward, or none where grading failed")]
    Reward {
        /// Index of the row.
        row: usize,
        /// What was given.
        value: f64,
    },
    /// An objective that weighs whole sequences was given advantages that differ within one.
    #[error(
        "row {row} has different advantages at its tokens, but the objective weighs whole sequences; use an advantage of the sequence"
    )]
    MixedAdvantages {
        /// Index of the row.
        row: usize,
    },
    /// A micro-batch names a row that the whole batch does not have.
    #[error("a micro-batch names row {row}, but the whole batch has {rows} rows")]
    UnknownRow {
        /// The row.
        row: usize,
        /// Number of rows of the whole batch.
        rows: usize,
    },
    /// A micro-batch holds one row of a pair but not the other.
    #[error(
        "rows {chosen} and {rejected} are a pair, but only one of them is in the micro-batch; keep both together"
    )]
    SplitPair {
        /// Row of the larger reward, in the whole batch.
        chosen: usize,
        /// Row of the smaller reward, in the whole batch.
        rejected: usize,
    },
}

impl TokenLossError {
    /// Refuses an array that has not exactly `expected` entries.
    pub(super) fn check_length(name: &'static str, got: usize, expected: usize) -> Result<(), Self> {
        if got == expected { Ok(()) } else { Err(Self::Length { name, got, expected }) }
    }

    /// Refuses a setting that is not `fine` (NaN must not be).
    pub(super) fn check(
        name: &'static str,
        value: f64,
        fine: bool,
        expected: &'static str,
    ) -> Result<(), Self> {
        if fine { Ok(()) } else { Err(Self::Setting { name, value, expected }) }
    }

    /// Refuses a setting that is not at least 0 and finite.
    pub(super) fn check_not_negative(name: &'static str, value: f64) -> Result<(), Self> {
        Self::check(name, value, value >= 0.0 && value.is_finite(), "finite and at least 0")
    }

    /// Refuses a setting that is not positive and finite.
    pub(super) fn check_positive(name: &'static str, value: f64) -> Result<(), Self> {
        Self::check(name, value, value > 0.0 && value.is_finite(), "finite and positive")
    }

    /// Refuses bounds of a ratio that do not contain 1, the ratio of tokens that are not stale.
    pub(super) fn check_bounds(names: [&'static str; 2], [low, high]: [f64; 2]) -> Result<(), Self> {
        Self::check(
            names[0],
            low,
            (0.0..=1.0).contains(&low),
            "between 0 and 1, so that the bounds contain 1",
        )?;
        Self::check(names[1], high, high >= 1.0, "at least 1, so that the bounds contain 1")
    }
}
