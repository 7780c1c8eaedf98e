//! Where episodes end inside a batch, and what stands for the future there.

#![expect(
    clippy::inline_always,
    reason = "vector widths reach only what is inlined into the dispatched loop"
)]

use num_traits::Float;

use super::AdvantageError;

/// The ends of episodes in a batch of T steps of B columns, and the values that stand for what follows them.
///
/// A step that is both terminated and truncated counts as terminated.
#[derive(Debug, Clone, Copy)]
pub struct Boundaries<'a, F> {
    /// The episode ended by the rules of the task; nothing follows. `[T, B]`.
    pub terminated: &'a [bool],
    /// The episode was cut off; its final observation's value stands for what would have followed. `[T, B]`.
    pub truncated: &'a [bool],
    /// Value of the true final observation, `[T, B]`; read only where truncated and not terminated.
    pub final_values: &'a [F],
    /// Value of the observation after the last step, `[B]`; not read for columns whose last step ends an episode.
    pub bootstrap: &'a [F],
}

impl<F: Float> Boundaries<'_, F> {
    /// B.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.bootstrap.len()
    }

    /// Refuses arrays whose lengths do not fit together; returns T.
    pub(super) fn check(&self, arrays: &[(&'static str, usize)]) -> Result<usize, AdvantageError> {
        let entries = self.terminated.len();
        let columns = self.columns();
        let steps = entries.checked_div(columns).unwrap_or(0);
        AdvantageError::check_length("terminated", entries, steps * columns)?;
        AdvantageError::check_length("truncated", self.truncated.len(), entries)?;
        AdvantageError::check_length("final_values", self.final_values.len(), entries)?;
        for &(name, got) in arrays {
            AdvantageError::check_length(name, got, entries)?;
        }
        Ok(steps)
    }

    /// Whether an episode ends at entry `index`, so that nothing may be carried over from the next row.
    #[inline(always)]
    pub(super) fn ends(&self, index: usize) -> bool {
        self.terminated[index] || self.truncated[index]
    }

    /// The effective discount of entry `index`: nothing is worth anything after a termination.
    #[inline(always)]
    pub(super) fn discount(&self, index: usize, discount: F) -> F {
        if self.terminated[index] { F::zero() } else { discount }
    }

    /// What stands for the successor of entry `index`, given what the next row holds (row T is the bootstrap).
    #[inline(always)]
    pub(super) fn successor(&self, index: usize, next_row: F) -> F {
        if self.terminated[index] {
            F::zero()
        } else if self.truncated[index] {
            self.final_values[index]
        } else {
            next_row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misfitting_arrays_are_refused_by_name() {
        let flags = [false; 6];
        let zeros = [0.0; 6];
        let fitting = Boundaries {
            terminated: &flags,
            truncated: &flags,
            final_values: &zeros,
            bootstrap: &zeros[..2],
        };
        assert_eq!(fitting.check(&[("rewards", 6)]), Ok(3));
        assert_eq!(
            fitting.check(&[("rewards", 5)]),
            Err(AdvantageError::Length { name: "rewards", got: 5, expected: 6 })
        );
        let ragged = Boundaries { bootstrap: &zeros[..4], ..fitting };
        assert!(matches!(ragged.check(&[]), Err(AdvantageError::Length { name: "terminated", .. })));
        let short = Boundaries { final_values: &zeros[..5], ..fitting };
        assert!(matches!(short.check(&[]), Err(AdvantageError::Length { name: "final_values", .. })));
    }

    #[test]
    fn a_termination_wins_over_a_truncation() {
        let ends = Boundaries {
            terminated: &[true, false],
            truncated: &[true, true],
            final_values: &[777.0, 2.0],
            bootstrap: &[5.0],
        };
        assert_eq!((ends.successor(0, 9.0), ends.discount(0, 0.9)), (0.0, 0.0));
        assert_eq!((ends.successor(1, 9.0), ends.discount(1, 0.9)), (2.0, 0.9));
    }
}
