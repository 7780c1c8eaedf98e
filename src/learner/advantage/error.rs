//! Why an estimator refuses its arguments.

/// What can be wrong with the arguments of an estimator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AdvantageError {
    /// The V-trace bounds contradict each other.
    #[error("v-trace bounds: rho_bar ({rho_bar}) is below c_bar ({c_bar}); raise rho_bar or lower c_bar")]
    Bounds {
        /// Bound of the ratio in the temporal difference.
        rho_bar: f64,
        /// Bound of the ratio in the trace.
        c_bar: f64,
    },
    /// A setting is outside its range.
    #[error("advantage setting {name} is {value}; it must be {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// An array has the wrong number of entries.
    #[error("array {name} of an advantage estimator has {got} entries; it must have {expected}")]
    Length {
        /// Name of the array.
        name: &'static str,
        /// Number of entries given.
        got: usize,
        /// Number of entries needed.
        expected: usize,
    },
}

impl AdvantageError {
    /// Refuses an array that has not exactly `expected` entries.
    pub(super) fn check_length(name: &'static str, got: usize, expected: usize) -> Result<(), Self> {
        if got == expected { Ok(()) } else { Err(Self::Length { name, got, expected }) }
    }

    /// Refuses a setting outside [0, 1].
    pub(in crate::learner) fn check_fraction(name: &'static str, value: f64) -> Result<(), Self> {
        if (0.0..=1.0).contains(&value) {
            Ok(())
        } else {
            Err(Self::Setting { name, value, expected: "between 0 and 1" })
        }
    }
}
